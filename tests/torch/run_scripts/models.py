"""Models whose gradients are multiples of a grid, so that any order of the same sums gives the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import exact
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

N = 4  # most micro-steps of a window
FLAT = 92  # elements of Net's parameters


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 8)
        self.b = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.b(torch.relu(self.a(x)))


class Branch(Net):
    """Has layers that some micro-steps do not use."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor, used: bool = True) -> Any:
        return super().forward(x) + self.c(x) if used else super().forward(x)


class Halves(Net):
    """Returns what each of two layers makes of the same."""

    def __init__(self) -> None:
        super().__init__()
        self.b = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.a(x), self.b(x)


class Recomputed(Net):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> Any:
        hidden: Any = checkpoint(self.a, x.clone().requires_grad_(), use_reentrant=self.reentrant)
        return self.b(torch.relu(hidden))


@dataclass
class Output:
    loss: torch.Tensor
    logits: torch.Tensor


class Telling(Net):
    """Computes its loss itself, and returns it as `kind` says."""

    def __init__(self, kind: type) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> Any:
        logits = super().forward(x)
        loss = logits.square().mean()
        return loss if self.kind is torch.Tensor else self.kind(loss=loss, logits=logits)


class Known(nn.Module):
    """Wrapped by FSDP as well: each gradient is `factor` times a fixed pattern."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ModuleList(Weight((size, 4)) for size in (16, 24, 32))

    def forward(self, factor: float) -> Any:
        return sum(weight(factor) for weight in self.weights)


class Weight(nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(shape, dtype=torch.float64))

    def forward(self, factor: float) -> torch.Tensor:
        pattern = torch.arange(1, self.weight.numel() + 1, dtype=torch.float64).view_as(self.weight)
        return (self.weight * (pattern * factor)).sum()


def net(build: Callable[[], nn.Module] = Net, world: int = 2) -> nn.Module:
    torch.manual_seed(7)
    made = build().double()
    exact.snap_parameters(made, exact.grid_of(world, N))
    return made


def ddp(build: Callable[[], nn.Module] = Net, **options: Any) -> DDP:
    return DDP(net(build), **options)
