"""The kinds behind rows of CASES.md, on wrappers and in places that no row names: what a fix of the row alone would miss."""

from __future__ import annotations

import math
from typing import Any

import gradgate
import rows
import torch
import torch.distributed as dist
import trainers as t
from rows import Each, Says, row
from torch import nn
from window_rows import epochs, looked_ahead

AR, RS = "all_reduce", "reduce_scatter"


def fsdp1(model: nn.Module | None = None) -> Any:
    from torch.distributed.fsdp import FullyShardedDataParallel

    t.KEPT.append(FullyShardedDataParallel(model or t.Units(2), device_id=torch.device("cpu")))
    return t.KEPT[-1]


def replicated(over_fsdp: bool) -> Any:
    model: Any = t.Units(2)
    if over_fsdp:
        from torch.distributed._composable.replicate_with_fsdp import replicate as over

        for unit in model.units:
            over(unit, mesh=t.mesh(dist.get_world_size()))
        over(model, mesh=t.mesh(dist.get_world_size()))
    else:
        from torch.distributed._composable.replicate import replicate as older

        older(model)
    t.KEPT.append(model)
    return model


# T22's kind: partial windows on every wrapper.

PARTIAL: dict[str, Any] = {"gradients": [13.75, 30.25], "windows_full": 1, "windows_partial": 1, "windows_mismatched": 0}


@row(**PARTIAL, windows_late=1)
def partial_fsdp1(rank: int, world: int) -> dict[str, Any]:
    return epochs(fsdp1(), rank, size=6, mode="window")


@row(**PARTIAL, windows_late=1, gradient={AR: 2})
def partial_replicate(rank: int, world: int) -> dict[str, Any]:
    return epochs(replicated(over_fsdp=False), rank, size=6)


@row(**PARTIAL, windows_late=1, gradient={AR: 4})
def partial_replicate_on_fsdp(rank: int, world: int) -> dict[str, Any]:
    return epochs(replicated(over_fsdp=True), rank, size=6)


@row(**PARTIAL, windows_late=1, gradient={AR: 1 + 1 + 1})
def partial_static_graph(rank: int, world: int) -> dict[str, Any]:
    return epochs(t.ddp(static_graph=True), rank, size=6)


@row(**PARTIAL, windows_late=1, gradient={AR: 2 + 2}, profiler={AR: 2 * (2 + 1 + 1)})
def partial_find_unused(rank: int, world: int) -> dict[str, Any]:
    return epochs(t.ddp(t.Units(2), find_unused_parameters=True, buckets=True), rank, size=6)


@row(**PARTIAL, windows_late=1)
def partial_beside_a_stray(rank: int, world: int) -> dict[str, Any]:
    from wrapper_rows import Head

    return epochs(Head(t.fsdp()), rank, size=6, mode="window")


@row(gradients=[33.0], windows_partial=1, windows_late=1, gradient={AR: 1})
def partial_before_any_reduction(rank: int, world: int) -> dict[str, Any]:
    """The first thing that this DDP ever reduces, it reduces late; the divisor doubles it, as half of the window is there."""
    model = t.ddp()
    optimizer = t.sgd(model)
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        for c in t.data(rank, 2):
            with sync.micro_step():
                model(c).backward()
        assert sync.flush(divisor=4)
        found = t.gradients(model)
        t.finish(optimizer, model)
    return watch.seen(gradients=[t.one(found)])


