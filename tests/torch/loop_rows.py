"""Loops of other shapes: closures, the script's own no_sync, groups of some ranks, closing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradgate
import torch
import torch.distributed as dist
import trainers as t
from rows import Near, row
from torch import nn

AR, RS, AG = "all_reduce", "reduce_scatter", "all_gather"


# Optimizers that call the loop.


def with_closure(rank: int, make: Callable[[Any], torch.optim.Optimizer], steps: int, count: int = 4, **options: Any) -> dict[str, Any]:
    """The closure runs a window, or a part of it: it is reduced when the closure is over, whatever it has run."""
    model = t.ddp()
    optimizer, found = make(model.parameters()), []

    with gradgate.attach(model, optimizer, accumulate=4, **options) as sync, t.Watch(sync) as watch:

        def closure() -> float:
            optimizer.zero_grad()
            for c in t.data(rank, count):
                with sync.micro_step():
                    loss = model(c) + 0.5 * sum(p.square().sum() for p in model.parameters())
                    loss.backward()
                    sync.mean(loss=loss)
            return sync.means.get("loss", 0.0)  # every rank's: one that went by its own loss would search another line

        for _ in range(steps):
            optimizer.step(closure)
            found.append(t.one(t.gradients(model)))
    return watch.seen(gradients=found, weights=t.one(t.weights(model)))


@row(
    gradients=[55.0, 55.0 - 4 * 5.5],
    weights=Near(-5.5 - 0.1 * (55 - 22)),
    gradient={AR: 2},
    windows_full=2,
    windows_late=0,
    steps=2,
    told=[],
)
def closure_of_a_whole_window(rank: int, world: int) -> dict[str, Any]:
    return with_closure(rank, lambda params: torch.optim.SGD(params, lr=0.1), 2)


@row(gradients=[16.5, 16.5 - 2 * 4.125], gradient={AR: 2}, windows_partial=2, windows_late=2, steps=2)
def closure_of_half_a_window(rank: int, world: int) -> dict[str, Any]:
    return with_closure(rank, lambda params: torch.optim.SGD(params, lr=0.25), 2, count=2)


@row(weights=Near(-55.0 / 4), windows_mismatched=0, windows_late=0, told=[])
def lbfgs_calls_the_closure_many_times(rank: int, world: int) -> dict[str, Any]:
    """The loss 55 w + 4 w^2 / 2 of each weight is least at w = -55 / 4."""
    return with_closure(rank, lambda params: torch.optim.LBFGS(params, max_iter=10, line_search_fn="strong_wolfe"), 3)


@row(stepped=[False, False, False, True], weights=-55.0)
def guarded_step_with_a_closure(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp()
    optimizer = t.sgd(model, lr=1.0)
    with gradgate.attach(model, optimizer, accumulate=4) as sync:
        stepped = []
        for c in t.data(rank):
            with sync.micro_step():
                model(c).backward()
            stepped.append(sync.step(closure=lambda: 0.0))
    return {"stepped": stepped, "weights": t.one(t.weights(model))}


# One optimizer for two models; the wrapper's own no_sync; closing.


@row(gradients=[55.0], gradient={AR: 1}, told=[])
def the_scripts_own_no_sync_around_the_backward(rank: int, world: int) -> dict[str, Any]:
    """T2's loop with gradgate around it: what the script suppresses is what gradgate would."""
    model = t.ddp()
    optimizer, found = t.sgd(model), []
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        for i, c in enumerate(t.data(rank)):
            with sync.micro_step():
                loss = model(c)
                if i < 3:
                    with model.no_sync():
                        loss.backward()
                else:
                    loss.backward()
        found.append(t.one(t.gradients(model)))
        optimizer.step()
    return watch.seen(gradients=found)


@row(gradients=[55.0], late=1, windows_late=1)
def the_scripts_own_no_sync_over_the_boundary(rank: int, world: int) -> dict[str, Any]:
    """A flag one micro-step off: the boundary did not reduce, so the window is reduced late."""
    model = t.ddp()
    optimizer, found = t.sgd(model), []
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        for c in t.data(rank):
            with sync.micro_step(), model.no_sync():
                model(c).backward()
        found.append(t.one(t.gradients(model)))
        optimizer.step()
    return watch.seen(gradients=found)


@row(after={AR: 4}, flag=True, patched=False)
def closed_attachment_leaves_no_trace(rank: int, world: int) -> dict[str, Any]:
    import counting

    model = t.ddp()
    optimizer, original = t.sgd(model), nn.utils.clip_grad_norm_
    sync = gradgate.attach(model, optimizer, accumulate=4)
    for c in t.data(rank):
        with sync.micro_step():
            model(c).backward()
    sync.step()
    sync.close()
    sync.close()
    model(0.0)  # rebuilds the buckets
    with counting.profiled() as counts:
        for c in t.data(rank):
            model(c).backward()
        optimizer.step()
    return {"after": dict(counts), "flag": model.require_backward_grad_sync, "patched": nn.utils.clip_grad_norm_ is not original}


@row(world=4, gradients=[55.0] * 2, counted=2, group_size=2, told=[])
def group_of_some_ranks(rank: int, world: int) -> dict[str, Any]:
    """Two jobs of two ranks each in one world."""
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    group = groups[rank // 2]
    model = t.ddp(process_group=group)
    optimizer = t.sgd(model)
    with gradgate.attach(model, optimizer, accumulate=4, group=group) as sync, t.Watch(sync) as watch:
        found = t.drive(sync, watch, model, optimizer, t.data(rank) * 2)
    seen = watch.seen(gradients=[t.one(b) for b in found], group_size=dist.get_world_size(group))
    return seen | {"counted": seen["gradient"][AR]}


@row(world=4, groups_differ=True, reductions=[1, 1, 1])
def group_whose_ranks_are_in_other_groups_too(rank: int, world: int) -> dict[str, Any]:
    """One of them is in more groups than the other; and attached again, where the first attachment's group is gone."""
    group = dist.new_group([rank // 2 * 2, rank // 2 * 2 + 1], use_local_synchronization=True)
    more = dist.new_group([rank], use_local_synchronization=True) if rank % 2 == 0 else None
    model = t.ddp(process_group=group)
    optimizer = t.sgd(model)
    reductions = []
    for _ in range(3):
        with gradgate.attach(model, optimizer, accumulate=2, group=group, handshake_deadline_s=20, deadline_s=20) as sync:
            for c in t.data(rank)[:2]:
                with sync.micro_step():
                    model(c).backward()
            optimizer.step()
        reductions.append(sync.stats()["reductions"])
    return {"groups_differ": (more is None) == (rank % 2 == 1), "reductions": reductions}
