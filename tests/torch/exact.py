"""Gradients whose sums are exact, so that any order of the same sums gives the same bytes.

Multiples of the grid W**N * N, in float64, stay exact through sums over N micro-steps, division by N, and sums and averages over W ranks,
at each step of the way, for W = 2, 3, 4 and N = 2 to 7; so do partial windows of fewer micro-steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import torch


def grid_of(world: int, accumulate: int) -> float:
    return float(world**accumulate * accumulate)


def snap(gradient: torch.Tensor, grid: float, scale: float = 1e4) -> torch.Tensor:
    """The nearest multiple of `grid` to scale * gradient. Larger gradients than 2**53 / scale / W / N are not exact any more."""
    return (gradient * (scale / grid)).round() * grid


def snap_parameters(module: torch.nn.Module, grid: float, scale: float = 1e4) -> list[Any]:
    """Snaps every micro-step's gradient of every parameter before it is accumulated or reduced; returns the hooks' handles.

    On DDP and plain modules. fully_shard replaces parameters with sharded ones, whose hooks it does not run before it reduces:
    put SnapGradient on the activations there, or give it gradients that are exact by themselves.
    """
    assert all(p.dtype == torch.float64 for p in module.parameters()), "exact sums need float64"
    return [p.register_hook(lambda gradient: snap(gradient, grid, scale)) for p in module.parameters() if p.requires_grad]


def parameter_hash(parameters: Iterable[torch.Tensor]) -> str:
    """Of the bytes of all parameters in order; sharded ones are gathered, which is a collective."""
    digest = hashlib.sha256()
    for parameter in parameters:
        data: Any = parameter.detach()
        whole = data.full_tensor() if hasattr(data, "full_tensor") else data
        digest.update(whole.contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
