"""Optimizers that step inside the backward, each on a gradient as it arrives: met when that backward is over, and counted.

Every backward is a window then, and has to reduce. Nothing of it is ever enforced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..adapters import recognised
from ..adapters.ddp import Ddp
from .tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from .observed import Observed


def running() -> bool:
    return torch._C._current_graph_task_id() != -1


class Inside:
    """`meet`: called with the first of those that stepped in a backward, once that is over and its wrappers have done their part."""

    def __init__(self, meet: Callable[[torch.optim.Optimizer], None]) -> None:
        self._meet = meet
        self._first: torch.optim.Optimizer | None = None
        self.seen: set[int] = set()  # ids of those that stepped in a backward; whoever calls keeps them alive

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        self.seen.add(id(optimizer))
        if self._first is None:
            self._first = optimizer
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: engine.queue_callback(self._over))

    def _over(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            self._meet(first)


class EachBackward(Tally):
    """A window for each backward. `before`: what is stepped on has not been reduced yet."""

    def __init__(self, one: Observed) -> None:
        super().__init__()
        self._one = one
        self.before = False

    def micro_step(self, place: int, issued: int, busy_ns: int) -> None:
        super().micro_step(place, issued, busy_ns)
        self._one.ended()

    def end(self) -> None:
        counted = self.windows - self.unreduced
        super().end()
        if self.before:
            self.unreduced += self.windows - self.unreduced - counted


def tell(one: Observed) -> None:
    """After it is attached for counting: where the hooks did not show it before."""
    ledger, tally = one.sync.window.ledger, one.tally
    assert isinstance(tally, EachBackward)
    tally.before = any(isinstance(adapter, Ddp) for adapter in one.sync.window.job.adapters) and not any(
        hasattr(parameter, "_in_backward_optimizers") for parameter in one.sync.window.job.parameters
    )
    if not ledger.told.keys() & {"optimizer_in_backward", recognised.EARLY}:
        names = sorted({type(optimizer).__name__ for optimizer in one.optimizers})
        text = f"{', '.join(names)} steps inside the backward, so every backward reduces. To accumulate, step after the backward instead"
        ledger.warn("optimizer_in_backward", text)
