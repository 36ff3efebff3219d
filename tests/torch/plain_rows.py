"""Rows of modules without wrapper, through attach(): each runs over the reducer in C++ and again over the one in Python.

Gradients are whole numbers in float64, so that sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import gradgate
import torch
from counting import profiled
from gradgate import tap
from rows import Each, Says, refused, row
from torch import nn

Model = Any


def both(body: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the row returns over each reducer; one value where they are equal, which they are to be."""
    made = tap.load().reducer()
    assert made is not None, "no reducer in C++: is there no compiler?"
    native = body()
    with mock.patch.object(tap.load(), "reducer", lambda: None):
        in_python = body()
    return {key: value if value == in_python[key] else f"native {value}, in Python {in_python[key]}" for key, value in native.items()}


class Tied(nn.Module):
    """One weight used twice, one by some ranks alone, one by none, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(2, dtype=torch.float64))
        self.again = self.w
        self.some = nn.Parameter(torch.ones(2, dtype=torch.float64))
        self.never = nn.Parameter(torch.ones(2, dtype=torch.float64))
        self.seen: torch.Tensor
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, c: float, use: bool = False) -> torch.Tensor:
        self.seen += 1
        return c * (self.w.sum() + 2 * self.again.sum() + (self.some.sum() if use else 0))


def gradients(model: Model) -> list[Any]:
    return [None if p.grad is None else p.grad.tolist() for p in model.parameters()]


def train(model: Model, sync: Any, numbers: list[float], use: Callable[[int], bool] = lambda step: False, flush: bool = False) -> list[Any]:
    seen = []
    for step, c in enumerate(numbers):
        with sync.micro_step():
            model(c, use(step)).backward()
        if sync.boundary:
            seen.append(gradients(model))
            model.zero_grad()
    while flush and sync.flush():
        seen.append(gradients(model))
        model.zero_grad()
    return seen


# Rank r brings c = 1 + 10 r, …; w is used once and twice, so its gradient is 3 c. The mean over two ranks.
@row(seen=[[[153.0, 153.0], [5.5, 5.5], None], [[228.0, 228.0], None, None]], counts={"gradient": 2, "reductions": 2}, buffer=8.0)
def tied_some_and_never(rank: int, world: int) -> dict[str, Any]:
    def body() -> dict[str, Any]:
        model: Model = Tied()
        with profiled() as counts, gradgate.attach(model, accumulate=4) as sync:
            numbers = [1.0 + 10 * rank, 2 + 10 * rank, 3 + 10 * rank, 20.0 + 20 * rank, *[19.0] * 4]
            seen = train(model, sync, numbers, lambda step: step == 0 and rank == 1)
            stats = sync.stats()
        assert counts["all_reduce"] >= 4, counts
        counted = {"gradient": stats["gradient_collectives"], "reductions": stats["reductions"]}
        return {"seen": seen, "counts": counted, "buffer": float(model.seen)}

    return both(body)


# Rank 0 has 5 micro-steps, rank 1 has 3: 4 + 1 against 3; at the end rank 1 brings zeros.
@row(seen=[[[10.5, 10.5], None, None], [[1.5, 1.5], None, None]], late=Each(1, 2))
def different_numbers(rank: int, world: int) -> dict[str, Any]:
    def body() -> dict[str, Any]:
        model: Model = Tied()
        with gradgate.attach(model, accumulate=4, windows="variable") as sync:
            seen = train(model, sync, [1.0] * (5 if rank == 0 else 3), flush=True)
            return {"seen": seen, "late": sync.stats()["windows_late"]}

    return both(body)


@row(seen=[[[6.0, 6.0], None, None]], micro_steps=Each(0, 4))
def a_rank_without_data(rank: int, world: int) -> dict[str, Any]:
    def body() -> dict[str, Any]:
        model: Model = Tied()
        with gradgate.attach(model, accumulate=4, windows="variable") as sync:
            seen = train(model, sync, [1.0] * (4 * rank), flush=True)
            return {"seen": seen, "micro_steps": sync.stats()["micro_steps"]}

    return both(body)


# Reduced at every micro-step, in each of which one rank alone uses a weight.
@row(seen=[[[12.0, 12.0], [2.0, 2.0], None]] * 2, reductions=8)
def every_micro_step_with_unused_weights(rank: int, world: int) -> dict[str, Any]:
    def body() -> dict[str, Any]:
        model: Model = Tied()
        with gradgate.attach(model, accumulate=4, mode="every_micro_step", bucket_mb=1e-6) as sync:
            seen = train(model, sync, [1.0] * 8, lambda step: step % 2 == rank)
            return {"seen": seen, "reductions": sync.stats()["reductions"]}

    return both(body)


# After the second of four micro-steps; what it has left is reduced with the rest, in a bucket of its own.
@row(seen=[[[39.0, 39.0], [17.0, 17.0], None], [None, [46.0, 46.0], None]], reductions=2)
def frozen_in_the_middle(rank: int, world: int) -> dict[str, Any]:
    def body() -> dict[str, Any]:
        model: Model = Tied()
        seen = []
        with gradgate.attach(model, accumulate=4) as sync:
            for step in range(8):
                with sync.micro_step():
                    model(1.0 + 10 * rank + step, step >= 2).backward()
                if step == 1:
                    model.w.requires_grad_(False)
                if sync.boundary:
                    seen.append(gradients(model))
                    model.zero_grad()
            return {"seen": seen, "reductions": sync.stats()["reductions"]}

    return both(body)


@row(frozen=[None, [1.0, 1.0], None], after=[[3.0, 3.0], [1.0, 1.0], None], types=["torch.float32"], single=[[3.0, 3.0], [1.0, 1.0], None])
def frozen_and_of_another_type_later(rank: int, world: int) -> dict[str, Any]:
    def body() -> dict[str, Any]:
        model: Model = Tied()
        out: dict[str, Any] = {}
        with gradgate.attach(model, accumulate=1) as sync:
            model.w.requires_grad_(False)
            out["frozen"] = train(model, sync, [1.0], lambda step: True)[0]
            model.w.requires_grad_(True)
            out["after"] = train(model, sync, [1.0], lambda step: True)[0]
            model.float()
            with sync.micro_step():
                model(1.0, True).backward()
            out["types"] = sorted({str(p.grad.dtype) for p in model.parameters() if p.grad is not None})
            out["single"] = gradients(model)
        return out

    return both(body)


# Whoever holds a gradient sees it reduced in place; what was reduced before stays as it was.
@row(flat=[9.0] * 4, in_place=True, zeroed=[9.0] * 2, held=[9.0] * 2, kept=[[3.0, 3.0], [6.0, 6.0]], hooked=6)
def gradients_that_others_hold(rank: int, world: int) -> dict[str, Any]:
    def body() -> dict[str, Any]:
        out: dict[str, Any] = {}
        model: Model = Tied()
        flat = torch.zeros(4, dtype=torch.float64)
        model.w.grad, model.some.grad = flat[:2], flat[2:]
        with gradgate.attach(model, accumulate=1) as sync:
            with sync.micro_step():
                (model(2.0 + 2 * rank, True) + (2 + 2 * rank) * 2 * model.some.sum()).backward()
            out["flat"], out["in_place"] = flat.tolist(), model.w.grad.data_ptr() == flat.data_ptr()
            for _ in range(2):
                model.zero_grad(set_to_none=False)
                with sync.micro_step():
                    model(2.0 + 2 * rank).backward()
            out["zeroed"] = flat[:2].tolist()
            held = torch.zeros(2, dtype=torch.float64)
            model.zero_grad()
            model.w.grad = held
            with sync.micro_step():
                model(2.0 + 2 * rank).backward()
            out["held"] = held.tolist()
        model = Tied()
        calls: list[int] = []
        model.w.register_post_accumulate_grad_hook(lambda p: calls.append(1))
        kept = []
        with gradgate.attach(model, accumulate=1) as sync:
            for window in range(6):
                model.zero_grad()
                with sync.micro_step():
                    model(1.0 + window).backward()
                kept.append(model.w.grad)
        out["kept"], out["hooked"] = [g.tolist() for g in kept[:2]], len(calls)
        return out

    return both(body)


class Fails(torch.autograd.Function):
    """Passes gradients on, and raises once the others have arrived."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("in the backward")


