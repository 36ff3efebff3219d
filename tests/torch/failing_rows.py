"""Micro-steps that fail, contexts inside one another or left early, data loaders that fork."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradgate
import rows
import torch
import trainers as t
from rows import Each, Says, row
from torch import nn

AR, RS, AG = "all_reduce", "reduce_scatter", "all_gather"


class Oops(Exception):
    pass


# Exceptions inside a micro-step, caught by the loop, which tries again.


class Fragile(t.Units):
    """Fails on demand: before the forward, in it, or in the backward before any gradient."""

    fail = ""

    def forward(self, c: float, use: Any = None) -> torch.Tensor:
        where, self.fail = self.fail, ""
        if where == "forward":
            raise Oops(where)
        if where == "memory":
            raise torch.OutOfMemoryError("out of memory, as the allocator says it")
        out = super().forward(c, use)
        if where == "backward":
            out.register_hook(fail_in_backward)
        return out


class Chain(Fragile):
    """Each unit's backward ends before that of the one before it begins."""

    def forward(self, c: Any, use: Any = None) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for unit in self.units:
            out = unit(c)
            c, total = c + 0 * out, total + out
        return total


def fail_in_backward(gradient: torch.Tensor) -> None:
    raise Oops("backward")


def retried(
    rank: int, wrap: Callable[[nn.Module], Any], where: str, at: int, who: int = -1, inner: Any = None, **options: Any
) -> dict[str, Any]:
    """Micro-step `at` of the second window fails once on rank `who`, or on all, and is run again."""
    inner = inner or Fragile(2)
    model = wrap(inner)
    optimizer, found, failures = t.sgd(model), [], 0
    with gradgate.attach(model, optimizer, accumulate=4, **options) as sync, t.Watch(sync) as watch:
        for i, c in enumerate(t.data(rank) * 3):
            if i == 4 + at and who in (-1, rank):
                inner.fail = where
            for _ in range(2):
                try:
                    with sync.micro_step():
                        if inner.fail == "loop":
                            inner.fail = ""
                            raise Oops
                        loss = 1 * model(c)
                        if inner.fail == "loss":
                            inner.fail = ""
                            loss.register_hook(fail_in_backward)
                        loss.backward()
                    break
                except (Oops, torch.OutOfMemoryError):
                    failures += 1
            if sync.boundary:
                found.append(t.gradients(model))
                t.finish(optimizer, model)
    flags = getattr(model, "require_backward_grad_sync", True)
    ended = watch.changes[0]["micro_steps"] - failures  # what is counted are micro-steps begun
    gathered = watch.changes[0]["collectives"].get(AG, 0)
    return watch.seen(gradients=[t.one(b) for b in found], failures=failures, flags=flags, ended=ended, gathered=gathered)


AGAIN: dict[str, Any] = {"gradients": [55.0] * 3, "windows_full": 3, "ended": 12, "flags": True, "windows_mismatched": 0}


@row(**AGAIN, failures=1, gradient={AR: 3}, suppressed=9)
def exception_in_the_forward(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.ddp, "forward", 1)


@row(**AGAIN, failures=1, gradient={AR: 3}, ours={AR: 3})
def exception_in_the_boundary_forward(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.ddp, "forward", 3)


@row(**AGAIN, failures=1, gradient={AR: 3})
def exception_in_the_backward(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.ddp, "backward", 2)


@row(**AGAIN, failures=Each(1, 0), gradient={AR: 3})
def exception_on_one_rank(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.ddp, "forward", 2, who=0)


@row(**AGAIN, failures=Each(1, 0), gradient={AR: 3})
def exception_on_one_rank_in_the_boundary_forward(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.ddp, "forward", 3, who=0)


@row(**AGAIN, failures=Each(0, 1), gradient={AR: 3})
def out_of_memory_on_one_rank(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.ddp, "memory", 3, who=1)


@row(**AGAIN, failures=1, gradient={RS: 6})
def out_of_memory_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.fsdp, "memory", 2, mode="window")


@row(**AGAIN, failures=1, gradient={RS: 6})
def exception_in_the_boundary_forward_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.fsdp, "forward", 3, mode="window", keep_params=True)


