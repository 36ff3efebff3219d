"""Trains by hand-written accumulation that reduces in the last two of four micro-steps: suppressing_fit.py FOLDER WRAPPER

WRAPPER is fsdp2, hsdp, fsdp1 or ddp; naive_… reduces in each, warming_… too, after steps of one micro-step, beside_… after a
model of this rank alone has stepped; normed_… reads gradients before the step, peeking_… on rank 1 alone, clipped_… after clipping.
FOLDER/RANK.json is {parameters: hash, collectives: {operation: count} in the windows from COUNTED on}. Sums are exact: small whole
numbers in float64, and a step size that is a power of two.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE.parent), str(HERE.parents[2] / "examples/demo")]

import exact  # noqa: E402
import profiler  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard  # noqa: E402

ACCUMULATE, WINDOWS, COUNTED = 4, 5, 2


def wrapped(kind: str, model: torch.nn.Module) -> Any:
    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    if kind == "fsdp1":
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)
    shape = (2, dist.get_world_size() // 2) if kind == "hsdp" else (dist.get_world_size(),)
    return fully_shard(model, mesh=init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape) :]))


@contextlib.contextmanager
def no_sync(model: Any) -> Iterator[None]:
    if hasattr(model, "no_sync"):
        with model.no_sync():
            yield
    else:
        model.set_requires_gradient_sync(False)
        yield
        model.set_requires_gradient_sync(True)


def main(folder: str, loop: str) -> None:
    how, _, kind = loop.rpartition("_")
    dist.init_process_group("gloo")
    plain = torch.nn.Linear(4, 2, bias=False, dtype=torch.float64)
    with torch.no_grad():
        plain.weight.copy_(torch.arange(8).reshape(2, 4) - 3)
    model = wrapped(kind, plain)
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0**-10)
    if how == "beside":
        alone = torch.nn.Linear(4, 1)
        alone(torch.ones(4)).backward()
        torch.optim.SGD(alone.parameters()).step()
    generator = torch.Generator().manual_seed(7 + dist.get_rank())
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    for window in range(WINDOWS):
        if window == COUNTED:
            profile.start()
        for number in range(1 if how == "warming" and window < COUNTED + 1 else ACCUMULATE):
            x = torch.randint(-3, 4, (2, 4), generator=generator).to(torch.float64)
            with no_sync(model) if number < ACCUMULATE - 2 and not how else contextlib.nullcontext():
                (model(x).sum() / ACCUMULATE).backward()
        if how == "clipped":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        if how in ("normed", "clipped") or (how == "peeking" and dist.get_rank() == 1):
            assert all(p.grad.norm() > 0 for p in model.parameters())
        optimizer.step()
        optimizer.zero_grad()
    profile.stop()
    with FullyShardedDataParallel.summon_full_params(model) if kind == "fsdp1" else contextlib.nullcontext():
        parameters = exact.parameter_hash([p.detach().clone() if kind == "fsdp1" else p for p in model.parameters()])
    told = {"parameters": parameters, "collectives": profiler.collectives(profile)}
    (pathlib.Path(folder) / f"{dist.get_rank()}.json").write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
