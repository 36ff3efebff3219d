"""Rows of CASES.md about wrappers in wrappers, outside of them, and loops that go past gradgate: T8, T9, T11, T13."""

from __future__ import annotations

from typing import Any

import gradgate
import rows
import torch
import trainers as t
from moment_rows import two_windows
from rows import Says, row
from torch import nn

AR, RS, AG = "all_reduce", "reduce_scatter", "all_gather"


# T8: DDP inside DDP.


class Nested(nn.Module):
    """One unit in a DDP of its own, and one beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = t.ddp(t.Unit())
        self.beside = t.Unit()

    def forward(self, c: float) -> torch.Tensor:
        return torch.as_tensor(self.inner(c) + self.beside(c))


@row(gradients=[55.0] * 2, gradient={AR: 4}, ours={AR: 2}, at=[0, 0, 0, 3, 4, 0, 0, 3], suppressed=6, reductions=2)
def t8_inner_ignored_by_the_outer(rank: int, world: int) -> dict[str, Any]:
    model = Nested()
    ignored = [f"inner.{name}" for name, _ in model.inner.named_parameters()]
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ignored)
    return two_windows(t.ddp(model), rank)


@row(gradients=[55.0] * 2, gradient={AR: 4}, ours={AR: 2}, told=["double_reduction"])
def t8_both_reduce_the_inner(rank: int, world: int) -> dict[str, Any]:
    return two_windows(t.ddp(Nested()), rank)


# T9: parameters outside every wrapper.


class Head(nn.Module):
    def __init__(self, wrapped: nn.Module) -> None:
        super().__init__()
        self.body, self.head = wrapped, t.Unit(3)

    def forward(self, c: float) -> torch.Tensor:
        return torch.as_tensor(self.body(c) + self.head(c))


@row(gradients=[55.0] * 2, gradient={AR: 4}, told=["stray_parameters"], reductions=2)
def t9_stray_beside_ddp(rank: int, world: int) -> dict[str, Any]:
    return two_windows(Head(t.ddp()), rank)


@row(gradients=[55.0] * 2, gradient={"reduce_scatter": 2, AR: 2}, told=Says("stray_parameters"))
def t9_stray_beside_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return two_windows(Head(t.fsdp()), rank, mode="window")


@row(gradients=[55.0], stray=55.0)
def t9_stray_in_the_optimizer_alone(rank: int, world: int) -> dict[str, Any]:
    model, stray = t.ddp(), nn.Parameter(torch.zeros(5, dtype=torch.float64))
    optimizer = torch.optim.SGD([*model.parameters(), stray], lr=0.0)
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        for c in t.data(rank):
            with sync.micro_step():
                (model(c) + c * stray.sum()).backward()
        assert sync.boundary
    return watch.seen(gradients=[t.one(t.gradients(model))], stray=t.one(t.values([stray.grad])))


@row(refusal=Says("Unreduced", "head.w"))
def t9_stray_strict(rank: int, world: int) -> dict[str, Any]:
    model = Head(t.ddp())
    with rows.refused(gradgate.Unreduced) as refusal:
        gradgate.attach(model, t.sgd(model), accumulate=4, strict=True)
    return {"refusal": refusal[0]}


# T11: a loop that never opens a window.


@row(gradient={AR: 11}, windows=0, told=["no_window"], gradients=[55.0, 55.0])
def t11_loop_without_windows(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp(t.Units(2), buckets=True)
    optimizer, found = t.sgd(model), []
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        for _ in range(2):
            for c in t.data(rank, 2):
                model(c).backward()
            model(3.0 * 10**rank + 4.0 * 10**rank).backward()
            optimizer.step()
            found.append(t.one(t.gradients(model)))
            optimizer.zero_grad()
    return watch.seen(gradients=found)


# T13: the script writes the flags as well.


@row(world=4, gradients=[55.0] * 2, gradient={"reduce_scatter": 16, AR: 4})
def t13_flags_written_between_micro_steps(rank: int, world: int) -> dict[str, Any]:
    return overriding(rank // 2, inside=False)


@row(world=4, gradients=[55.0] * 2, told=Says("overrid"))
def t13_flags_written_inside_micro_steps(rank: int, world: int) -> dict[str, Any]:
    return overriding(rank // 2, inside=True)


def overriding(rank: int, *, inside: bool) -> dict[str, Any]:
    model = t.fsdp(t.Units(2), (2, 2))
    optimizer = t.sgd(model)

    def override() -> None:
        model.set_requires_all_reduce(False)
        model.set_requires_gradient_sync(True)

    def forward(i: int, c: float) -> torch.Tensor:
        if inside:
            override()
        return torch.as_tensor(model(c))

    found = []
    with gradgate.attach(model, optimizer, accumulate=4, mode="window_replica") as sync, t.Watch(sync) as watch:
        for _ in range(2):
            for c in t.data(rank):
                if not inside:
                    override()
                found += t.drive(sync, watch, model, optimizer, [c], forward=forward)
    return watch.seen(gradients=[t.one(b) for b in found])
