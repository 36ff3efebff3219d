"""Where a ledger is and what it counts, and how its statuses become exceptions."""

from __future__ import annotations

from . import _abi
from .errors import raise_status

MODES = {"every_micro_step": 1, "window": 2, "window_replica": 3, "auto": 4}
_MODE_NAMES = {value: name for name, value in MODES.items()}
OPERATIONS = (
    *("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather"),
    *("scatter", "all_to_all", "barrier", "send", "recv"),
)


class Counts:
    """`handle` is the gg_ledger's address: 0 before it is created and after it is destroyed. Thread class: any."""

    def __init__(self) -> None:
        self.handle = 0
        self._c = _abi.library()
        self._error = _abi.Error()
        self._error_at = _abi.addressof(self._error)

    def _check(self, status: int) -> None:
        if status:
            raise_status(status, self._error.message.decode(errors="replace"))

    def _place(self) -> _abi.Place:
        place = _abi.Place()
        self._check(self._c.gg_ledger_place(self.handle, place, self._error_at))
        return place

    @property
    def window_index(self) -> int:
        return int(self._place().window_index)

    @property
    def micro_steps(self) -> int:
        """Ended ones of the open window."""
        return int(self._place().micro_steps)

    @property
    def in_micro_step(self) -> bool:
        return bool(self._place().in_micro_step)

    @property
    def mode(self) -> str:
        """In force; every_micro_step where GRADGATE is off or audit."""
        return _MODE_NAMES[self._place().mode]

    def issued(self, group: int | None = None) -> int:
        """Gradient collectives since the micro-step or the late reduction began; of all roles, or of one."""
        groups = range(_abi.GROUP_OTHER + 1) if group is None else (group,)
        return sum(self._c.gg_ledger_issued(self.handle, g) for g in groups)

    def trainer_issued(self, group: int) -> int:
        """As issued, with the trainer's other collectives."""
        return int(self._c.gg_ledger_trainer_issued(self.handle, group))

    def collective_issued(self, group: int, op: int, traffic: int, byte_count: int, tensors: int = 1) -> int:
        """Counts one; returns the time for collective_done. Any thread."""
        return int(self._c.gg_ledger_collective_issued(self.handle, group, op, traffic, byte_count, tensors))

    def collective_done(self, group: int, op: int, traffic: int, issue_ns: int, outcome: int) -> None:
        """Any thread."""
        self._c.gg_ledger_collective_done(self.handle, group, op, traffic, issue_ns, outcome)

    def stats(self) -> _abi.Stats:
        out = _abi.Stats()
        self._check(self._c.gg_ledger_stats_get(self.handle, out, self._error_at))
        return out

    def role_stats(self, group: int) -> _abi.RoleStats:
        out = _abi.RoleStats()
        self._check(self._c.gg_ledger_role_stats_get(self.handle, group, out, self._error_at))
        return out

    def collective_stats(self, group: int, op: int | str) -> _abi.CollectiveStats:
        out = _abi.CollectiveStats()
        number = OPERATIONS.index(op) if isinstance(op, str) else op
        self._check(self._c.gg_ledger_collective_stats_get(self.handle, group, number, out, self._error_at))
        return out
