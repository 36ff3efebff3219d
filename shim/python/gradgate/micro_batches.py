"""Micro-batches looked ahead: a window's data is fetched before it runs, so that the last of the data closes its window.

Ranks agree on each window's size before it runs. `stop`: all take as many micro-batches as the rank with the fewest, and stop together
after the first window that was cut short; `zeros`: each runs what it has, and one whose data has ended goes on, with `data` None, until
no rank has any.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from .ledger import Refused
from .micro_step import LAST, NOT_LAST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from .sync import Sync
    from .window import Window


class MicroBatch:
    """One micro-batch, to be used as `with micro: …`. `data`: the batch; None for a rank whose data has ended, which then runs neither
    forward nor backward. `scale`: 1 / size of its window on this rank; `boundary`: whether the optimizer steps now."""

    __slots__ = ("_empty", "_entered", "_items", "_last", "_size", "_sync", "data", "scale")

    def __init__(self, sync: Sync, data: Any, size: int, *, last: bool, empty: bool = False) -> None:
        self._sync = sync
        self._last = last
        self._empty = empty
        self._entered = False
        self._items: int | None = None
        self.data = data
        self._size = size
        self.scale = 1.0 / size

    @property
    def items(self) -> int | None:
        """What the loss is a sum over; to be set before the backward."""
        return self._items

    @items.setter
    def items(self, count: int) -> None:
        window = self._sync.window
        if window.voted and not (window.any_items or window.job.always_sums):
            raise Refused("items are told after the boundary's backward has begun, and the ranks have agreed on none: set them before")
        window.any_items = True
        self._items = count

    def __enter__(self) -> Self:
        self._entered = True
        if not self._empty:
            self._sync.enter(LAST if self._last else NOT_LAST)
            self._sync.window.planned = self._size
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._empty:
            if error is None:
                self._sync.window.conclude()
            return
        self._sync.leave(error, self._items)
        self.data = ()  # not kept alive until the next one

    def check_entered(self) -> None:
        if not self._entered:
            raise Refused("a micro-batch of sync.micro_batches() was not used: `for micro in sync.micro_batches(loader): with micro: …`")

    @property
    def boundary(self) -> bool:
        return self._last and self._sync.boundary


def micro_batches(sync: Sync, loader: Iterable[Any], accumulate: int, uneven: str) -> Iterator[MicroBatch]:
    agreement = sync.window.agreement
    data = iter(loader)
    while True:
        done = _done(sync.window)
        wanted = max(accumulate - done, 1)
        batches = list(islice(data, wanted))
        least = most = len(batches)
        if agreement is not None:
            (least,), (most,) = agreement.extremes([len(batches)])
        size = least if uneven == "stop" else most
        if size == 0:
            return
        del batches[size:]
        if not batches:
            micro = MicroBatch(sync, None, 1, last=True, empty=True)
            yield micro
            micro.check_entered()
        own = len(batches)
        if done:
            _agree_on_size(sync.window, done + own, uneven)
        for index in range(own):
            batch, batches[index] = batches[index], None
            micro = MicroBatch(sync, batch, done + own, last=index + 1 == own)
            yield micro
            micro.check_entered()
        if uneven == "stop" and least < wanted:
            return


def _done(window: Window) -> int:
    """Micro-steps of an open window that a checkpoint holds a part of: this run goes on with it."""
    return window.micro_steps if window.kept is not None and not window.closed else 0


def _agree_on_size(window: Window, size: int, uneven: str) -> None:
    """The losses in what a checkpoint holds were divided by the size that the window was to have: what that has become is made up for."""
    kept, planned = window.kept, window.planned
    assert kept is not None
    changed = planned not in (0, size)
    together = uneven == "stop" and kept.equal and len(set(kept.planned)) == 1
    conflict = int(changed and not together)
    if window.agreement is not None:
        _, (conflict,) = window.agreement.extremes([conflict])
    if conflict:
        raise Refused(
            f"window {window.ledger.window_index} was to have {planned} micro-steps on this rank when its first part was saved, "
            f"and now has {size}, or the like on another rank: its losses were divided by another number. Feed each rank what was left"
        )
    if changed:
        kept.rescale = planned / size