# One rank's boundary fails when a gradient has arrived and none has been sent; it is tried again as a micro-step that is not the last.
@row(first=Each("", Says("RuntimeError: in the backward")), seen=[[[9.0, 9.0], [1.5, 1.5], None]])
def a_boundary_that_fails_in_its_backward_and_is_no_boundary_then(rank: int, world: int) -> dict[str, Any]:
    def body() -> dict[str, Any]:
        model: Model = Tied()
        with gradgate.attach(model, accumulate=2) as sync:
            with sync.micro_step():
                model(1.0).backward()
            first = ""
            if rank == 1:
                with refused(RuntimeError) as texts, sync.micro_step():
                    (Fails.apply(model.w * 1.0).sum() + model.some.sum()).backward()  # type: ignore[no-untyped-call]
                first = texts[0]
            with sync.micro_step(last=False):
                model(1.0, rank == 0).backward()
            seen = []
            with sync.micro_step(last=True):
                model(1.0, rank == 0).backward()
            assert sync.boundary
            seen.append(gradients(model))
        return {"first": first, "seen": seen}

    return both(body)


@row(first=Says("RuntimeError: once"), seen=[[[6.0, 6.0], None, None]], others=[0])
def a_boundary_that_fails_before_it_sends_is_tried_again(rank: int, world: int) -> dict[str, Any]:
    def body() -> dict[str, Any]:
        model: Model = Tied()
        with gradgate.attach(model, accumulate=2) as sync:
            with sync.micro_step():
                model(1.0).backward()
            with refused(RuntimeError) as texts, sync.micro_step():
                raise RuntimeError("once")
            hooks = [len(p._post_accumulate_grad_hooks or ()) for p in model.parameters()]
            seen = train(model, sync, [1.0])
        return {"first": texts[0], "seen": seen, "others": sorted(set(hooks))}

    return both(body)


@row(scaled=[[12.0, 12.0], None, None], twice=[[6.0, 6.0], None, None], wire=[[3.015625] * 2, None, None])
def scaled_twice_and_narrow(rank: int, world: int) -> dict[str, Any]:
    def body() -> dict[str, Any]:
        out: dict[str, Any] = {}
        model: Model = Tied()
        with gradgate.attach(model, accumulate=1) as sync:
            with sync.micro_step():
                model(1.0).backward()
                model.w.grad.mul_(4)
            out["scaled"] = gradients(model)
            model.zero_grad()
            with sync.micro_step():
                model(1.0).backward()
                model(1.0).backward()
            out["twice"] = gradients(model)
        model = Tied()
        with gradgate.attach(model, accumulate=1, wire="bf16") as sync:
            with sync.micro_step():
                model(1.0 + 2.0**-8 + 2.0**-20).backward()
            out["wire"] = gradients(model)
        return out

    return both(body)
