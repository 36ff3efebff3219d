"""The same loop without gradgate: every micro-step reduces, by the wrapper's own means."""

from __future__ import annotations

import contextlib
from typing import Any

import torch


class Plain:
    """What the loop needs of gradgate's Sync, and nothing more."""

    def __init__(self, model: torch.nn.Module, accumulate: int, divide_by: int = 1) -> None:
        self.parameters = list(model.parameters())
        self.accumulate, self.divide_by, self.micro_steps = accumulate, divide_by, 0

    def micro_step(self) -> contextlib.AbstractContextManager[None]:
        self.micro_steps += 1
        return contextlib.nullcontext()

    @property
    def boundary(self) -> bool:
        if self.micro_steps < self.accumulate:
            return False
        self._end(1)
        return True

    def flush(self, divisor: int) -> bool:
        if self.micro_steps == 0:
            return False
        self._end(divisor / self.micro_steps)
        return True

    def _end(self, factor: float) -> None:
        self.micro_steps = 0
        for parameter in self.parameters:
            if parameter.grad is not None and (factor, self.divide_by) != (1, 1):
                parameter.grad.mul_(factor).div_(self.divide_by)

    def stats(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass
