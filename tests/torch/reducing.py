"""Drives one adapter by hand through windows of given lengths, and says what one process would have got from the same data.

A schedule is a list of windows; a window is one entry per rank: (micro-steps, in time). In time: the last micro-step is armed to
reduce; else the rank reduces after it. Data, weights and their products are whole numbers in float64, so sums are exact in any order.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from gradgate.adapters.base import Adapter, Plan

Window = Sequence[tuple[int, bool]]


class Net(torch.nn.Module):
    """Two layers that every micro-step uses, and what only some rows do."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.a = torch.nn.Linear(width, width, bias=False)
        self.b = torch.nn.Linear(width, 2)
        self.used_by: Callable[[int, int], bool] = lambda rank, step: True

    def forward(self, x: torch.Tensor, rank: int, step: int) -> torch.Tensor:
        return self.b(self.a(x))  # type: ignore[no-any-return]


def whole(module: torch.nn.Module, seed: int = 1) -> torch.nn.Module:
    """Weights that are whole numbers, the same on every rank."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randint(-2, 3, p.shape, generator=generator))
    return module


def batch(rank: int, window: int, step: int, width: int = 4) -> torch.Tensor:
    return torch.arange(1.0, width + 1, dtype=torch.float64).add(10 * rank + step + 3 * window).reshape(1, width) * torch.tensor(
        [[1.0], [2.0]]
    )


def loss(output: torch.Tensor) -> torch.Tensor:
    return (output * torch.tensor([1.0, -3.0], dtype=output.dtype)).sum()


def window_of(adapter: Adapter, model: torch.nn.Module, rank: int, window: int, micro_steps: int, in_time: bool) -> None:
    """One window of this rank, up to the step."""
    for step in range(micro_steps):
        last = in_time and step == micro_steps - 1
        adapter.arm(Plan.REDUCE if last else Plan.ACCUMULATE)
        loss(model(batch(rank, window, step), rank, step)).backward()
        adapter.disarm()
    if in_time and micro_steps:
        adapter.check()
    if not (in_time and micro_steps and adapter.reduced()):
        adapter.late()


def train(adapter: Adapter, model: torch.nn.Module, rank: int, schedule: Sequence[Window]) -> list[list[Any]]:
    """Runs the schedule; the reduced gradients of each window, None where there is none."""
    seen = []
    for index, window in enumerate(schedule):
        window_of(adapter, model, rank, index, *window[rank])
        seen.append([None if p.grad is None else p.grad.to_dense().clone() for p in model.parameters()])
        step(model)
    return seen


def step(model: torch.nn.Module) -> None:
    """An optimizer whose weights depend on every bit of the gradients and stay small whole numbers; zeroes the gradients."""
    with torch.no_grad():
        for p in model.parameters():
            if p.grad is not None:
                weight, gradient = (torch.view_as_real(t) if t.is_complex() else t for t in (p, p.grad.to_dense()))
                weight.copy_((weight - 8 * gradient).round().remainder(5) - 2)
                p.grad = None


def alone(
    model: torch.nn.Module, world: int, schedule: Sequence[Window], divisor: float | None = None
) -> tuple[torch.nn.Module, list[Any]]:
    """What one process gets that runs all ranks' micro-steps and divides by the number of ranks."""
    mine, seen = copy.deepcopy(model), []
    for index, window in enumerate(schedule):
        for rank in range(world):
            for k in range(window[rank][0]):
                loss(mine(batch(rank, index, k), rank, k)).backward()
        for p in mine.parameters():
            if p.grad is not None:
                p.grad = p.grad.to_dense() / (world if divisor is None else divisor)
        seen.append([None if p.grad is None else p.grad.clone() for p in mine.parameters()])
        step(mine)
    return mine, seen


def same(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Bytes, and None where None is."""
    return len(left) == len(right) and all(
        (a is None and b is None) or (a is not None and b is not None and torch.equal(a, b)) for a, b in zip(left, right, strict=True)
    )


def agreed(model: torch.nn.Module, group: Any = None) -> bool:
    """Whether all ranks hold the same bytes of parameters and buffers."""
    digest = hashlib.sha256()
    for tensor in (*model.parameters(), *model.buffers()):
        digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    mine = torch.tensor(list(digest.digest()), dtype=torch.uint8)
    others = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(others, mine, group=group)
    return all(torch.equal(other, mine) for other in others)


def full(windows: int, world: int, micro_steps: int = 4, late: Sequence[Sequence[int]] = ()) -> list[Window]:
    """Windows of equal length; late[w] are the ranks that are late in window w."""
    return [[(micro_steps, not (w < len(late) and r in late[w])) for r in range(world)] for w in range(windows)]
