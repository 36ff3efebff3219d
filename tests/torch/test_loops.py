"""Loops of other shapes, options, and what a loop asks for wrongly: answered in words that name the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradgate
import rows
import torch
import torch.distributed as dist
import trainers as t
from rows import Each, Near, Says, row
from torch import nn

AR, RS = "all_reduce", "reduce_scatter"

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


@row(gradients=[55.0, 55.0 - 4 * 5.5], weights=Near(-5.5 - 0.1 * (55 - 22)), gradient={AR: 2}, windows_full=2, windows_late=0, steps=2, told=[])
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


# Calls at the wrong place.


@row(
    step=Says("Refused", "optimizer.step", "inside a micro-step"),
    clip=Says("Refused", "clip_grad_norm_", "inside a micro-step"),
    unscale=Says("Refused", "unscale_", "inside a micro-step"),
    skip=Says("Refused", "sync.skip() outside a micro-step"),
    skip_if=Says("Refused", "sync.skip_if() outside a micro-step"),
    no_optimizer=Says("ValueError", "needs the optimizer"),
    gradients=[55.0],
)
def refused_at_the_wrong_place(rank: int, world: int) -> dict[str, Any]:
    """Each is refused by name and the window goes on."""
    model = t.ddp()
    optimizer, scaler, found = t.sgd(model), torch.amp.GradScaler("cpu", init_scale=1.0), {}
    inside: dict[str, Callable[[], object]] = {
        "step": optimizer.step,
        "clip": lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0),
        "unscale": lambda: scaler.unscale_(optimizer),
    }
    with gradgate.attach(model, optimizer, accumulate=4) as sync:
        for name, call in (("skip", sync.skip), ("skip_if", lambda: sync.skip_if(True))):
            with rows.refused(gradgate.Refused) as refusal:
                call()
            found[name] = refusal[0]
        for i, c in enumerate(t.data(rank)):
            with sync.micro_step():
                scaler.scale(model(c)).backward()
                for name, call in inside.items() if i in (1, 3) else ():
                    with rows.refused(gradgate.Refused) as refusal:
                        call()
                    found[name] = refusal[0]
        gradients = [t.one(t.gradients(model))]
    with gradgate.attach(model, accumulate=1) as sync:
        with sync.micro_step():
            model(1.0).backward()
        with rows.refused(ValueError) as refusal:
            sync.step()
    return {**found, "no_optimizer": refusal[0], "gradients": gradients}


@row(
    accumulate=Says("ValueError", "accumulate=0"),
    kind=Says("TypeError", "accumulate='often'"),
    mode=Says("ValueError", "mode='sometimes'", "window_replica"),
    bucket=Says("ValueError", "bucket_mb=-1", "positive"),
    nothing=Says("ValueError", "bucket_mb=0", "positive"),
    wire=Says("ValueError", "wire='int8'", "bf16"),
    model=Says("TypeError", "model=3"),
    frozen=Says("ValueError", "nothing to reduce"),
    items=Says("ValueError", "items=-1"),
    divisor=Says("ValueError", "divisor=0"),
    names=Says("ValueError", "17 names"),
)
def options_that_make_no_sense(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp()
    frozen = nn.Linear(2, 2).requires_grad_(False)
    given: dict[str, tuple[Any, dict[str, Any]]] = {
        "accumulate": (model, {"accumulate": 0}),
        "kind": (model, {"accumulate": "often"}),
        "mode": (model, {"mode": "sometimes"}),
        "bucket": (model, {"bucket_mb": -1}),
        "nothing": (model, {"bucket_mb": 0}),
        "wire": (model, {"wire": "int8"}),
        "model": (3, {}),
        "frozen": (frozen, {}),
    }
    found = {}
    for name, (what, options) in given.items():
        with rows.refused(ValueError, TypeError) as refusal:
            gradgate.attach(what, None, **{"accumulate": 4, **options})
        found[name] = refusal[0]
    with gradgate.attach(model, t.sgd(model), accumulate=4) as sync:
        calls: dict[str, Callable[[], object]] = {
            "items": lambda: sync.micro_step(items=-1),
            "divisor": lambda: sync.flush(divisor=0),
            "names": lambda: sync.mean(**{f"n{i}": 1.0 for i in range(17)}),
        }
        for name, call in calls.items():
            with rows.refused(ValueError) as refusal:
                call()
            found[name] = refusal[0]
    return found


@row(refusal=Says("Refused", "flush(divisor=4)", "2 to 3"))
def divisor_that_ranks_cannot_share(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp()
    with gradgate.attach(model, t.sgd(model), accumulate=4, windows="variable") as sync:
        for c in t.data(rank, 2 + rank):
            with sync.micro_step():
                (model(c) / 4).backward()
        with rows.refused(gradgate.Refused) as refusal:
            sync.flush(divisor=4)
    return {"refusal": refusal[0]}


@row(refusal=Says("Refused", "no items on any rank"))
def window_without_items(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp()
    with gradgate.attach(model, t.sgd(model), accumulate=2) as sync, rows.refused(gradgate.Refused) as refusal:
        for c in t.data(rank, 2):
            with sync.micro_step(items=0):
                model(c).backward()
    return {"refusal": refusal[0]}


@row(means={"loss": 2.0, "accuracy": 0.5}, refusal=Says("Refused", "different names"))
def means_of_tensors_and_numbers(rank: int, world: int) -> dict[str, Any]:
    """A loss that one rank gives twice as often weighs twice; other names on other ranks are refused."""
    model = t.ddp()
    with gradgate.attach(model, t.sgd(model), accumulate=2) as sync:
        for i, c in enumerate(t.data(rank, 2)):
            with sync.micro_step():
                model(c).backward()
                sync.mean(accuracy=0.25 if rank else 0.75)
                if rank == 1 or i == 0:
                    sync.mean(loss=torch.tensor(4.0 if rank == 0 else 1.0, requires_grad=True))
        means = sync.means
        sync.step()
        with rows.refused(gradgate.Refused) as refusal:
            for c in t.data(rank, 2):
                with sync.micro_step():
                    model(c).backward()
                    sync.mean(**{f"of rank {rank}": 1.0})
    return {"means": means, "refusal": refusal[0]}


# Options that have an effect, and those that have none.


def with_options(rank: int, model: Any, windows: int = 2, **options: Any) -> dict[str, Any]:
    optimizer = t.sgd(model)
    with gradgate.attach(model, optimizer, accumulate=4, **options) as sync, t.Watch(sync) as watch:
        found = t.drive(sync, watch, model, optimizer, t.data(rank) * windows)
        size = sync.stats()["bytes"]
    return watch.seen(gradients=[t.one(b) for b in found], bytes=size)


@row(gradients=[55.0] * 2, bytes=2 * 2 * 1024 * 2)
def wire_of_half_the_bytes(rank: int, world: int) -> dict[str, Any]:
    return with_options(rank, t.ddp(t.Units(2, size=1024, dtype=torch.float32)), wire="bf16")


@row(gradients=[55.0] * 2, bytes=2 * 2 * 1024 * 2)
def wire_of_half_the_bytes_unwrapped(rank: int, world: int) -> dict[str, Any]:
    return with_options(rank, t.Units(2, size=1024, dtype=torch.float32), wire="fp16")


@row(gradients=[55.0] * 3, gradient={AR: 1 + 4 + 4})
def buckets_of_a_given_size(rank: int, world: int) -> dict[str, Any]:
    """Of 8 KiB each, the size of one of four parameters; the first reduction uses what DDP begins with."""
    return with_options(rank, t.ddp(t.Units(4, size=1024)), windows=3, bucket_mb=8 / 1024)


@row(gradients=[55.0] * 2, told=Says("bucket_fsdp2"))
def bucket_size_without_effect(rank: int, world: int) -> dict[str, Any]:
    return with_options(rank, t.fsdp(), mode="window", bucket_mb=1)


@row(gradients=[55.0] * 2, told=Says("wire_fsdp2"))
def wire_without_effect(rank: int, world: int) -> dict[str, Any]:
    return with_options(rank, t.fsdp(), mode="window", wire="bf16")


@row(gradients=[55.0] * 2, gradient={AR: 8}, suppressed=0, reductions=8, windows_mismatched=0)
def every_micro_step_as_asked(rank: int, world: int) -> dict[str, Any]:
    return with_options(rank, t.ddp(), mode="every_micro_step")


# Ranks that are no longer the same.


def diverged(rank: int, **options: Any) -> dict[str, Any]:
    """Rank 1's weights move by themselves after the first window."""
    model = t.ddp()
    optimizer = t.sgd(model)
    with gradgate.attach(model, optimizer, accumulate=2, parity_every=1, **options) as sync, rows.refused(gradgate.Disagreement) as refusal:
        for i, c in enumerate(t.data(rank)):
            with sync.micro_step():
                model(c).backward()
            if sync.boundary:
                t.finish(optimizer, model)
                if i == 1 and rank == 1:
                    with torch.no_grad():
                        next(model.parameters()).add_(1.0)
        told = dict(sync.stats()["told"])
    return {"refusal": refusal[0], "told": told.get("parity", "") if not refusal[0] else ""}


@row(refusal="", told=Says("window 1", "no longer the same"))
def diverged_parameters_are_told(rank: int, world: int) -> dict[str, Any]:
    return diverged(rank)


@row(refusal=Says("Disagreement", "no longer the same"))
def diverged_parameters_raise_on_all_when_strict(rank: int, world: int) -> dict[str, Any]:
    return diverged(rank, strict=True)


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


test_row = rows.tests(__file__, __name__)
