"""Rows about checkpoints that another number of ranks, or another wrapper, loads, and about HSDP and three ranks."""

from __future__ import annotations

from typing import Any

import checkpointed as c
import checkpointed_worlds as w
import gradgate
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import trainers as t
from rows import row
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict


def mean(size: int, i: int) -> float:
    """Of the i-th micro-step's factors over ranks."""
    return sum(c.factor(rank, i) for rank in range(size)) / size


KINDS: dict[str, Any] = {
    "ddp": lambda group, size: c.ddp(group),
    "plain": lambda group, size: c.Model(),
    "fsdp": lambda group, size: c.sharded(w.mesh(size)),
    "hsdp": lambda group, size: c.sharded(w.mesh(2, size // 2)),
}


def both(before: tuple[str, int], after: tuple[str, int], at: int = 2, **options: Any) -> dict[str, Any]:
    """Saved on one kind and number of ranks, loaded on another: the gradient at the boundary, of a weight whose own is the factor."""
    path, found = w.folder(), None
    groups = [w.group(size) for _, size in (before, after)]
    for kind, size in (before, after):
        w.mesh(size), w.mesh(2, size // 2) if kind == "hsdp" else None
    for (kind, size), loads, one in zip((before, after), (False, True), groups, strict=True):
        if w.inside(size):
            run = c.Run(KINDS[kind](one, size), {"mode": "window", **options}, one)
            state = {
                "model": get_model_state_dict(run.model),
                "optim": get_optimizer_state_dict(run.model, run.optimizer),
                "sync": run.sync,
            }
            rank = dist.get_rank()
            if loads:
                gradgate.checkpoint.load(state, checkpoint_id=path, process_group=one)
                for i in range(run.sync.state_dict()["micro_steps"], c.N):
                    with run.sync.micro_step():
                        run.model(c.factor(rank, i)).backward()
                assert run.sync.boundary
                found = whole(run.model.units[0].w.grad if kind != "ddp" else run.model.module.units[0].w.grad)
                run.optimizer.step()
            else:
                run.train(c.feed(rank, 0, at))
                dcp.save(state, checkpoint_id=path, process_group=one)
                run.sync.discard()
                run.sync.flush()
            run.close()
        dist.barrier()
    expected = sum(mean(before[1], i) for i in range(at)) + sum(mean(after[1], i) for i in range(at, c.N))
    return {"right": found is None or found == expected or (found, expected)}


def whole(tensor: Any) -> float:
    full = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    assert bool((full == full[0]).all()), full
    return float(full[0])


@row(world=4, right=True)
def ddp_two_to_one(rank: int, world: int) -> dict[str, Any]:
    return both(("ddp", 2), ("plain", 1))


@row(world=4, right=True)
def ddp_one_to_two(rank: int, world: int) -> dict[str, Any]:
    return both(("ddp", 1), ("ddp", 2), at=3)


@row(world=4, right=True)
def fsdp_two_to_four(rank: int, world: int) -> dict[str, Any]:
    return both(("fsdp", 2), ("fsdp", 4))


@row(world=4, right=True)
def fsdp_three_to_ddp_of_two(rank: int, world: int) -> dict[str, Any]:
    return both(("fsdp", 3), ("ddp", 2))


@row(world=4, right=True)
def ddp_of_two_to_hsdp(rank: int, world: int) -> dict[str, Any]:
    return both(("ddp", 2), ("hsdp", 4), at=1)


@row(world=4, right=True)
def hsdp_to_fsdp_of_two(rank: int, world: int) -> dict[str, Any]:
    return both(("hsdp", 4), ("fsdp", 2), mode="window")


SAME: dict[str, Any] = {"resumed": True, "uninterrupted": True, "means": True}


@row(world=4, **SAME)
def hsdp_partial_sums(rank: int, world: int) -> dict[str, Any]:
    return c.differences(lambda: c.Run(c.sharded(w.mesh(2, 2)), {"mode": "window_replica"}), rank, 2)


@row(world=4, **SAME)
def hsdp_window(rank: int, world: int) -> dict[str, Any]:
    return c.differences(lambda: c.Run(c.sharded(w.mesh(2, 2)), {"mode": "window"}), rank, 3)


@row(world=4, counts={"all_reduce": 3 * 3, "reduce_scatter": 3 * 8}, extra={"shard": 0, "replicate": 1}, mismatched=0, told=[])
def hsdp_counts(rank: int, world: int) -> dict[str, Any]:
    """Two windows and one checkpoint: the checkpoint sends the all-reduces alone."""
    run = c.Run(c.sharded(w.mesh(2, 2)), {"mode": "window_replica"})
    with t.Watch(run.sync) as watch:
        run.train(c.feed(rank, 0, 6))
        run.sync.state_dict()
        run.train(c.feed(rank, 6, 2))
    extra = {name: role["declared_extra"] for name, role in run.sync.stats()["roles"].items()}
    run.close()
    found = watch.seen(extra=extra)
    return {**found, "counts": found["gradient"], "mismatched": found["windows_mismatched"]}


@row(world=4, resumed=True, uninterrupted=True)
def three_ranks(rank: int, world: int) -> dict[str, Any]:
    """A mean that is taken twice would not be exact for three."""
    three = w.group(3)
    return c.differences(lambda: c.Run(c.ddp(three), group=three), rank, 2) if w.inside(3) else {"resumed": True, "uninterrupted": True}


@row(world=4, resumed=True)
def any_gradients(rank: int, world: int) -> dict[str, Any]:
    """Sums that are not exact: the run that goes on and the one that loads have the same bytes all the same."""
    torch.manual_seed(rank)
    data = torch.randn(3 * c.N, dtype=torch.float64).exp().tolist()
    return c.differences(lambda: c.Run(c.sharded(w.mesh(4), torch.float32), {"mode": "window"}), rank, 2, data=data)
