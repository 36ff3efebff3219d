"""Models whose gradients are known numbers, and windows over them, for the tests of the sharding wrappers.

A micro-step names the parameters it uses and a factor; the gradient of each is factor times a fixed pattern. With factors from
exact.grid_of every order of sums gives the same bytes, so a window is right when its parameters equal those of reducing each micro-step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import exact
import torch
from gradgate.adapters.base import Adapter, Plan

ACCUMULATE = 4
ALL = "abcdefg"
BLOCKS = ("ab", "cd", "ef")  # g is the root's own


class Block(torch.nn.Module):
    def __init__(self, names: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.names = names
        for name, shape in zip(names, ((5, 3), (4,)) if names != "ef" else ((6,), (6,)), strict=True):
            setattr(self, name, torch.nn.Parameter(torch.zeros(shape, dtype=dtype)))

    def forward(self, x: torch.Tensor, factor: float, used: str) -> torch.Tensor:
        for name in self.names:  # named_parameters() has one flat one, or none, under some wrappers
            if name in used:
                parameter: torch.Tensor = getattr(self, name)
                pattern = torch.arange(1, parameter.numel() + 1, dtype=parameter.dtype).view(parameter.shape)
                x = x + (parameter * (pattern * factor)).sum()
        return x


class Net(torch.nn.Module):
    """`used` names parameters; a block none of whose is used is not run at all."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.g = torch.nn.Parameter(torch.zeros(3, dtype=dtype))
        self.blocks = torch.nn.ModuleList(Block(names, dtype) for names in BLOCKS)
        self.around: Callable[..., torch.Tensor] | None = None  # activation checkpointing, say

    def forward(self, factor: float, used: str = ALL) -> torch.Tensor:
        pattern = torch.arange(1, 4, dtype=self.g.dtype) * factor
        x = (self.g * pattern).sum() if "g" in used else torch.zeros((), dtype=self.g.dtype)
        for names, block in zip(BLOCKS, self.blocks, strict=True):
            if set(names) & set(used):
                x = self.around(block, x, factor, used) if self.around else block(x, factor, used)
        return x


class Fails(torch.autograd.Function):
    """The identity, with a backward that wants more memory than there is."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise MemoryError("backward")


def failing(where: str, at: torch.nn.Module) -> Callable[..., Any]:
    """For Net.around: the forward or the backward of one block fails."""

    def around(block: Callable[..., Any], x: Any, factor: float, used: str) -> Any:
        if where == "forward" and block is at:
            raise MemoryError("forward")
        y, fails = block(x, factor, used), cast(Any, Fails)
        return fails.apply(y) if where == "backward" and block is at else y

    return around


@dataclass(frozen=True)
class Micro:
    factor: int = 1
    used: str = ALL
    rank_factor: int = 1  # how much the factor grows from rank to rank


Window = Sequence[Micro]
FULL: Window = [Micro(1), Micro(-3), Micro(2, rank_factor=-2), Micro(5)]


def backward(net: torch.nn.Module, micro: Micro, rank: int, world: int) -> None:
    factor = (micro.factor + micro.rank_factor * rank) * exact.grid_of(world, ACCUMULATE)
    net(factor, micro.used).backward()


def reduce_each(net: torch.nn.Module, windows: Iterable[Window], rank: int, world: int, step: Callable[[], None]) -> None:
    for window in windows:
        for micro in window:
            backward(net, micro, rank, world)
        step()


def deferred(  # noqa: PLR0917
    net: torch.nn.Module,
    adapter: Adapter,
    windows: Iterable[Window],
    rank: int,
    world: int,
    step: Callable[[], None],
    plan: Plan = Plan.ACCUMULATE,
    late: Iterable[int] = (),
) -> None:
    """Each window by `plan`, its last micro-step reducing, but for those whose index is in `late`."""
    late = set(late)
    for index, window in enumerate(windows):
        for i, micro in enumerate(window):
            last = i == len(window) - 1 and index not in late
            adapter.arm(Plan.REDUCE if last else plan)
            try:
                backward(net, micro, rank, world)
            finally:
                adapter.disarm()
        if index in late:
            adapter.late()
        adapter.check()
        assert not adapter.pending()
        adapter.settle()
        step()


def stepping(net: torch.nn.Module, make: Callable[..., Any] = torch.optim.SGD, **options: Any) -> Callable[[], None]:
    optimizer = make(net.parameters(), **{"lr": 0.5, **options})

    def step() -> None:
        optimizer.step()
        optimizer.zero_grad()

    return step
