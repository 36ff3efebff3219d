"""Compiled models, recomputed activations, mixed precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradgate
import torch
import trainers as t
from rows import row
from torch import nn
from torch.utils.checkpoint import checkpoint

AR, RS, AG = "all_reduce", "reduce_scatter", "all_gather"


# Compiled models.


class Small(nn.Module):
    """A real one, whose gradients depend on its weights; float64 and the same start on all ranks."""

    def __init__(self, recompute: str = "") -> None:
        super().__init__()
        torch.manual_seed(7)
        self.units = nn.ModuleList([nn.Linear(4, 8, dtype=torch.float64), nn.Linear(8, 4, dtype=torch.float64)])
        self.recompute = recompute

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.units[1](torch.tanh(self.units[0](x))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.recompute:
            return torch.as_tensor(checkpoint(self.body, x, use_reentrant=self.recompute == "reentrant"))
        return self.body(x)


def batches(rank: int, count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + rank)
    return [torch.randn(3, 4, dtype=torch.float64, generator=generator) for _ in range(count)]


def reference(world: int, count: int, n: int = 4, lr: float = 0.1) -> list[torch.Tensor]:
    """One process that sees all ranks' data: what every rank's weights are after count / n steps."""
    model = Small()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    data = [batches(rank, count) for rank in range(world)]
    for i in range(count):
        for rank in range(world):
            (model(data[rank][i]).square().mean() / n / world).backward()
        if (i + 1) % n == 0:
            optimizer.step()
            optimizer.zero_grad()
    return [p.detach() for p in model.parameters()]


def like_one_process(
    rank: int, world: int, wrap: Callable[[nn.Module], Any], model: nn.Module | None = None, **options: Any
) -> dict[str, Any]:
    """Two windows of four; the largest difference of any weight from one process's."""
    wrapped = wrap(model or Small())
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    with gradgate.attach(wrapped, optimizer, accumulate=4, **options) as sync, t.Watch(sync) as watch:
        for x in batches(rank, 8):
            with sync.micro_step():
                (wrapped(x).square().mean() / 4).backward()
            sync.step()
    difference = max(
        float(((p.full_tensor() if hasattr(p, "full_tensor") else p.detach()) - wanted).abs().max())
        for p, wanted in zip(wrapped.parameters(), reference(world, 8), strict=True)
    )
    return watch.seen(close=difference < 1e-12 or difference)


def compiled(model: Any, backend: str) -> Any:
    return torch.compile(model, backend=backend)


@row(close=True, gradient={AR: 2}, windows_mismatched=0, told=[])
def compiled_inside_ddp(rank: int, world: int) -> dict[str, Any]:
    return like_one_process(rank, world, lambda model: t.ddp(compiled(model, "eager")))


@row(close=True, gradient={AR: 2}, windows_mismatched=0, told=[])
def compiled_around_ddp(rank: int, world: int) -> dict[str, Any]:
    return like_one_process(rank, world, lambda model: torch.compile(t.ddp(model), backend="aot_eager"))


@row(close=True, gradient={RS: 4}, windows_mismatched=0, told=[])
def compiled_around_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return like_one_process(rank, world, lambda model: torch.compile(t.fsdp(model), backend="aot_eager"), mode="window")


# Recomputed activations.


@row(close=True, gradient={AR: 2})
def recomputed(rank: int, world: int) -> dict[str, Any]:
    return like_one_process(rank, world, t.ddp, Small("yes"))


@row(close=True, gradient={RS: 4})
def recomputed_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return like_one_process(rank, world, t.fsdp, Small("yes"), mode="window")


@row(close=True)
def recomputed_reentrant(rank: int, world: int) -> dict[str, Any]:
    """Reentrant backwards are engine passes of their own inside the micro-step's."""

    def wrap(model: nn.Module) -> Any:
        return t.ddp(model, static_graph=True)

    class Driven(Small):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.requires_grad_())

    return like_one_process(rank, world, wrap, Driven("reentrant"))


# Mixed precision.


def mixed(rank: int, wrap: Callable[[nn.Module], Any], dtype: torch.dtype, **options: Any) -> dict[str, Any]:
    """Half precision in the forward; integers stay exact in it."""
    model: Any = wrap(Product())
    optimizer = t.sgd(model, lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=dtype is torch.float16)
    with gradgate.attach(model, optimizer, accumulate=4, **options) as sync, t.Watch(sync) as watch:
        for c in t.data(rank):
            with sync.micro_step():
                with torch.autocast("cpu", dtype):
                    loss = model(c)
                    assert loss.dtype is dtype, loss.dtype
                scaler.scale(loss).backward()
            sync.step(scaler=scaler)
    return watch.seen(weights=t.one(t.weights(model)), scale=scaler.get_scale())


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.units = nn.ModuleList([nn.Linear(2, 1, bias=False)])
        nn.init.zeros_(self.units[0].weight)  # type: ignore[arg-type]

    def forward(self, c: float) -> torch.Tensor:
        return torch.as_tensor(self.units[0](torch.full((1, 2), c)).squeeze())


@row(weights=-55.0, scale=1024.0, gradient={AR: 1})
def half_precision_with_a_scaler(rank: int, world: int) -> dict[str, Any]:
    return mixed(rank, t.ddp, torch.float16)


@row(weights=-55.0, gradient={AR: 1})
def bfloat16(rank: int, world: int) -> dict[str, Any]:
    return mixed(rank, t.ddp, torch.bfloat16)


@row(weights=-55.0, gradient={RS: 1})
def half_precision_with_a_scaler_fsdp2(rank: int, world: int) -> dict[str, Any]:
    def wrap(model: Any) -> Any:
        with torch.no_grad():
            model.units[0].weight = nn.Parameter(model.units[0].weight.T.contiguous())  # so that each rank has an element
        model.units[0].forward = lambda x: x @ model.units[0].weight
        return t.fsdp(model)

    return mixed(rank, wrap, torch.float16, mode="window")
