"""Rows of CASES.md about partial windows, partial sums, and ranks that disagree. Observed windows are tested elsewhere."""

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

AR, RS = "all_reduce", "reduce_scatter"

# T18: shard 1 x replicate 2, the optimizer steps after two of three micro-steps.


@row(gradients=[16.5, 16.5], weights=-33.0, gradient={AR: 2}, windows=2, windows_late=1, late=1, windows_mismatched=0)
def t18_step_inside_a_deferred_window(rank: int, world: int) -> dict[str, Any]:
    model = t.fsdp(shape=(2, 1))
    return step_after_two(model, rank, mode="window_replica")


@row(gradients=[16.5, 16.5], weights=-33.0, windows=2, windows_late=1, late=1)
def t18_step_inside_a_deferred_window_ddp(rank: int, world: int) -> dict[str, Any]:
    return step_after_two(t.ddp(), rank)


@row(world=4, gradients=[16.5, 16.5], weights=-33.0, windows=2, windows_late=1)
def t18_step_inside_a_deferred_window_hsdp(rank: int, world: int) -> dict[str, Any]:
    return step_after_two(t.fsdp(t.Units(2), (2, 2)), rank // 2, mode="window_replica")


@row(world=4, gradients=[16.5, 16.5], weights=-33.0, windows=2, windows_late=1)
def t18_step_inside_a_deferred_window_hsdp_all_deferred(rank: int, world: int) -> dict[str, Any]:
    return step_after_two(t.fsdp(t.Units(2), (2, 2)), rank // 2, mode="window")


def step_after_two(model: nn.Module, rank: int, **options: Any) -> dict[str, Any]:
    optimizer, found = t.sgd(model, lr=1.0), []
    optimizer.register_step_post_hook(lambda *_: found.append(t.one(t.gradients(model))))
    with gradgate.attach(model, optimizer, accumulate=3, **options) as sync, t.Watch(sync) as watch:
        for c, last in zip(t.data(rank, 3), (None, None, True), strict=True):
            with sync.micro_step(last=last):
                model(c).backward()
            if c in (2.0, 3.0, 20.0, 30.0):
                optimizer.step()
                optimizer.zero_grad()
    return watch.seen(gradients=found, weights=t.one(t.weights(model)))


# T19: a group that the boundary micro-step does not use.


@row(gradients=[[33.0, 16.5], [33.0, 33.0]])
def t19_group_unused_at_the_boundary_one_shard(rank: int, world: int) -> dict[str, Any]:
    return unused_at_the_boundary(t.fsdp(t.Units(2), (2, 1)), rank, mode="window_replica")


@row(world=4, gradients=[[33.0, 16.5], [33.0, 33.0]])
def t19_group_unused_at_the_boundary_hsdp(rank: int, world: int) -> dict[str, Any]:
    return unused_at_the_boundary(t.fsdp(t.Units(2), (2, 2)), rank // 2, mode="window_replica")


@row(gradients=[[33.0, 16.5], [33.0, 33.0]])
def t19_group_unused_at_the_boundary_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return unused_at_the_boundary(t.fsdp(t.Units(2)), rank, mode="window")


@row(gradients=[[33.0, 16.5], [33.0, 33.0]])
def t19_parameter_unused_at_the_boundary_ddp(rank: int, world: int) -> dict[str, Any]:
    return unused_at_the_boundary(t.ddp(t.Units(2), find_unused_parameters=True), rank)


@row(gradients=[[33.0, 16.5], [33.0, 33.0]])
def t19_parameter_unused_at_the_boundary_unwrapped(rank: int, world: int) -> dict[str, Any]:
    return unused_at_the_boundary(t.Units(2), rank)


def unused_at_the_boundary(model: nn.Module, rank: int, **options: Any) -> dict[str, Any]:
    """c = 1, 2, 3 / 10, 20, 30 twice; the second unit is left out of the first window's last micro-step."""
    optimizer = t.sgd(model)
    with gradgate.attach(model, optimizer, accumulate=3, **options) as sync, t.Watch(sync) as watch:
        found = t.drive(sync, watch, model, optimizer, t.data(rank, 3) * 2, forward=lambda i, c: model(c, (0,) if i == 2 else (0, 1)))
    return watch.seen(gradients=found)


# T20: nothing to defer in one dimension.


@row(gradients=[55.0], gradient={RS: 8}, profiler={RS: 8, "all_gather": 16, AR: 1}, told=Says("no_replica_dimension"), suppressed=0)
def t20_window_replica_on_one_dimension(rank: int, world: int) -> dict[str, Any]:
    model = t.fsdp(t.Units(2))
    optimizer = t.sgd(model)
    with gradgate.attach(model, optimizer, accumulate=4, mode="window_replica") as sync, t.Watch(sync) as watch:
        found = t.drive(sync, watch, model, optimizer, t.data(rank))
    return watch.seen(gradients=[t.one(b) for b in found])


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


# T26: the loss is a sum over tokens.


@row(gradients=[3.2], gradient={AR: 1}, ours={AR: 2}, at=[0, 3], items=Each(4, 6))
def t26_mean_over_tokens(rank: int, world: int) -> dict[str, Any]:
    return tokens(t.ddp(), rank)


@row(gradients=[3.2], gradient={RS: 1})
def t26_mean_over_tokens_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return tokens(t.fsdp(), rank, mode="window")


@row(gradients=[3.2], gradient={AR: 1})
def t26_mean_over_tokens_unwrapped(rank: int, world: int) -> dict[str, Any]:
    return tokens(t.Units(), rank)


def tokens(model: nn.Module, rank: int, **options: Any) -> dict[str, Any]:
    counts, sums = ((1, 3), (1.0, 9.0)) if rank == 0 else ((2, 4), (2.0, 20.0))
    optimizer = t.sgd(model)
    with gradgate.attach(model, optimizer, accumulate=2, **options) as sync, t.Watch(sync) as watch:
        found = t.drive(sync, watch, model, optimizer, sums, items=lambda i: counts[i])
    return watch.seen(gradients=[t.one(b) for b in found])


@row(gradients=[math.fsum([1, 9, 2, 20, 2, 20]) / (1 + 3 + 2 + 4 + 2 + 4)], windows_partial=1)
def t26_partial_window_of_unequal_ranks(rank: int, world: int) -> dict[str, Any]:
    """Rank 1 brings two more; items need no divisor."""
    model = t.ddp()
    optimizer = t.sgd(model)
    batches = [(1.0, 1), (9.0, 3)] if rank == 0 else [(2.0, 2), (20.0, 4), (2.0, 2), (20.0, 4)]
    with gradgate.attach(model, optimizer, accumulate=8, windows="variable") as sync, t.Watch(sync) as watch:
        for loss, items in batches:
            with sync.micro_step(items=items):
                model(loss).backward()
        assert sync.flush()
        found = t.gradients(model)
        t.finish(optimizer, model)
    return watch.seen(gradients=[t.one(found)])


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
    return watch.seen(gradients=found, skipped=skipped)


@row(gradients=[44.0, 55.0], skipped=[1, 0], gradient={AR: 2}, texts=Says("ranks [1]"))
def t29_agreed_skip(rank: int, world: int) -> dict[str, Any]:
    return skipping(rank, t.ddp(), lambda sync, wish: bool(sync.skip_if(wish)))


@row(gradients=[44.0, 55.0], skipped=[1, 0], gradient={RS: 2})
def t29_agreed_skip_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return skipping(rank, t.fsdp(), lambda sync, wish: bool(sync.skip_if(wish)), mode="window")


def skip_alone(sync: Any, wish: bool) -> bool:
    if wish:
        sync.skip()
    return wish


@row(gradients=[45.0, 55.0], skipped=[1, 0], gradient={AR: 2})
def t29_skip_of_one_rank(rank: int, world: int) -> dict[str, Any]:
    return skipping(rank, t.ddp(), skip_alone)


@row(gradients=[33.0, 55.0], gradient={AR: 2}, at=[0, 0, 0, 3, 2, 0, 0, 2], late=Each(0, 1), told=["ranks_skipped"])
def t29_skip_of_one_rank_at_the_boundary(rank: int, world: int) -> dict[str, Any]:
    """(10 + 56) / 2, and an all-gather that names rank 1. Its c are 10, 20, 26 and a fourth that it skips; it reduces late, the other one in time."""
    model = t.ddp()
    optimizer, found = t.sgd(model), []
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        for i, c in enumerate((1.0, 2.0, 3.0, 4.0) * 2 if rank == 0 else (10.0, 20.0, 26.0, 0.0, 10.0, 20.0, 30.0, 40.0)):
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
    with gradgate.attach(model, optimizer, accumulate=4, **options) as sync, t.Watch(sync) as watch, rows.refused(gradgate.Disagreement) as refusal:
        found = t.drive(sync, watch, model, optimizer, t.data(rank, 3 + rank))
        if not found and sync.flush():
            found.append(t.gradients(model))
            t.finish(optimizer, model)
    if refusal[0]:
        return {"refusal": refusal[0]}
    return watch.seen(gradients=[t.one(b) for b in found])


@row(gradients=[53.0], gradient={AR: 1}, told=["ranks_disagree"], texts=Says("ranks [1] have 4", "ranks [0] have 3"), late=Each(1, 0), windows_disagreed=1)
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
    for name, model, options in (
        ("ddp", t.ddp(Normed()), {"windows": "variable"}),
        ("fsdp2", t.fsdp(), {"windows": "variable"}),
        ("zeros", t.fsdp(), {"uneven": "zeros"}),
    ):
        with rows.refused(ValueError) as refusal, gradgate.attach(model, t.sgd(model), accumulate=4, **options) as sync:
            list(sync.micro_batches([]))
        refusals[name] = refusal[0]
    return refusals


test_row = rows.tests(__file__, __name__)
