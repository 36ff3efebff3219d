"""Same mathematics: with exactly representable float64 gradients, parameters after two optimizer steps are the same bytes with gradgate,
reducing in every micro-step by hand, and suppressing by hand; on every rank; full windows and partial ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import exact
import gradgate
import torch
import torch.distributed as dist
import trainers as t
from rows import row
from torch import nn


class Network(nn.Module):
    """Two layers whose gradients depend on the weights. `integers`: weights, data and targets are small integers, so that all gradients
    of a quadratic loss are, too; else `exact` snaps the gradients to a grid."""

    def __init__(self, integers: bool) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.units = nn.ModuleList([nn.Linear(4, 8, dtype=torch.float64), nn.Linear(8, 4, dtype=torch.float64)])
        self.integers = integers
        if integers:
            with torch.no_grad():
                for p in self.parameters():
                    p.copy_(torch.randint(-2, 3, p.shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.units[0](x)
        return torch.as_tensor(self.units[1](hidden.relu() if self.integers else torch.tanh(hidden)))


def batches(rank: int, count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(50 + rank)
    return [torch.randint(-2, 3, (2, 4), generator=generator).double() for _ in range(count)]


def loss(model: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor((model(x) - 1.0).square().sum() / 2)


Build = Callable[[], tuple[Any, torch.optim.Optimizer]]


def windows(count: int, n: int) -> Iterator[tuple[int, int]]:
    """(first, size) of each window."""
    for first in range(0, count, n):
        yield first, min(n, count - first)


def by_hand(build: Build, rank: int, count: int, n: int, suppress: Callable[[Any, bool], Any]) -> str:
    """Each loss divided by n; a partial window's gradients are multiplied by n / size. `suppress` sets what the wrapper does."""
    model, optimizer = build()
    data = batches(rank, count)
    for first, size in windows(count, n):
        for i in range(size):
            suppress(model, i + 1 < size)
            (loss(model, data[first + i]) / n).backward()
        if size < n:
            torch._foreach_mul_([p.grad for p in model.parameters()], n / size)
        optimizer.step()
        optimizer.zero_grad()
    return exact.parameter_hash(model.parameters())


def with_gradgate(build: Build, rank: int, count: int, n: int, **options: Any) -> tuple[str, dict[str, Any]]:
    model, optimizer = build()
    with gradgate.attach(model, optimizer, accumulate=n, **options) as sync:
        for x in batches(rank, count):
            with sync.micro_step():
                (loss(model, x) / n).backward()
            if sync.boundary:
                optimizer.step()
                optimizer.zero_grad()
        if sync.flush(divisor=n):
            optimizer.step()
            optimizer.zero_grad()
        stats = sync.stats()
    return exact.parameter_hash(model.parameters()), stats


def compared(
    rank: int, world: int, build: Build, count: int, n: int, suppress: Callable[[Any, bool], Any], **options: Any
) -> dict[str, Any]:
    each = by_hand(build, rank, count, n, lambda model, more: suppress(model, False))
    once = by_hand(build, rank, count, n, suppress)
    ours, stats = with_gradgate(build, rank, count, n, **options)
    everyones: list[Any] = [None] * world
    dist.all_gather_object(everyones, (each, once, ours))
    start = exact.parameter_hash(build()[0].parameters())
    return {
        "one": len({h for hashes in everyones for h in hashes}) == 1 or everyones,
        "moved": start != ours,
        **{key: stats[key] for key in ("windows_full", "windows_partial", "steps", "late")},
    }


def ddp_builder(world: int, n: int, kind: type[torch.optim.Optimizer] = torch.optim.SGD, **options: Any) -> Build:
    def build() -> tuple[Any, torch.optim.Optimizer]:
        model = Network(integers=False)
        exact.snap_parameters(model, exact.grid_of(world, n), scale=1e8)
        wrapped = t.ddp(model, **options)
        return wrapped, kind(wrapped.parameters(), lr=1e-9 if kind is torch.optim.SGD else 1e-3)  # type: ignore[call-arg]

    return build


def ddp_suppress(model: Any, more: bool) -> None:
    model.require_backward_grad_sync = not more


FULL: dict[str, Any] = {"one": True, "moved": True, "windows_full": 2, "windows_partial": 0, "steps": 2, "late": 0}
PARTIAL: dict[str, Any] = {"one": True, "moved": True, "windows_full": 1, "windows_partial": 1, "steps": 2, "late": 1}


@row(**FULL)
def ddp_full_windows(rank: int, world: int) -> dict[str, Any]:
    return compared(rank, world, ddp_builder(world, 4), 8, 4, ddp_suppress)


@row(**PARTIAL)
def ddp_partial_window(rank: int, world: int) -> dict[str, Any]:
    return compared(rank, world, ddp_builder(world, 4), 7, 4, ddp_suppress)


@row(**PARTIAL)
def ddp_partial_window_of_seven_and_small_buckets(rank: int, world: int) -> dict[str, Any]:
    return compared(rank, world, ddp_builder(world, 7, buckets=True), 10, 7, ddp_suppress)


@row(**PARTIAL)
def ddp_bucket_views_adam(rank: int, world: int) -> dict[str, Any]:
    return compared(rank, world, ddp_builder(world, 4, torch.optim.AdamW, gradient_as_bucket_view=True), 6, 4, ddp_suppress)


@row(world=4, **PARTIAL)
def ddp_four_ranks(rank: int, world: int) -> dict[str, Any]:
    return compared(rank, world, ddp_builder(world, 4, buckets=True), 6, 4, ddp_suppress)


def sharded_builder(*shape: int) -> Build:
    def build() -> tuple[Any, torch.optim.Optimizer]:
        model: Any = t.fsdp(Network(integers=True), shape)
        return model, torch.optim.SGD(model.parameters(), lr=2.0**-10, momentum=0.5)

    return build


def sharded_suppress(model: Any, more: bool) -> None:
    model.set_requires_gradient_sync(not more)


def replicated_suppress(model: Any, more: bool) -> None:
    model.set_requires_all_reduce(not more)


@row(**FULL)
def fsdp2_full_windows(rank: int, world: int) -> dict[str, Any]:
    return compared(rank, world, sharded_builder(world), 8, 4, sharded_suppress, mode="window")


@row(**PARTIAL)
def fsdp2_partial_window_parameters_stay(rank: int, world: int) -> dict[str, Any]:
    return compared(rank, world, sharded_builder(world), 6, 4, sharded_suppress, mode="window", keep_params=True)


@row(world=4, **FULL)
def hsdp_full_windows(rank: int, world: int) -> dict[str, Any]:
    return compared(rank, world, sharded_builder(2, 2), 8, 4, replicated_suppress, mode="window_replica")


@row(world=4, **PARTIAL)
def hsdp_partial_window(rank: int, world: int) -> dict[str, Any]:
    return compared(rank, world, sharded_builder(2, 2), 7, 4, replicated_suppress, mode="window_replica")


@row(world=4, **PARTIAL | {"late": 2})  # one for each role
def hsdp_partial_window_all_deferred(rank: int, world: int) -> dict[str, Any]:
    return compared(rank, world, sharded_builder(2, 2), 6, 4, sharded_suppress, mode="window", keep_params=True)
