"""Loops that do themselves what deferring would break: `recognised.py FOLDER KIND`. Each rank leaves its parameters' hash there."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import sys
from typing import Any

import torch
import torch.distributed as dist
from forwarding_group import Forwarding
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, MICRO_STEPS = 4, 2
KEPT: list[nn.Module] = []  # a DDP module freed after its process group can abort the process


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).double()


def sharded(model: nn.Sequential) -> Any:
    from torch.distributed.fsdp import fully_shard

    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    return model


def batch(step: int) -> torch.Tensor:
    return torch.full((8, 4), float(1 + step + 4 * dist.get_rank()), dtype=torch.float64) / 8


def hooked(model: nn.Module) -> nn.Module:
    optimizers = {parameter: torch.optim.SGD([parameter], lr=2**-6) for parameter in model.parameters()}

    def hook(parameter: Any) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)
    return model


def in_backward(model: nn.Module) -> nn.Module:
    hooked(model)
    for step in range(STEPS * MICRO_STEPS):
        model(batch(step)).pow(2).mean().backward()
    return model


def accumulating(model: nn.Module, group: Any = None, averager: Any = None) -> nn.Module:
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=2**-6)
    for step in range(STEPS):
        for i in range(MICRO_STEPS):
            model(batch(MICRO_STEPS * step + i)).pow(2).mean().backward()
        optimizer.step()
        if averager is not None:
            averager.average_parameters(model.parameters())
        optimizer.zero_grad()
    return model


def local_sgd() -> nn.Module:
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
    model = DistributedDataParallel(layers())
    model.register_comm_hook(PostLocalSGDState(None, alone, start_localSGD_iter=3), post_localSGD_hook)
    return accumulating(model, averager=PeriodicModelAverager(period=2, warmup_steps=1))


def pipelined(wrap: Any, schedule: str) -> nn.Module:
    from torch.distributed import pipelining

    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
    model: nn.Module = wrap(layers())
    stage = pipelining.PipelineStage(model, 0, 1, torch.device("cpu"), group=alone)
    runs = getattr(pipelining, schedule)(stage, n_microbatches=4, loss_fn=lambda y, target: (y - target).pow(2).mean())
    optimizer = torch.optim.SGD(model.parameters(), lr=2**-6)
    for step in range(STEPS):
        runs.step(batch(step), target=torch.zeros(8, 4, dtype=torch.float64))
        optimizer.step()
        optimizer.zero_grad()
    return model


def find_unused(model: nn.Module) -> nn.Module:
    return DistributedDataParallel(model, find_unused_parameters=True)


KINDS: dict[str, Any] = {
    "fsdp2_hooks": lambda: in_backward(sharded(layers())),
    "ddp_hooks": lambda: in_backward(DistributedDataParallel(layers())),
    "gpipe_fsdp2": lambda: pipelined(sharded, "ScheduleGPipe"),
    "1f1b_fsdp2": lambda: pipelined(sharded, "Schedule1F1B"),
    "gpipe_ddp": lambda: pipelined(find_unused, "ScheduleGPipe"),
    "local_sgd": local_sgd,
    "python_group": lambda: accumulating(DistributedDataParallel(layers(), process_group=Forwarding(dist.group.WORLD))),
}


def main(folder: str, kind: str) -> None:
    dist.init_process_group("gloo")
    model = KINDS[kind]()
    KEPT.append(model)
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in whole)).hexdigest()
    pathlib.Path(folder, f"{os.environ['RANK']}.json").write_text(json.dumps(digest))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