KEPT: dict[str, Any] = {"mode": "window", "keep_params": True}


@row(**AGAIN, failures=Each(1, 0), gradient={RS: 6}, gathered=6)
def exception_on_one_rank_before_the_boundary_forward_of_kept_parameters(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.fsdp, "loop", 3, who=0, **KEPT)


@row(**AGAIN, failures=Each(0, 1), gradient={RS: 6}, gathered=6)
def exception_on_one_rank_while_parameters_are_gathered_to_be_kept(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.fsdp, "forward", 0, who=1, **KEPT)


@row(**AGAIN, failures=Each(1, 0), gradient={RS: 6}, gathered=6)
def exception_on_one_rank_in_the_backward_of_kept_parameters(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.fsdp, "backward", 3, who=0, **KEPT)


@row(**AGAIN, failures=Each(1, 0), gradient={RS: 9}, gathered=9)
def exception_on_one_rank_behind_kept_parameters(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.fsdp, "loss", 3, who=0, inner=Chain(3), **KEPT)


@row(**AGAIN, failures=1, gradient={RS: 6})
def exception_in_the_backward_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.fsdp, "backward", 2, mode="window")


@row(**AGAIN, failures=1, gradient={AR: 3})
def exception_in_the_boundary_unwrapped(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, lambda model: model, "backward", 3)


# Contexts inside one another, and left early.


@row(refusal=Says("Refused", "micro"), gradients=[3.2])
def nested_contexts(rank: int, world: int) -> dict[str, Any]:
    """The outer one goes on unharmed, with its own items."""
    model = t.ddp()
    counts, sums = ((1, 3), (1.0, 9.0)) if rank == 0 else ((2, 4), (2.0, 20.0))
    with gradgate.attach(model, t.sgd(model), accumulate=2) as sync:
        for items, c in zip(counts, sums, strict=True):
            with sync.micro_step(items=items):
                model(c).backward()
                with rows.refused(gradgate.Refused) as refusal, sync.micro_step(items=1000, last=True):
                    pass
        assert sync.boundary
    return {"refusal": refusal[0], "gradients": [t.one(t.gradients(model))]}


@row(gradients=[16.5, 55.0], gradient={AR: 2}, windows_partial=1, windows_full=1, micro_steps=6)
def break_out_of_a_window(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp()
    optimizer, found = t.sgd(model), []
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        for c in t.data(rank):
            with sync.micro_step():
                model(c).backward()
                if c in (2.0, 20.0):
                    break
        assert sync.flush()
        found.append(t.gradients(model))
        t.finish(optimizer, model)
        found += t.drive(sync, watch, model, optimizer, t.data(rank))
    return watch.seen(gradients=[t.one(b) for b in found])


@row(gradients=[16.5, 55.0], gradient={AR: 2}, windows_partial=1, windows_full=1)
def break_out_of_micro_batches(rank: int, world: int) -> dict[str, Any]:
    """In the first epoch the optimizer steps after two of four, and the window ends there."""
    model = t.ddp()
    optimizer, found = t.sgd(model), []
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        for epoch in range(2):
            for i, micro in enumerate(sync.micro_batches(t.data(rank))):
                with micro:
                    model(micro.data).backward()
                if micro.boundary or (epoch == 0 and i == 1):
                    optimizer.step()
                    found.append(t.gradients(model))
                    optimizer.zero_grad()
                    break
    return watch.seen(gradients=[t.one(b) for b in found])


# Data loaders that fork.


class Numbers(torch.utils.data.Dataset[float]):
    def __init__(self, rank: int) -> None:
        self.values = t.data(rank) * 2

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> float:
        return self.values[index]


@row(gradients=[55.0] * 4, gradient={AR: 4}, micro_steps=16, linked=False)
def forked_data_loaders(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp()
    optimizer, found = t.sgd(model), []
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        for _ in range(2):
            loader = torch.utils.data.DataLoader(Numbers(rank), batch_size=None, num_workers=2, multiprocessing_context="fork")
            found += t.drive(sync, watch, model, optimizer, [float(c) for c in loader])
        linked = sync.stats()["linked"]
    return watch.seen(gradients=[t.one(b) for b in found], linked=linked)
