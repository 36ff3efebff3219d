"""Runs that are saved in the middle of a window, go on, and are loaded again: what the checkpoint rows are made of.

Gradients are multiples of exact.grid_of, so each order of the same sums has the same bytes, for up to four ranks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import exact
import gradgate
import torch
import trainers as t
from torch import nn

N = 4
GRID = exact.grid_of(4, N) * 3**N  # for one to four ranks


class Model(nn.Module):
    """Parameters of several shapes, two of them in blocks; the gradient of each is a pattern times c."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(3, 5, dtype=dtype))
        self.units = nn.ModuleList(t.Unit(size, dtype) for size in (7, 4))

    def forward(self, c: float) -> torch.Tensor:
        pattern = torch.arange(1, 16, dtype=self.first.dtype).view(3, 5)
        return torch.as_tensor((self.first * pattern).sum() * c + self.units[0](c) + self.units[1](2 * c))


def factor(rank: int, i: int) -> float:
    """Of the i-th micro-step."""
    return float(((7 * i + 3) % 5 - 1 + rank * (i % 3 + 1)) * GRID)


def feed(rank: int, first: int, count: int) -> list[float]:
    return [factor(rank, i) for i in range(first, first + count)]


@dataclass
class Run:
    """A model, its optimizer and its attachment, in one process of those in `group`."""

    model: Any
    options: dict[str, Any] = field(default_factory=dict)
    group: Any = None

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5, momentum=0.5)
        self.sync = gradgate.attach(
            self.parts(), self.optimizer, **{"accumulate": N, "group": self.group, "parity_every": 0, **self.options}
        )

    def parts(self) -> Any:
        """What is attached."""
        return self.model

    def train(self, data: Sequence[float], items: Sequence[int] | None = None, skip: Sequence[int] = ()) -> Run:
        for i, c in enumerate(data):
            with self.sync.micro_step(items=items[i] if items else None):
                if i in skip:
                    self.sync.skip()
                else:
                    self.sync.mean(c=c)
                    self.model(c).backward()
            self.step_at_boundary()
        return self

    def step_at_boundary(self) -> None:
        if self.sync.boundary:
            self.optimizer.step()
            self.optimizer.zero_grad()

    def saved(self) -> dict[str, Any]:
        """All three, as torch.save would have them."""
        state = self.sync.state_dict()
        return {"model": copy.deepcopy(self.model.state_dict()), "optim": copy.deepcopy(self.optimizer.state_dict()), "sync": state}

    def load(self, saved: dict[str, Any]) -> Run:
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optim"])
        self.sync.load_state_dict(saved["sync"])
        return self

    def bytes(self) -> str:
        """Of parameters and momenta; gathered, where sharded."""
        state = [s["momentum_buffer"] for s in self.optimizer.state.values() if s.get("momentum_buffer") is not None]
        return exact.parameter_hash([*self.model.parameters(), *state])

    def close(self) -> Run:
        self.sync.close()
        return self


def ddp(group: Any = None, dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    return t.ddp(Model(dtype), process_group=group, **options)


def sharded(mesh: Any, dtype: torch.dtype = torch.float64) -> Any:
    from torch.distributed.fsdp import fully_shard

    model = Model(dtype)
    for unit in model.units:
        fully_shard(unit, mesh=mesh)
    t.KEPT.append(model)
    return fully_shard(model, mesh=mesh)


def differences(make: Callable[[], Run], rank: int, at: int, *, data: Sequence[float] | None = None) -> dict[str, Any]:
    """One run that is saved `at` micro-steps after its first window and goes on, one that loads that, and one that is left in peace."""
    data = feed(rank, 0, 3 * N) if data is None else data
    first = make().train(data[: N + at])
    saved = first.saved()
    first.train(data[N + at :])
    second = make().load(saved)
    second.train(data[N + at :])
    third = make().train(data)
    runs = [run.close() for run in (first, second, third)]
    found = [run.bytes() for run in runs]
    means = [run.sync.means for run in runs]
    return {
        "resumed": found[0] == found[1],
        "uninterrupted": found[0] == found[2],
        "means": means[0] == means[1] == means[2] or means,
        "keys": sorted(saved["sync"]["gradients"]),
        "micro_steps": saved["sync"]["micro_steps"],
    }


def half(rank: int, **options: Any) -> tuple[Run, dict[str, Any]]:
    """A run of fixture F that has saved after two micro-steps, and what it saved: 1 + 2 and 10 + 20."""
    run = Run(t.ddp(), options)
    for x in t.data(rank, 2):
        with run.sync.micro_step():
            run.model(x).backward()
    return run, run.saved()
