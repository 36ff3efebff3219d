"""Models of the DDP rows: each has one thing that a reducer has to get right."""

from __future__ import annotations

from typing import Any

import torch
from reducing import Net
from torch.utils.checkpoint import checkpoint


class Branch(Net):
    """`c` is used by those micro-steps that `used_by` says; `d` never."""

    def __init__(self) -> None:
        super().__init__()
        self.c = torch.nn.Linear(4, 2, bias=False)
        self.d = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor, rank: int, step: int) -> torch.Tensor:
        out = super().forward(x, rank, step)
        return out + self.c(x) if self.used_by(rank, step) else out  # type: ignore[no-any-return]


class TwoTypes(Net):
    def __init__(self) -> None:
        super().__init__()
        self.short = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
        self.imaginary = torch.nn.Parameter(torch.ones(2, dtype=torch.complex128))

    def forward(self, x: torch.Tensor, rank: int, step: int) -> torch.Tensor:
        return super().forward(x, rank, step) + self.short.double() + self.imaginary.real


class Table(Net):
    """Sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.nn.Embedding(6, 4, sparse=True)

    def forward(self, x: torch.Tensor, rank: int, step: int) -> torch.Tensor:
        return super().forward(x + self.rows(torch.tensor([rank, step])), rank, step)


class Normed(torch.nn.Module):
    """Not exact: compared with the same windows reduced in time."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.b = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, rank: int, step: int) -> torch.Tensor:
        return self.b(self.norm(self.a(x)))  # type: ignore[no-any-return]


class ChannelsLast(torch.nn.Module):
    """Weights whose memory is not in the order of their indices."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 2, bias=False)
        self.b = torch.nn.Linear(4, 2)
        self.conv.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: torch.Tensor, rank: int, step: int) -> torch.Tensor:
        image = torch.arange(12.0, dtype=x.dtype).reshape(1, 3, 2, 2) + x[0, 0]
        return self.b(self.conv(image).flatten(1))  # type: ignore[no-any-return]


class Recomputed(Net):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor, rank: int, step: int) -> torch.Tensor:
        x = x.clone().requires_grad_()
        hidden: Any = checkpoint(self.a, x, use_reentrant=self.reentrant)
        return self.b(hidden)  # type: ignore[no-any-return]