@row(world=4, **PARTIAL, windows_late=0)
def partial_looked_ahead_hsdp(rank: int, world: int) -> dict[str, Any]:
    return looked_ahead(t.fsdp(t.Units(2), (2, 2)), rank // 2, size=6, mode="window_replica")


@row(**PARTIAL, windows_late=0)
def partial_looked_ahead_fsdp1(rank: int, world: int) -> dict[str, Any]:
    return looked_ahead(fsdp1(), rank, size=6, mode="window")


@row(gradients=[5.5, 22.0, 5.5, 16.5], windows=4, suppressed=3, gradient={AR: 4})
def windows_of_many_sizes(rank: int, world: int) -> dict[str, Any]:
    """1, 2, 1 and 3 micro-steps, told by last=; their c are 1, 1 + 3, 1, 0.5 + 0.5 + 2, and ten times that."""
    model = t.ddp()
    optimizer = t.sgd(model)
    scaled = [c * 10**rank for c in (1.0, 1.0, 3.0, 1.0, 0.5, 0.5, 2.0)]
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        found = t.drive(sync, watch, model, optimizer, scaled, last=lambda i: i in (0, 2, 3, 6))
    return watch.seen(gradients=[t.one(b) for b in found])


# T26's kind: items on other wrappers, with ranks that have none, and with skipped micro-steps.


@row(world=4, gradients=[(1 + 9 + 1 + 9 + 2 + 20 + 2 + 20) / (4 + 4 + 6 + 6)])
def items_hsdp(rank: int, world: int) -> dict[str, Any]:
    from partial_rows import tokens

    return tokens(t.fsdp(shape=(2, 2)), rank // 2, mode="window_replica")


@row(gradients=[(1.0 + 9.0) / 4], items=Each(4, 0))
def items_on_one_rank_alone(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp()
    with gradgate.attach(model, t.sgd(model), accumulate=2) as sync, t.Watch(sync) as watch:
        for c, items in ((1.0, 1), (9.0, 3)):
            with sync.micro_step(items=0 if rank else items):
                (model(c) * (0.0 if rank else 1.0)).backward()
        found = t.gradients(model)
        sync.step()
    return watch.seen(gradients=[t.one(found)])


# T29's and T30's kinds.


@row(world=4, gradients=[44.0], skipped=1, texts=Says("[3]"))
def agreed_skip_hsdp(rank: int, world: int) -> dict[str, Any]:
    model = t.fsdp(t.Units(2), (2, 2))
    optimizer, found = t.sgd(model), []
    with gradgate.attach(model, optimizer, accumulate=4, mode="window_replica") as sync, t.Watch(sync) as watch:
        for i, c in enumerate(t.data(rank // 2)):
            with sync.micro_step():
                if not sync.skip_if(rank == 3 and i == 1):
                    model(c).backward()
        found.append(t.one(t.gradients(model)))
        skipped = sync.skipped
        sync.step()
    return watch.seen(gradients=found, skipped=skipped)


@row(gradients=[16.5, 55.0], skipped=[4, 0])
def every_micro_step_skipped_by_one_rank(rank: int, world: int) -> dict[str, Any]:
    """(33 + 0) / 2: the other rank's c are 3, 6, 9, 15."""
    model = t.ddp()
    optimizer, found, skipped = t.sgd(model), [], []
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        for i, c in enumerate([3.0, 6.0, 9.0, 15.0, *t.data(0)] if rank == 0 else [0.0] * 4 + t.data(1)):
            with sync.micro_step():
                if rank == 1 and i < 4:
                    sync.skip()
                else:
                    model(c).backward()
            if sync.boundary:
                found.append(t.one(t.gradients(model)))
                skipped.append(sync.skipped)
                t.finish(optimizer, model)
    return watch.seen(gradients=found, skipped=skipped)


@row(world=4, gradients=[55.0], discarded=[False, True, [None, None]], steps=1)
def nan_hsdp(rank: int, world: int) -> dict[str, Any]:
    from ranks_rows import poisoned

    return poisoned(rank // 2, t.fsdp(t.Units(2), (2, 2)), 2, mode="window_replica")


@row(gradients=[55.0], discarded=[False, True], steps=1)
def nan_fsdp1(rank: int, world: int) -> dict[str, Any]:
    from ranks_rows import poisoned

    seen = poisoned(rank, fsdp1(), 1, mode="window")
    return seen | {"discarded": seen["discarded"][:2]}


@row(gradients=[55.0], boundary=False, discarded=True)
def discarded_after_the_boundary(rank: int, world: int) -> dict[str, Any]:
    """All ranks look at the reduced gradients and throw them away."""
    model = t.ddp()
    optimizer, found = t.sgd(model), []
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        for i, c in enumerate(t.data(rank) * 2):
            with sync.micro_step():
                model(math.inf if i == 1 and rank == 1 else c).backward()
            if i == 3:
                assert not torch.isfinite(torch.tensor(t.gradients(model)[0] or 0.0))
                sync.discard()
                boundary, discarded = sync.boundary, sync.discarded
                optimizer.zero_grad()
            elif sync.boundary:
                found.append(t.one(t.gradients(model)))
                t.finish(optimizer, model)
    return watch.seen(gradients=found, boundary=boundary, discarded=discarded)


# T32's kind: zeros with several buckets, unwrapped, and a rank without any data at all.


def zeros(rank: int, model: Any, sizes: tuple[int, int]) -> dict[str, Any]:
    optimizer, found = t.sgd(model), []
    with gradgate.attach(model, optimizer, accumulate=2, uneven="zeros") as sync, t.Watch(sync) as watch:
        for micro in sync.micro_batches(t.data(rank, sizes[rank])):
            with micro:
                if micro.data is not None:
                    model(micro.data).backward()
            if micro.boundary:
                found.append(t.one(t.gradients(model)))
                t.finish(optimizer, model)
    return watch.seen(gradients=found)


@row(gradients=[16.5, 36.5, 55.0], windows_mismatched=0)
def zeros_three_buckets(rank: int, world: int) -> dict[str, Any]:
    """Rank 0 has 1, 2, 3 and rank 1 has 10 to 60."""
    return zeros(rank, t.ddp(t.Units(3), buckets=True), (3, 6))


@row(gradients=[16.5, 36.5, 55.0], windows_mismatched=0)
def zeros_unwrapped(rank: int, world: int) -> dict[str, Any]:
    return zeros(rank, t.Units(3), (3, 6))


@row(gradients=[15.0, 35.0], windows_mismatched=0)
def zeros_without_any_data(rank: int, world: int) -> dict[str, Any]:
    return zeros(rank, t.ddp(), (0, 4))


# T38's and N13's kind: every reader of gradients, inside a window.


@row(refused=Says("Refused", "clip_grad_value_", "Refused", "clip_grad_norm_"), values=[3.0, 5.5])
def clipping_of_every_kind_inside_a_window(rank: int, world: int) -> dict[str, Any]:
    refused, found = [], []
    for clip in (lambda p: nn.utils.clip_grad_value_(p, 3.0), lambda p: nn.utils.clip_grad_norm_(list(p), 1e9)):
        model = t.ddp()
        with gradgate.attach(model, t.sgd(model), accumulate=4) as sync:
            with sync.micro_step():
                model(float(10**rank)).backward()
            clip(model.parameters())
            found.append(t.one(t.gradients(model)))
            with rows.refused(gradgate.Refused) as refusal, sync.micro_step():
                pass
            refused.append(refusal[0])
    return {"refused": refused, "values": found}


@row(weights=[-16.5, -55.0], gradient={AR: 2}, windows_late=1)
def stepping_early_and_going_on(rank: int, world: int) -> dict[str, Any]:
    """The optimizer steps after two of four; the next two are a window of their own, closed by the script's flush."""
    model = t.ddp()
    optimizer, found = t.sgd(model, lr=1.0), []
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        for i, c in enumerate(t.data(rank)):
            with sync.micro_step(last=True if i == 3 else None):
                model(c).backward()
            if i in (1, 3):
                t.finish(optimizer, model)
                found.append(t.one(t.weights(model)))
    return watch.seen(weights=found)
