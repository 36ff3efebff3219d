"""Micro-steps of a loop that belongs to a framework, driven by the framework's own events.

    begin ──► forward, backward ──► end             a micro-step
                                    step, clip, …   end it as well, and the window, as in any loop
    begin ──► end                   no backward: skipped where the framework told of it, else it was none

Thread class: the loop's thread.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

import torch

from . import division
from .micro_step import BY_COUNT, LAST, NOT_LAST
from .run import backwards

if TYPE_CHECKING:
    from collections.abc import Callable

    from .sync import Sync

_log = logging.getLogger("gradgate")


class _NoBackward(Exception):
    """A micro-step that was none."""


class Steps:
    """Drives one attachment until close(), which calls `close`, by default the attachment's own. `divisor`: what the framework has
    divided each loss by; gradients of a shorter window that it told the end of are multiplied by divisor / actual size. 0: left so."""

    def __init__(self, sync: Sync, close: Callable[[], None] | None = None, *, divisor: int = 0) -> None:
        self.sync = sync
        self._close = close or sync.close
        self._divisor = divisor
        self._window = sync.window
        self._before = 0
        self._guessed = False
        self._closed = False
        self._window.leave = self._leave
        backwards.count()

    @property
    def inside(self) -> bool:
        return self._window.inside

    @property
    def ran(self) -> bool:
        """A backward has begun since the open micro-step did."""
        return backwards.begun() > self._before

    def begin(self, last: bool | None, *, guessed: bool = False) -> None:
        """`last`: as for sync.micro_step. `guessed`: where no backward comes it was none, rather than skipped."""
        self.end()
        self._before = backwards.begun()
        self._guessed = guessed
        self.sync.enter(BY_COUNT if last is None else LAST if last else NOT_LAST)

    def end(self) -> None:
        """Of the open micro-step, if there is one."""
        if not self._window.inside:
            return
        if not self.ran and self._guessed:
            self.drop()
            return
        if not self.ran:
            self.sync.skip()
        self.sync.leave(None, None)
        window = self._window
        if self._divisor and window.at_boundary:
            division.flush_mended(window, self._divisor)

    def drop(self, error: BaseException | None = None) -> None:
        """The open micro-step failed with `error`, or was none."""
        if self._window.inside:
            self.sync.leave(error or _NoBackward(), None)

    def _leave(self) -> None:
        """Something reads gradients."""
        if self._window.inside and torch._C._current_graph_task_id() == -1:
            self.end()

    def before_evaluation(self, *, zeroed: bool = False) -> None:
        """Between two micro-steps. `zeroed`: the framework has thrown the gradients away, on the module."""
        self._window.settle()
        if zeroed:
            self._window.zeroed()

    def close(self) -> None:
        """Of the attachment, too; twice is fine. No collective."""
        if self._closed:
            return
        self._closed = True
        self.drop()
        self._window.leave = None
        backwards.ignore()
        self._close()


class Fit:
    """What a framework's callback keeps from attaching, when training begins, to the end of it. `sync` is the attachment meanwhile;
    `left_alone` says why there is none, if so."""

    def __init__(self) -> None:
        super().__init__()
        self.sync: Sync | None = None
        self.left_alone = ""
        self._steps: Steps | None = None
        self._former: dict[str, Any] = {}  # counts of attachments that this one follows
        self._restore = contextlib.ExitStack()

    def stats(self) -> dict[str, Any]:
        """Counts of this rank in the last training, as Sync.stats() has them; {} before the first."""
        return dict(self._former) if self.sync is None else add(self._former, self.sync.stats())

    def _detach(self) -> None:
        self._restore.close()
        if self._steps is not None and self.sync is not None:
            self._steps.close()
            self._former = add(self._former, self.sync.stats())
        self.sync = self._steps = None


def leave_alone(reason: str, text: str, rank: int) -> None:
    """Says why a framework's loop goes on without gradgate."""
    level = logging.DEBUG if rank else logging.WARNING
    _log.log(level, "gradgate [%s], rank %d: %s", reason, rank, text, extra={"reason": reason})


def add(former: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Counts of two attachments that followed each other; what is no count is the later one's."""
    out = {**former, **more}
    for key, value in more.items():
        before = former.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            out[key] = add(before, value)
        elif isinstance(value, int) and not isinstance(value, bool) and isinstance(before, int):
            out[key] = before + value
    return out
