"""Exact sums: gradients on a grid on which every sum and every division of a window is exact, in whatever order it is taken.

Then training with and without gradgate, on several ranks or on one, must give the same bytes, and a comparison of hashes tells.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

SCALE = 2.0**36  # integers below 2**53 are exact in float64: gradients below 2**17 stay so


def spacing(world: int, accumulate: int) -> float:
    """Multiples of it can be divided by the world after each of `accumulate` sums, and at the end by any number of micro-steps."""
    return float(world**accumulate * math.lcm(*range(1, accumulate + 1))) / SCALE


class _Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parameter: torch.Tensor, step: float) -> torch.Tensor:
        ctx.step = step
        return parameter.view_as(parameter)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return (gradients[0] / ctx.step).round() * ctx.step, None


class RoundGradient(nn.Module):
    """Hands a parameter on, and rounds the gradient that comes back: once a micro-step, before any wrapper sees it."""

    def __init__(self, step: float) -> None:
        super().__init__()
        self.step = step

    def forward(self, parameter: torch.Tensor) -> torch.Tensor:
        rounded: torch.Tensor = _Round.apply(parameter, self.step)  # type: ignore[no-untyped-call]
        return rounded


def round_gradients(model: nn.Module, step: float) -> nn.Module:
    """In float64; each parameter must be used once in a forward."""
    model.double()
    for module in list(model.modules()):
        for name, _ in list(module.named_parameters(recurse=False)):
            parametrize.register_parametrization(module, name, RoundGradient(step))
    return model
