"""Rows of CASES.md about the wrong moment or count, on each wrapper: T1 to T5."""

from __future__ import annotations

from typing import Any

import gradgate
import torch
import trainers as t
from rows import Says, row
from torch import nn

AR, RS, AG = "all_reduce", "reduce_scatter", "all_gather"


def two_windows(model: nn.Module, rank: int, windows: int = 2, n: int = 4, **options: Any) -> dict[str, Any]:
    """Fixture F on `model`, so many times over."""
    optimizer = t.sgd(model)
    with gradgate.attach(model, optimizer, accumulate=n, **options) as sync, t.Watch(sync) as watch:
        boundaries = t.drive(sync, watch, model, optimizer, t.data(rank, n) * windows)
    return watch.seen(gradients=[t.one(b) for b in boundaries])


# T1: HSDP, the all-reduce across replicas once a window. Gradients: (10 + 10 + 100 + 100) / 4. In window 0 the ranks also compare
# what replicas hold, with an all-gather.


def hsdp_window(rank: int, **options: Any) -> dict[str, Any]:
    return two_windows(t.fsdp(t.Units(2), (2, 2)), rank // 2, **options)


@row(
    world=4,
    gradients=[55.0, 55.0],
    gradient={"reduce_scatter": 16, AR: 4},
    ours={AR: 2, "all_gather": 1},
    profiler={"reduce_scatter": 16, AR: 6, "all_gather": 32 + 1},
    at=[6, 6, 6, 10, 6, 6, 6, 9],
    reductions=10,
    suppressed=6,
    windows_full=2,
)
def t1_replica_all_reduce_waits(rank: int, world: int) -> dict[str, Any]:
    return hsdp_window(rank, mode="window_replica")


@row(
    world=4,
    gradients=[55.0, 55.0],
    gradient={"reduce_scatter": 4, AR: 4},
    profiler={"reduce_scatter": 4, AR: 6, "all_gather": 32 + 1},
    at=[4, 4, 4, 10, 4, 4, 4, 9],
    reductions=4,
    suppressed=12,
)
def t1_everything_waits(rank: int, world: int) -> dict[str, Any]:
    return hsdp_window(rank, mode="window")


@row(world=4, gradients=[55.0, 55.0], gradient={"reduce_scatter": 4, AR: 4}, profiler={"reduce_scatter": 4, AR: 6, "all_gather": 4 + 1})
def t1_parameters_stay(rank: int, world: int) -> dict[str, Any]:
    return hsdp_window(rank, mode="window", keep_params=True)


@row(world=4, gradients=[55.0, 55.0], gradient={"reduce_scatter": 16, AR: 16}, ours={AR: 2, "all_gather": 1}, suppressed=0, reductions=16)
def t1_asked_to_reduce_each(rank: int, world: int) -> dict[str, Any]:
    return hsdp_window(rank, mode="every_micro_step")


@row(world=4, gradients=[55.0, 55.0], gradient={"reduce_scatter": 16, AR: 4})
def t1_auto_begins_with_the_least_memory(rank: int, world: int) -> dict[str, Any]:
    return hsdp_window(rank, mode="auto")


# T2, T3, T11: DDP reads its flag in the forward; the context covers that.


@row(
    gradients=[55.0] * 3,
    gradient={AR: 3},
    ours={AR: 3},
    profiler={AR: 6, "broadcast": 2},
    at=[0, 0, 0, 2, 2, 0, 0, 2, 0, 0, 0, 2],
    suppressed=9,
)
def t2_ddp_one_bucket(rank: int, world: int) -> dict[str, Any]:
    return two_windows(t.ddp(), rank, 3)


@row(
    gradients=[55.0] * 3,
    gradient={AR: 5},
    profiler={AR: 8, "broadcast": 2},
    at=[0, 0, 0, 2, 2, 0, 0, 3, 0, 0, 0, 3],
    suppressed=9,
    reductions=3,
)
def t2_ddp_two_buckets(rank: int, world: int) -> dict[str, Any]:
    return two_windows(t.ddp(t.Units(2), buckets=True), rank, 3)


@row(world=4, gradients=[55.0] * 2, gradient={AR: 3 + 1}, at=[0, 0, 0, 2, 2, 0, 0, 4])
def t2_ddp_four_ranks_three_buckets(rank: int, world: int) -> dict[str, Any]:
    return two_windows(t.ddp(t.Units(3), buckets=True), rank)


@row(gradients=[28 * 5.5] * 2, gradient={AR: 2}, at=[0, 0, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0, 2], suppressed=12)
def t2_ddp_windows_of_seven(rank: int, world: int) -> dict[str, Any]:
    return two_windows(t.ddp(), rank, n=7)


@row(gradients=[5.5] * 3, gradient={AR: 3}, at=[2, 4, 2], suppressed=0, windows_full=3)
def t2_windows_of_one_reduce_each(rank: int, world: int) -> dict[str, Any]:
    return two_windows(t.ddp(), rank, 3, n=1)


@row(gradients=[55.0] * 2, gradient={AR: 2}, profiler={AR: 2 + 2 + 2}, at=[0, 0, 0, 3, 0, 0, 0, 3], suppressed=6)
def t2_unwrapped(rank: int, world: int) -> dict[str, Any]:
    """Beside the gradients and the ballot a map of used parameters."""
    return two_windows(t.Units(2), rank)


@row(gradients=[55.0] * 2, gradient={AR: 2}, suppressed=6)
def t2_replicate(rank: int, world: int) -> dict[str, Any]:
    from torch.distributed._composable.replicate import replicate

    model = t.Units(2)
    t.KEPT.append(model)
    return two_windows(replicate(model), rank)


@row(gradients=[55.0] * 2, gradient={AR: 4}, at=[0, 0, 0, 3, 0, 0, 0, 3], suppressed=6)
def t2_replicate_on_fsdp(rank: int, world: int) -> dict[str, Any]:
    from torch.distributed._composable.replicate_with_fsdp import replicate

    model, on = t.Units(2), t.mesh(world)
    for unit in model.units:
        replicate(unit, mesh=on)
    t.KEPT.append(model)
    replicate(model, mesh=on)
    return two_windows(model, rank)


@row(gradients=[55.0] * 2, gradient={"reduce_scatter": 2}, suppressed=6)
def t2_fsdp1(rank: int, world: int) -> dict[str, Any]:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(t.Units(2), device_id=torch.device("cpu"))
    t.KEPT.append(model)
    return two_windows(model, rank, mode="window")


@row(gradients=[55.0] * 2, gradient={AR: 2}, at=[0, 0, 0, 2, 2, 0, 0, 2])
def t3_last_told_before_the_forward(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp()
    optimizer = t.sgd(model)
    with gradgate.attach(model, optimizer, accumulate=100) as sync, t.Watch(sync) as watch:
        boundaries = t.drive(sync, watch, model, optimizer, t.data(rank) * 2, last=lambda i: i % 4 == 3)
    return watch.seen(gradients=[t.one(b) for b in boundaries])


# T4: the first micro-step closes a window, since the condition is off by one.


@row(gradients=[16.5, 16.5], gradient={AR: 2}, at=[0, 2, 2, 2])
def t4_windows_of_two(rank: int, world: int) -> dict[str, Any]:
    return two_windows(t.ddp(), rank, n=2)


@row(gradients=[16.5], gradient={AR: 2}, windows=2, windows_unstepped=1)
def t4_boundary_one_off_is_reduced_at_the_step(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp()
    optimizer, found = t.sgd(model), []
    with gradgate.attach(model, optimizer, accumulate=2) as sync, t.Watch(sync) as watch:
        for i, c in enumerate(t.data(rank, 2)):
            with watch.place(), sync.micro_step(last=i % 2 == 0):
                model(c).backward()
            if (i + 1) % 2 == 0:
                optimizer.step()
                found.append(t.one(t.gradients(model)))
    return watch.seen(gradients=found)


# T5: static_graph needs its first backward reduced, and says so.


def static_graph(rank: int, **options: Any) -> dict[str, Any]:
    return two_windows(t.ddp(static_graph=True, **options), rank, 3)


@row(
    gradients=[55.0] * 3,
    gradient={AR: 4},
    profiler={AR: 4 + 1 + 3, "broadcast": 2},
    at=[2, 0, 0, 2, 2, 0, 0, 2, 0, 0, 0, 2],
    windows_mismatched=0,
    told=Says("static"),
)
def t5_static_graph(rank: int, world: int) -> dict[str, Any]:
    return static_graph(rank)


@row(gradients=[55.0] * 3, gradient={AR: 1 + 1 + 2 + 2}, at=[2, 0, 0, 2, 2, 0, 0, 3, 0, 0, 0, 3], windows_mismatched=0)
def t5_static_graph_two_buckets(rank: int, world: int) -> dict[str, Any]:
    return static_graph(rank, model=t.Units(2), buckets=True)
