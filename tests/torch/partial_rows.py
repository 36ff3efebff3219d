"""Rows of CASES.md about partial sums, unused parts of a model and items: T18 to T20, T26."""

from __future__ import annotations

import math
from typing import Any

import gradgate
import trainers as t
from rows import Each, Says, row
from torch import nn

AR, RS, AG = "all_reduce", "reduce_scatter", "all_gather"


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
