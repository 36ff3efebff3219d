"""Rows of CASES.md about ranks that disagree: T29, T30, T32, T35 (on FSDP2: refusal_rows)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gradgate
import rows
import torch
import trainers as t
from rows import Each, Says, row
from torch import nn

AR, RS, AG = "all_reduce", "reduce_scatter", "all_gather"


# T29: one rank has nothing to bring to a micro-step.


def skipping(rank: int, model: nn.Module, vote: Callable[[Any, bool], bool], **options: Any) -> dict[str, Any]:
    optimizer, found, skipped = t.sgd(model), [], []
    with gradgate.attach(model, optimizer, accumulate=4, **options) as sync, t.Watch(sync) as watch:
        for i, c in enumerate(t.data(rank) * 2):
            with watch.place(), sync.micro_step():
                if not vote(sync, rank == 1 and i == 1):
                    model(c).backward()
            if sync.boundary:
                found.append(t.one(t.gradients(model)))
                skipped.append(sync.skipped)
                t.finish(optimizer, model)
    return watch.seen(gradients=found, skipped=skipped, counted=sync.stats()["micro_steps_skipped"])


@row(gradients=[44.0, 55.0], skipped=[1, 0], counted=1, gradient={AR: 2}, texts=Says("ranks [1]"))
def t29_agreed_skip(rank: int, world: int) -> dict[str, Any]:
    return skipping(rank, t.ddp(), lambda sync, wish: bool(sync.skip_if(wish)))


@row(gradients=[44.0, 55.0], skipped=[1, 0], counted=1, gradient={RS: 2})
def t29_agreed_skip_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return skipping(rank, t.fsdp(), lambda sync, wish: bool(sync.skip_if(wish)), mode="window")


def skip_alone(sync: Any, wish: bool) -> bool:
    if wish:
        sync.skip()
    return wish


@row(gradients=[45.0, 55.0], skipped=[1, 0], counted=Each(0, 1), gradient={AR: 2})
def t29_skip_of_one_rank(rank: int, world: int) -> dict[str, Any]:
    return skipping(rank, t.ddp(), skip_alone)


@row(gradients=[33.0, 55.0], gradient={AR: 2}, at=[0, 0, 0, 3, 2, 0, 0, 2], late=Each(0, 1), told=["ranks_skipped"])
def t29_skip_of_one_rank_at_the_boundary(rank: int, world: int) -> dict[str, Any]:
    """(10 + 56) / 2, and an all-gather that names rank 1. Its c are 10, 20, 26 and a skipped one; it alone is late."""
    model = t.ddp()
    optimizer, found = t.sgd(model), []
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        for c in (1.0, 2.0, 3.0, 4.0, *t.data(0)) if rank == 0 else (10.0, 20.0, 26.0, 0.0, *t.data(1)):
            with watch.place(), sync.micro_step():
                if c:
                    model(c).backward()
                else:
                    sync.skip()
            if sync.boundary:
                found.append(t.one(t.gradients(model)))
                t.finish(optimizer, model)
    return watch.seen(gradients=found)


# T30: a NaN on one rank.


def poisoned(rank: int, model: nn.Module, at: int, *, backward: bool = True, **options: Any) -> dict[str, Any]:
    optimizer, found, discarded = t.sgd(model), [], []
    with gradgate.attach(model, optimizer, accumulate=4, **options) as sync, t.Watch(sync) as watch:
        for i, c in enumerate(t.data(rank) * 2):
            bad = rank == 1 and i == at
            with sync.micro_step():
                loss = model(math.nan if bad else c)
                if loss.isnan():
                    sync.discard()
                if backward or not bad:
                    loss.backward()
            if i == 3:
                discarded = [sync.boundary, sync.discarded, t.gradients(model)]
            if sync.boundary:
                found.append(t.one(t.gradients(model)))
                t.finish(optimizer, model)
    return watch.seen(gradients=found, discarded=discarded)


@row(gradients=[55.0], discarded=[False, True, [None]], steps=1, texts=Says("discard: ranks [1]"))
def t30_window_of_a_nan_is_thrown_away(rank: int, world: int) -> dict[str, Any]:
    return poisoned(rank, t.ddp(), 1)


@row(gradients=[55.0], discarded=[False, True, [None]], steps=1)
def t30_nan_in_the_boundary_micro_step(rank: int, world: int) -> dict[str, Any]:
    return poisoned(rank, t.ddp(), 3)


@row(gradients=[55.0], discarded=[False, True, [None]], steps=1)
def t30_nan_in_the_boundary_micro_step_without_backward(rank: int, world: int) -> dict[str, Any]:
    return poisoned(rank, t.ddp(), 3, backward=False)


@row(gradients=[55.0], discarded=[False, True, [None, None]], steps=1)
def t30_window_of_a_nan_is_thrown_away_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return poisoned(rank, t.fsdp(t.Units(2)), 1, mode="window")


@row(gradients=[55.0], discarded=[False, True, [None, None]], steps=1)
def t30_window_of_a_nan_is_thrown_away_unwrapped(rank: int, world: int) -> dict[str, Any]:
    return poisoned(rank, t.Units(2), 1)


# T32: a window that one rank alone has.


def uneven(rank: int, model: nn.Module, **options: Any) -> dict[str, Any]:
    optimizer, found = t.sgd(model), []
    with gradgate.attach(model, optimizer, accumulate=2, windows="variable", **options) as sync, t.Watch(sync) as watch:
        found += t.drive(sync, watch, model, optimizer, t.data(rank, 4 if rank == 0 else 6))
        while sync.flush():
            found.append(t.gradients(model))
            t.finish(optimizer, model)
    return watch.seen(gradients=[t.one(b) for b in found])


@row(gradients=[16.5, 38.5, 55.0], gradient={AR: 3}, windows_empty=Each(1, 0), windows=3, told=[])
def t32_divided_by_all(rank: int, world: int) -> dict[str, Any]:
    return uneven(rank, t.ddp())


@row(gradients=[16.5, 38.5, 110.0], gradient={AR: 3})
def t32_divided_by_those_with_data(rank: int, world: int) -> dict[str, Any]:
    return uneven(rank, t.ddp(), divide="active")


@row(gradients=[16.5, 38.5, 55.0], gradient={AR: 1 + 3 + 3})
def t32_three_buckets(rank: int, world: int) -> dict[str, Any]:
    return uneven(rank, t.ddp(t.Units(3), buckets=True))


@row(gradients=[16.5, 38.5, 110.0], gradient={AR: 3})
def t32_unwrapped(rank: int, world: int) -> dict[str, Any]:
    return uneven(rank, t.Units(), divide="active")


def uneven_looked_ahead(rank: int, how: str, **options: Any) -> dict[str, Any]:
    model = t.ddp()
    optimizer, found, without = t.sgd(model), [], 0
    with gradgate.attach(model, optimizer, accumulate=2, uneven=how, **options) as sync, t.Watch(sync) as watch:
        for micro in sync.micro_batches(t.data(rank, 4 if rank == 0 else 7)):
            with micro:
                if micro.data is None:
                    without += 1
                else:
                    model(micro.data).backward()
            if micro.boundary:
                found.append(t.one(t.gradients(model)))
                t.finish(optimizer, model)
    return watch.seen(gradients=found, without=without)


@row(gradients=[16.5, 38.5], without=0, gradient={AR: 2})
def t32_looked_ahead_stops(rank: int, world: int) -> dict[str, Any]:
    return uneven_looked_ahead(rank, "stop")


@row(gradients=[16.5, 38.5, 55.0, 35.0], without=Each(2, 0), gradient={AR: 4})
def t32_looked_ahead_with_zeros(rank: int, world: int) -> dict[str, Any]:
    return uneven_looked_ahead(rank, "zeros")


@row(gradients=[16.5, 38.5, 110.0, 70.0], without=Each(2, 0))
def t32_looked_ahead_with_zeros_divided_by_those_with_data(rank: int, world: int) -> dict[str, Any]:
    return uneven_looked_ahead(rank, "zeros", divide="active")


# T35: three micro-batches on one rank, four on the other.


def three_and_four(rank: int, model: nn.Module, **options: Any) -> dict[str, Any]:
    optimizer = t.sgd(model)
    with (
        gradgate.attach(model, optimizer, accumulate=4, **options) as sync,
        t.Watch(sync) as watch,
        rows.refused(gradgate.Disagreement) as refusal,
    ):
        found = t.drive(sync, watch, model, optimizer, t.data(rank, 3 + rank))
        if not found and sync.flush():
            found.append(t.gradients(model))
            t.finish(optimizer, model)
    if refusal[0]:
        return {"refusal": refusal[0]}
    return watch.seen(gradients=[t.one(b) for b in found])


@row(
    gradients=[53.0],
    gradient={AR: 1},
    told=["ranks_disagree"],
    texts=Says("ranks [1] have 4", "ranks [0] have 3"),
    late=Each(1, 0),
    windows_disagreed=1,
)
def t35_equal_windows_are_told(rank: int, world: int) -> dict[str, Any]:
    return three_and_four(rank, t.ddp())


@row(refusal=Says("Disagreement", "ranks [1] have 4", "ranks [0] have 3"))
def t35_equal_windows_strict(rank: int, world: int) -> dict[str, Any]:
    return three_and_four(rank, t.ddp(), strict=True)


@row(gradients=[53.0], gradient={AR: 1}, told=[], late=Each(1, 0), windows_disagreed=0)
def t35_variable_windows(rank: int, world: int) -> dict[str, Any]:
    return three_and_four(rank, t.ddp(), windows="variable")


@row(gradients=[53.0], gradient={AR: 1}, told=[])
def t35_variable_windows_unwrapped(rank: int, world: int) -> dict[str, Any]:
    return three_and_four(rank, t.Units(), windows="variable")


@row(world=4, gradients=[(6 + 100 + 6 + 100) / 4], told=[])
def t35_variable_windows_four_ranks(rank: int, world: int) -> dict[str, Any]:
    return three_and_four(rank % 2, t.ddp(t.Units(3)), windows="variable")


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.units, self.norm = t.Units(), nn.BatchNorm1d(2, affine=False)

    def forward(self, c: float) -> torch.Tensor:
        return torch.as_tensor(self.units(c))


@row(
    ddp=Says("ValueError", "buffers"),
    fsdp2=Says("ValueError", "windows='equal'"),
    zeros=Says("ValueError"),
)
def t35_variable_windows_where_they_cannot_be(rank: int, world: int) -> dict[str, Any]:
    refusals = {}
    cases: list[tuple[str, Any, dict[str, Any]]] = [
        ("ddp", t.ddp(Normed()), {"windows": "variable"}),
        ("fsdp2", t.fsdp(), {"windows": "variable"}),
        ("zeros", t.fsdp(), {"uneven": "zeros"}),
    ]
    for name, model, options in cases:
        with rows.refused(ValueError) as refusal, gradgate.attach(model, t.sgd(model), accumulate=4, **options) as sync:
            list(sync.micro_batches([]))
        refusals[name] = refusal[0]
    return refusals
