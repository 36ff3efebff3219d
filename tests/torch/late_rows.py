"""Rows of CASES.md about late reductions: N1, N2, N4, N7."""

from __future__ import annotations

from typing import Any

import gradgate
import torch
import torch.distributed as dist
import trainers as t
from rows import Each, row
from torch import nn

AR, RS, AG = "all_reduce", "reduce_scatter", "all_gather"


# N1: one rank reduces in its backward, the other one late.


def one_late(rank: int, model: nn.Module) -> dict[str, Any]:
    optimizer = t.sgd(model, lr=1.0)
    with gradgate.attach(model, optimizer, accumulate=4, windows="variable") as sync, t.Watch(sync) as watch:
        found = t.drive(sync, watch, model, optimizer, t.data(rank, 4 - rank))
        if rank == 1:
            assert sync.flush()
            found.append(t.gradients(model))
            t.finish(optimizer, model)
        found += t.drive(sync, watch, model, optimizer, t.data(rank))
    return watch.seen(gradients=[t.one(b) for b in found], weights=t.one(t.weights(model)))


LATE: dict[str, Any] = {"gradients": [35.0, 55.0], "weights": -90.0, "late": Each(0, 1), "windows_late": Each(0, 1), "steps": 2}


@row(**LATE, gradient={AR: 2}, ours={AR: 2}, profiler={AR: 4, "broadcast": 2})
def n1_one_bucket(rank: int, world: int) -> dict[str, Any]:
    return one_late(rank, t.ddp())


@row(**LATE, gradient={AR: 1 + 3})
def n1_three_buckets(rank: int, world: int) -> dict[str, Any]:
    return one_late(rank, t.ddp(t.Units(3), buckets=True))


@row(**LATE, gradient={AR: 2})
def n1_bucket_views(rank: int, world: int) -> dict[str, Any]:
    return one_late(rank, t.ddp(t.Units(3), gradient_as_bucket_view=True))


@row(**LATE, gradient={AR: 2}, profiler={AR: 2 + 2 + 2})
def n1_find_unused(rank: int, world: int) -> dict[str, Any]:
    return one_late(rank, t.ddp(t.Units(3), find_unused_parameters=True))


@row(**LATE)
def n1_unwrapped(rank: int, world: int) -> dict[str, Any]:
    return one_late(rank, t.Units(3))


# N2: parameters kept inside the window, and a step in the middle of it.


@row(norm=16.5 * 8**0.5, after=-16.5 * 8, gradients=[16.5, 38.5], weights=-55.0)
def n2_step_inside_a_window_of_kept_parameters(rank: int, world: int) -> dict[str, Any]:
    model = t.fsdp(t.Units(2))
    optimizer = t.sgd(model, lr=1.0)
    with gradgate.attach(model, optimizer, accumulate=4, mode="window", keep_params=True) as sync, t.Watch(sync) as watch:
        found = t.drive(sync, watch, model, optimizer, t.data(rank, 2))
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        found.append(t.gradients(model))
        t.finish(optimizer, model)
        with torch.no_grad():
            after = float(model(1.0))
        for c in t.data(rank, 4)[2:]:
            with sync.micro_step():
                model(c).backward()
        assert sync.flush()
        found.append(t.gradients(model))
        t.finish(optimizer, model)
    return watch.seen(gradients=[t.one(b) for b in found], norm=float(norm.full_tensor()), after=after, weights=t.one(t.weights(model)))  # type: ignore[attr-defined]


# N4: buffers are broadcast in the first forward after a reduction, a late one too.


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.units, self.norm = t.Units(), nn.BatchNorm1d(2, dtype=torch.float64)

    def forward(self, c: float) -> torch.Tensor:
        with torch.no_grad():
            features = torch.full((3, 2), c, dtype=torch.float64)
        return torch.as_tensor(self.units(c) + 0.0 * self.norm(features).sum())


@row(gradients=[16.5, 55.0, 5.5, 55.0], running=True, late=2, gradient={AR: 4})
def n4_batch_norm_after_a_late_reduction(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp(Normed())
    optimizer, found = t.sgd(model), []
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        for size in (2, 4, 1, 4):
            found += t.drive(sync, watch, model, optimizer, t.data(rank, size))
            if sync.flush():
                found.append(t.gradients(model))
                t.finish(optimizer, model)
        model(0.0)
    mean = model.module.norm.running_mean
    told: list[Any] = [None] * world
    dist.all_gather_object(told, mean.tolist())
    return watch.seen(gradients=[b[0] for b in found], running=told[0] == told[1])


# N7: None stays None.


@row(unused=[1.0, None], used=0.89, gradient={RS: 2 - 1})
def n7_unused_parameters_of_a_late_window(rank: int, world: int) -> dict[str, Any]:
    return decaying(t.fsdp(t.Units(2)), rank, mode="window")


@row(unused=[1.0, None], used=0.89)
def n7_unused_parameters_of_a_late_window_ddp(rank: int, world: int) -> dict[str, Any]:
    return decaying(t.ddp(t.Units(2), find_unused_parameters=True), rank)


@row(unused=[1.0, None], used=0.89)
def n7_unused_parameters_of_a_late_window_unwrapped(rank: int, world: int) -> dict[str, Any]:
    return decaying(t.Units(2), rank)


@row(world=4, unused=[1.0, None], used=0.89)
def n7_unused_parameters_of_a_late_window_hsdp(rank: int, world: int) -> dict[str, Any]:
    return decaying(t.fsdp(t.Units(2), (2, 2)), rank, mode="window_replica")


def decaying(model: Any, rank: int, **options: Any) -> dict[str, Any]:
    """AdamW with lr 0.1 and weight decay 0.1: a weight of 1 with a gradient becomes 0.99 - 0.1, one without stays."""
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(1.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1, eps=0.0)
    with gradgate.attach(model, optimizer, accumulate=4, **options) as sync, t.Watch(sync) as watch:
        for c in t.data(rank, 2):
            with sync.micro_step():
                model(c, (0,)).backward()
        assert sync.flush()
        gradient = t.gradients(model)[1]
        optimizer.step()
    used, unused = t.weights(model)
    assert used is not None
    return watch.seen(unused=[unused, gradient], used=round(used, 9))
