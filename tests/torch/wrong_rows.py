"""What a loop asks for wrongly is refused in words that name the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradgate
import rows
import torch
import trainers as t
from rows import Says, row
from torch import nn

AR, RS, AG = "all_reduce", "reduce_scatter", "all_gather"


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
        outside: dict[str, Callable[[], object]] = {"skip": sync.skip, "skip_if": lambda: sync.skip_if(True)}
        for name, call in outside.items():
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


@row(refusal=Says("Refused", "flush(divisor=4)", "divisors 2 to 4"))
def divisor_that_ranks_cannot_share(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp()
    with gradgate.attach(model, t.sgd(model), accumulate=4) as sync:
        for c in t.data(rank, 3):
            with sync.micro_step():
                (model(c) / 4).backward()
        with rows.refused(gradgate.Refused) as refusal:
            sync.flush(divisor=2 + 2 * rank)
    return {"refusal": refusal[0]}


@row(gradient=(1.5 + 20) / 2)
def divisor_of_windows_that_differ(rank: int, world: int) -> dict[str, Any]:
    """Each rank's sum is divided by its own number of micro-steps."""
    model = t.ddp()
    with gradgate.attach(model, t.sgd(model), accumulate=4, windows="variable") as sync:
        for c in t.data(rank, 2 + rank):
            with sync.micro_step():
                (model(c) / 4).backward()
        assert sync.flush(divisor=4)
        return {"gradient": t.one(t.gradients(model))}


@row(refusal=Says("Refused", "no items on any rank"))
def window_without_items(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp()
    with gradgate.attach(model, t.sgd(model), accumulate=2) as sync, rows.refused(gradgate.Refused) as refusal:
        for c in t.data(rank, 2):
            with sync.micro_step(items=0):
                model(c).backward()
    return {"refusal": refusal[0]}


@row(means={"loss": 2.0, "accuracy": 0.5}, texts=Says("different names", "of rank"), gradients=[16.5, 16.5], told=["means_differ"])
def means_of_tensors_and_numbers(rank: int, world: int) -> dict[str, Any]:
    """A loss that one rank gives twice as often weighs twice. Other names on other ranks are told, and harm nothing."""
    model = t.ddp()
    optimizer = t.sgd(model)
    with gradgate.attach(model, optimizer, accumulate=2) as sync, t.Watch(sync) as watch:
        for i, c in enumerate(t.data(rank, 2)):
            with sync.micro_step():
                model(c).backward()
                sync.mean(accuracy=0.25 if rank else 0.75)
                if rank == 1 or i == 0:
                    sync.mean(loss=torch.tensor(4.0 if rank == 0 else 1.0, requires_grad=True))
        means, found = sync.means, [t.one(t.gradients(model))]
        sync.step()
        for c in t.data(rank, 2):
            with sync.micro_step():
                model(c).backward()
                sync.mean(**{f"of rank {rank}": 1.0})
        found.append(t.one(t.gradients(model)))
        sync.step()
    return watch.seen(means=means, gradients=found)
