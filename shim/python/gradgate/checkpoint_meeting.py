"""Whether all ranks call sync.state_dict() at the same place, asked before anything is reduced.

    each rank: its key, one more in the count ──► the last to come decides "all are here"
    a deadline that is over                   ──► decides who is missing; whoever comes later reads the same
    all are here: one all-gather of a row of numbers each

Through the job's store, not by a collective: one rank alone would pair it with another's ballot. After a decision against, nothing has
been done on any rank, and the run can go on.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from .ledger import DeadlineExceeded

if TYPE_CHECKING:
    from .agreement import Agreement

_ALL = "all"
_LONGEST_PAUSE_S = 0.02


class Meeting:
    """One place in a window, named alike on all ranks. Thread class: the loop's thread."""

    def __init__(self, agreement: Agreement, where: str, deadline_s: float) -> None:
        self._store = agreement.store(where)
        self._agreement = agreement
        self._rank = agreement.rank
        self._deadline_s = deadline_s

    def failed(self) -> bool:
        """Whether the others have met, or given up, without this rank."""
        return self._store.check(["decided"]) and bytes(self._store.get("decided")).decode() != _ALL

    def wait(self) -> None:
        """Until all ranks are here. DeadlineExceeded, on all that came, naming those that did not."""
        store = self._store
        store.set(f"here/{self._rank}", "1")
        if store.add("count", 1) == self._agreement.world:
            self._decide(_ALL)
        elif not self._decided(self._deadline_s):
            missing = [rank for rank in range(self._agreement.world) if not store.check([f"here/{rank}"])]
            self._decide(", ".join(map(str, missing)) or _ALL)
        if not self._decided(self._deadline_s):
            raise DeadlineExceeded(f"sync.state_dict(): the job's store does not answer within {self._deadline_s:g} s")
        told = bytes(store.get("decided")).decode()
        if told != _ALL:
            raise DeadlineExceeded(
                f"sync.state_dict(): ranks [{told}] had not called it after {self._deadline_s:g} s, and in the "
                "middle of a window all ranks reduce there: call it on every rank, and write the file on one; or call it at a boundary, "
                "after the step. Nothing was changed"
            )

    def rows(self, row: list[int]) -> list[list[int]]:
        """Every rank's row. Collective; forgets the meeting's keys."""
        rows = self._agreement.rows(row)
        with contextlib.suppress(Exception):  # a store may not be able to
            for key in (f"here/{self._rank}", *(("count", "decision", "decided") if self._rank == 0 else ())):
                self._store.delete_key(key)
        return rows

    def _decide(self, what: str) -> None:
        """The first to decide has."""
        if self._store.add("decision", 1) == 1:
            self._store.set("decided", what)

    def _decided(self, seconds: float) -> bool:
        end, pause = time.monotonic() + seconds, 50e-6
        store: Any = self._store
        while not store.check(["decided"]):
            if time.monotonic() >= end:
                return False
            time.sleep(pause)
            pause = min(1.5 * pause, _LONGEST_PAUSE_S)
        return True
