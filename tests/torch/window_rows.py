"""Rows of CASES.md about partial windows: T22, T23."""

from __future__ import annotations

from typing import Any

import gradgate
import trainers as t
from rows import row
from torch import nn

AR, RS, AG = "all_reduce", "reduce_scatter", "all_gather"


# T22: six micro-steps in windows of four, each loss divided by four. T23: epochs shorter than a window.


def epochs(model: nn.Module, rank: int, *, size: int, n: int = 4, count: int = 1, **options: Any) -> dict[str, Any]:
    optimizer, found = t.sgd(model), []
    with gradgate.attach(model, optimizer, accumulate=n, **options) as sync, t.Watch(sync) as watch:
        for _ in range(count):
            found += t.drive(sync, watch, model, optimizer, t.data(rank, size), divide=n)
            with watch.place():
                partial = sync.flush(divisor=n)
            if partial:
                found.append(t.gradients(model))
                t.finish(optimizer, model)
    return watch.seen(gradients=[t.one(b) for b in found])


@row(
    gradients=[13.75, 30.25],
    gradient={AR: 2},
    ours={AR: 2},
    at=[0, 0, 0, 2, 2, 0, 2],
    windows_full=1,
    windows_partial=1,
    windows_late=1,
    late=1,
    steps=2,
)
def t22_ddp(rank: int, world: int) -> dict[str, Any]:
    return epochs(t.ddp(), rank, size=6)


@row(gradients=[13.75, 30.25], gradient={AR: 1 + 2}, at=[0, 0, 0, 2, 2, 0, 3])
def t22_ddp_two_buckets(rank: int, world: int) -> dict[str, Any]:
    return epochs(t.ddp(t.Units(2), buckets=True), rank, size=6)


@row(gradients=[13.75, 30.25], gradient={AR: 2})
def t22_ddp_bucket_views(rank: int, world: int) -> dict[str, Any]:
    return epochs(t.ddp(t.Units(2), gradient_as_bucket_view=True), rank, size=6)


@row(gradients=[13.75, 30.25], gradient={AR: 2}, at=[0, 0, 0, 3, 0, 0, 3])
def t22_unwrapped(rank: int, world: int) -> dict[str, Any]:
    return epochs(t.Units(2), rank, size=6)


@row(gradients=[13.75, 30.25], gradient={RS: 4}, windows_late=1)
def t22_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return epochs(t.fsdp(t.Units(2)), rank, size=6, mode="window")


@row(gradients=[13.75, 30.25], gradient={RS: 4}, windows_late=1)
def t22_fsdp2_parameters_stay(rank: int, world: int) -> dict[str, Any]:
    return epochs(t.fsdp(t.Units(2)), rank, size=6, mode="window", keep_params=True)


@row(gradients=[13.75, 30.25], gradient={RS: 12})
def t22_fsdp2_reducing_each(rank: int, world: int) -> dict[str, Any]:
    return epochs(t.fsdp(t.Units(2)), rank, size=6, mode="every_micro_step")


@row(world=4, gradients=[13.75, 30.25], windows_late=1)
def t22_hsdp(rank: int, world: int) -> dict[str, Any]:
    return epochs(t.fsdp(t.Units(2), (2, 2)), rank // 2, size=6, mode="window_replica")


@row(world=4, gradients=[13.75, 30.25], gradient={RS: 4, AR: 4}, windows_late=1)
def t22_hsdp_all_deferred(rank: int, world: int) -> dict[str, Any]:
    return epochs(t.fsdp(t.Units(2), (2, 2)), rank // 2, size=6, mode="window")


def looked_ahead(model: nn.Module, rank: int, *, size: int, n: int = 4, count: int = 1, **options: Any) -> dict[str, Any]:
    optimizer, found = t.sgd(model), []
    with gradgate.attach(model, optimizer, accumulate=n, **options) as sync, t.Watch(sync) as watch:
        for _ in range(count):
            for micro in sync.micro_batches(t.data(rank, size)):
                with watch.place(), micro:
                    (model(micro.data) * micro.scale).backward()
                if micro.boundary:
                    found.append(t.gradients(model))
                    t.finish(optimizer, model)
    return watch.seen(gradients=[t.one(b) for b in found])


@row(gradients=[13.75, 30.25], gradient={AR: 2}, at=[0, 0, 0, 2, 2, 2], windows_partial=1, windows_late=0, late=0, steps=2)
def t22_looked_ahead_ddp(rank: int, world: int) -> dict[str, Any]:
    return looked_ahead(t.ddp(), rank, size=6)


@row(gradients=[13.75, 30.25], gradient={RS: 4}, windows_late=0)
def t22_looked_ahead_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return looked_ahead(t.fsdp(t.Units(2)), rank, size=6, mode="window")


@row(gradients=[11.0] * 3, gradient={AR: 3}, at=[0, 0, 0, 2, 2, 0, 0, 2, 0, 0, 0, 2], steps=3, windows_partial=3)
def t23_epochs_of_three(rank: int, world: int) -> dict[str, Any]:
    return epochs(t.ddp(), rank, size=3, count=3)


@row(gradients=[11.0] * 2, gradient={AR: 2}, at=[0, 0, 2, 2, 0, 2], windows_late=0)
def t23_epochs_of_three_looked_ahead(rank: int, world: int) -> dict[str, Any]:
    return looked_ahead(t.ddp(), rank, size=3, count=2)


@row(gradients=[11.0] * 2, gradient={RS: 4}, steps=2)
def t23_epochs_of_three_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return epochs(t.fsdp(t.Units(2)), rank, size=3, count=2, mode="window")
