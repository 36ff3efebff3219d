"""One micro-step as a context: the hot path.

`sync.micro_step()` hands out the same object each time; entering it asks the ledger whether this micro-step closes its window and sets
the wrappers' flags before the forward, since DDP reads its flag there; leaving it puts them back and, at a boundary, ends the window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from .adapters.base import Plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from .adapters.base import Adapter
    from .window import Window

BY_COUNT, NOT_LAST, LAST = 0, 1, 2


def _yielding(adapter: Adapter) -> Callable[[Plan], None]:
    def arm(plan: Plan) -> None:
        suppressed = adapter.suppressed()
        if plan is Plan.ACCUMULATE or not suppressed:
            adapter.arm(plan)
        if plan is Plan.ACCUMULATE and not suppressed:
            adapter.keep_forward()

    return arm


class MicroStep:
    __slots__ = ("_arms", "_begin", "_disarms", "_end", "_window", "items", "last", "open_plan")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._begin = window.begin
        self._end = window.end
        self._arms: tuple[Callable[[Plan], None], ...]
        self._disarms: tuple[Callable[[], None], ...]
        self.drive()
        self.open_plan = Plan.ACCUMULATE
        self.last = BY_COUNT
        self.items: int | None = None

    def drive(self) -> None:
        """The window's wrappers are others from here on."""
        window = self._window
        self._arms = tuple(adapter.arm for adapter in window.adapters)
        self._disarms = tuple(window.job.disarm(adapter) for adapter in window.adapters)

    def yield_to_script(self) -> None:
        """From here on a wrapper that the script keeps from reducing is left so, where the plan is to reduce."""
        self._arms = tuple(map(_yielding, self._window.adapters))

    def begin_by(self, begin: Callable[[int], int]) -> None:
        """From here on entering calls `begin`, with what the ledger's is called with."""
        self._begin = begin

    def refuse(self, begin: Callable[[int], int]) -> None:
        """From here on entering calls `begin`, which raises."""
        self._begin, self._window.attention = begin, False

    def __enter__(self) -> Self:
        window = self._window
        if window.attention:
            window.prepare()
        if self.items is not None:
            window.any_items = True  # the ballot may leave in this micro-step's backward
        closes = self._begin(self.last)
        window.inside = True
        try:
            if closes:
                window.open_boundary(self._arms)
                return self
            plan = self.open_plan
            for arm in self._arms:
                arm(plan)
        except BaseException as error:
            window.micro_step_failed(error)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        window = self._window
        if error is not None:
            window.micro_step_failed(error)
            return
        if self.items is not None:
            window.items += self.items
            window.item_steps += 1
        try:
            for disarm in self._disarms:
                disarm()
            self._end()
        except BaseException as failed:
            window.micro_step_failed(failed)
            raise
        window.inside = False
        window.micro_steps += 1
        if window.closing:
            window.close_boundary()
