"""mode="auto": begins with the least memory and moves up when every rank has room for more.

    wrapper              rungs, from the least memory
    DDP, unwrapped       window
    FSDP, one dimension  every_micro_step ─► window ─► window, parameters kept
    HSDP                 window_replica ─► window ─► window, parameters kept

Where a window's gradients have no room but kept parameters have, as with parameters of two bytes, the way is first rung ─► first rung,
parameters kept ─► window, parameters kept. Windows of one micro-step defer nothing, so that window is no rung there. No rung is slower
than the one below it: those are the planner's modes in its order (planner/modes.h).

A rung is left after two full windows beyond the first step, when the headroom that they showed is larger, on every rank, than what the
next rung costs; the ballot carries the minimum. Where it is not, the other way is tried after as many windows. Never after an
out-of-memory, and not where there is no limit to compare with.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch

from .adapters.base import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from .adapters.base import Adapter
    from .options import Options

_log = logging.getLogger("gradgate")
UNKNOWN = 2**63 - 1  # no limit to compare with
_WINDOWS = 3  # the first, whose step allocates optimizer state, and two more
_SPARE = 0.1  # of the limit, left alone


class Rungs(Protocol):
    """What decides on an attachment's mode, window by window; see Ladder."""

    @property
    def mode(self) -> str: ...
    @property
    def keep(self) -> bool: ...
    def headroom_bytes(self, window: int, /) -> int: ...
    def climb(self, window: int, min_headroom_bytes: int, /) -> bool: ...


class Rung(NamedTuple):
    mode: str
    keep: bool
    cost: Callable[[], int] = lambda: 0  # bytes beyond the first rung's
    above: tuple[int, ...] = ()  # rungs that may follow, in the order in which they are tried


class Ladder:
    def __init__(self, rungs: list[Rung], device: torch.device) -> None:
        self._rungs = rungs
        self._device = device
        self._since = 0  # window in which this rung began, or the last try ended
        self._tries = 0  # from this rung
        self.at = 0
        self.out_of_memory = False
        self.unlimited = False  # there is no memory limit to compare with

    @property
    def mode(self) -> str:
        return self._rungs[self.at].mode

    @property
    def keep(self) -> bool:
        return self._rungs[self.at].keep

    def _next(self) -> int:
        above = self._rungs[self.at].above
        return above[self._tries % len(above)]

    def _due(self, window: int) -> bool:
        return bool(self._rungs[self.at].above) and window == self._since + _WINDOWS - 1

    def restart(self, window: int) -> None:
        """It begins at this window."""
        self._since = window

    def headroom_bytes(self, window: int) -> int:
        """What is free beyond the next rung's cost, for the ballot of `window`; UNKNOWN when nobody asks or nothing limits."""
        if not self._due(window):
            return UNKNOWN
        if self.out_of_memory:
            return -1
        free, limit = memory(self._device)
        if limit == 0:
            return UNKNOWN
        # A control group's memory is shared by the ranks of the node.
        ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if self._device.type == "cpu" else 1
        costs = self._rungs[self._next()].cost() - self._rungs[self.at].cost()
        return int(free - _SPARE * limit - ranks * costs)

    def climb(self, window: int, min_headroom_bytes: int) -> bool:
        """After the ballot of `window`; the same answer on all ranks."""
        if not self._due(window):
            return False
        if min_headroom_bytes == UNKNOWN:
            if not self.unlimited:
                _log.info("gradgate: mode='auto' stays with %r: no memory limit is known here to compare with", self.mode)
            self.unlimited = True
            self._since = window + 1
            return False
        self._since = window + 1
        if min_headroom_bytes < 0:
            self._tries += 1
            return False
        self.at, self._tries = self._next(), 0
        return True


class Fixed:
    """One rung for good: a policy's."""

    def __init__(self, mode: str, keep: bool) -> None:
        self.mode = mode
        self.keep = keep

    def headroom_bytes(self, _window: int, /) -> int:
        return UNKNOWN

    def climb(self, _window: int, _min_headroom_bytes: int, /) -> bool:
        return False


def ladder(adapters: list[Adapter], options: Options, notes: list[tuple[str, str]]) -> Ladder:
    """The rungs for these wrappers under these options; notes gets what has no effect."""
    mode, keep = options.mode, bool(options.keep_params)
    for option, value in (
        ("mode", mode if mode != "auto" else None),
        ("keep_params", keep or None),
        ("windows", "variable" if options.variable else None),
    ):
        for adapter in adapters if value is not None else []:
            nothing = adapter.no_effect(option, value)
            if nothing is None:
                continue
            if option == "windows":
                raise ValueError(f"windows='variable': {nothing.text}")
            notes.append((nothing.reason, nothing.text))
            if option == "keep_params":
                keep = False
            elif mode == "window_replica":
                mode = "every_micro_step" if any(g.role == Role.SHARD for a in adapters for g in a.groups()) else "window"
    for adapter in adapters:
        nothing = adapter.no_effect("mode", "window_replica")
        if nothing is not None and nothing.reason == "shards_nothing" and (nothing.reason, nothing.text) not in notes:
            notes.append((nothing.reason, nothing.text))
    roles = {g.role for a in adapters for g in a.groups()}
    parameter = next((p for a in adapters for p in a.parameters()), None)
    device = parameter.device if parameter is not None else torch.device("cpu")
    if mode != "auto" or Role.SHARD not in roles:
        return Ladder([Rung("window" if mode == "auto" else mode, keep)], device)
    base = "window_replica" if Role.REPLICATE in roles else "every_micro_step"
    may_keep = options.keep_params is None and all(a.no_effect("keep_params", True) is None for a in adapters)

    def deferred() -> int:
        return sum(a.deferred_bytes() for a in adapters)

    def unsharded() -> int:
        return sum(a.unsharded_bytes() for a in adapters)

    return Ladder(_rungs(base, keep, options.accumulate != 1, may_keep, deferred, unsharded), device)


def _rungs(base: str, keep: bool, may_defer: bool, may_keep: bool, deferred: Callable[[], int], unsharded: Callable[[], int]) -> list[Rung]:
    if may_defer and may_keep:
        return [
            Rung(base, keep, above=(1, 2)),
            Rung("window", keep, deferred, (3,)),
            Rung(base, True, unsharded, (3,)),
            Rung("window", True, lambda: deferred() + unsharded()),
        ]
    if may_defer:
        return [Rung(base, keep, above=(1,)), Rung("window", keep, deferred)]
    return [Rung(base, keep, above=(1,)), Rung(base, True, unsharded)] if may_keep else [Rung(base, keep)]


def memory(device: torch.device) -> tuple[int, int]:
    """(free at the peak so far, limit) in bytes; limit 0: unknown."""
    if device.type == "cuda":
        _, total = torch.cuda.mem_get_info(device)
        return total - torch.cuda.max_memory_reserved(device), total
    return _cgroup(Path("/sys/fs/cgroup"))


def _cgroup(root: Path) -> tuple[int, int]:
    """Of this process's control group (version 2), its peak since it began; shared by all its processes."""
    path = root
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                path = root / line[3:].lstrip("/")
    for name, peak in (("memory.max", "memory.peak"),):
        with suppress(OSError, ValueError):
            limit = int((path / name).read_text())  # "max" is a ValueError
            return limit - int((path / peak).read_text()), limit
    return 0, 0
