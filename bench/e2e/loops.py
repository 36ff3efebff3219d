"""A model of equal linear layers, its data, and the loops that people write by hand. One call of a loop is one window.

Every loop ends with a step on parameters that are the same on all ranks, so each trains; nothing is fetched or logged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

N = 4


def model(layers: int, width: int) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)))


class Trainer:
    def __init__(self, module: nn.Module, width: int, batch: int, accumulate: int = N) -> None:
        self.module: Any = module
        self.optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
        generator = torch.Generator().manual_seed(2)
        self.data = [torch.randn(batch, width, generator=generator) for _ in range(accumulate)]

    def micro_step(self, batch: torch.Tensor) -> None:
        (self.module(batch).square().mean() / len(self.data)).backward()

    def step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def every(self) -> None:
        for batch in self.data:
            self.micro_step(batch)
        self.step()

    def flagged(self, setter: Callable[[bool], None]) -> None:
        """The loop around FSDP2's flags; setter(True) in the last micro-step."""
        for i, batch in enumerate(self.data):
            setter(i == len(self.data) - 1)
            self.micro_step(batch)
        self.step()

    def no_sync(self) -> None:
        """DDP's own context around forward and backward."""
        for i, batch in enumerate(self.data):
            with self.module.no_sync() if i < len(self.data) - 1 else contextlib.nullcontext():
                self.micro_step(batch)
        self.step()

    def unreduced(self) -> None:
        """DDP without any reduction: what computing alone takes."""
        with self.module.no_sync():
            self.every()

    def gated(self, sync: Any) -> Callable[[], None]:
        def loop() -> None:
            for batch in self.data:
                with sync.micro_step():
                    self.micro_step(batch)
            if not sync.boundary:
                raise RuntimeError("the window is not closed after its last micro-step")
            self.step()

        return loop


def calibrate(bench: Any, every: Callable[[], None], computing: Callable[[], None], wanted: tuple[float, float], rate: float) -> None:
    """Changes the link's rate until a reduction takes `wanted` times what computing does, per micro-step; where noise prevents that,
    leaves the best rate that was tried."""
    low, high = wanted
    middle, margin = (low + high) / 2, (high - low) / 5
    tried: dict[float, float] = {}
    for _ in range(bench.options["calibrations"]):
        bench.ask("rate", rate)
        took = bench.medians({"every": every, "computing": computing}, bench.options["calibration_rounds"])
        share = (took["every"] - took["computing"]) / took["computing"]
        tried[rate] = abs(share - middle)
        if low + margin <= share <= high - margin:
            break
        rate *= min(max(share / middle, 0.5), 2.0)
    best = min(tried, key=lambda one: tried[one])
    bench.ask("rate", best)
    bench.figure("rate", best)
