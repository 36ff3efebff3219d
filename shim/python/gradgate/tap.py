"""The tap: sees every collective that goes through c10d's dispatcher, and counts it into a ledger.

    tap = load()                          one per process; registered with torch once, for as long as the process lives
    tap.bind(ledger)                      from here on collectives are counted; unbound, a call costs a check more than without a tap
    tap.role(ledger, group_name, role)    what a process group is for; others are OTHER
    with a micro-step open:  tap.active(ledger); …; tap.active(None)

A collective goes to the active ledger if that knows its group, else to the bound one that does, else to the first bound. It carries
gradients if a floating tensor is all-reduced in a DP or REPLICATE group, or reduce-scattered in a SHARD group, inside a backward or
while this thread is `late`, and has one of the sizes that were declared. It is counted when issued and again when done: as soon as
its future says so (Gloo), when `poll` finds its Work completed, or at once as unknown where nothing can tell.

Three kinds: native (C++, shim/torch), Python (the same registration, slower), and one that sees nothing. None of them changes a
result or raises of itself. Setup calls: the loop's thread. Collectives: any thread. A forked child starts with nothing bound.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

BLIND_SPOTS = (
    "process groups implemented in Python (subclasses of ProcessGroup)",
    "backends called directly, past c10d's operators",
    "symmetric memory (torch.distributed._symmetric_memory)",
    "replays of CUDA graphs: what was captured is counted once, when captured",
    "communication beside c10d: NCCL, MPI, UCX or Gloo called by other libraries, device-initiated kernels",
)


class LedgerLike(Protocol):
    """gradgate.ledger.Ledger, as far as the tap needs it. Unbind it before it is destroyed."""

    handle: int  # address of the gg_ledger

    @property
    def micro_step_begin(self) -> Callable[[int], int]: ...
    @property
    def micro_step_end(self) -> Callable[[], None]: ...

    def collective_issued(self, group: int, op: int, traffic: int, byte_count: int, tensors: int = 1) -> int: ...
    def collective_done(self, group: int, op: int, traffic: int, issue_ns: int, outcome: int) -> None: ...


class Tap:
    """The tap that sees nothing, and what the other two share."""

    native = False
    seeing = False
    reason = "tap_off"  # why it is not the native one: "tap_off", "tap_python", or ""

    def __init__(self) -> None:
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._errors: dict[int, BaseException] = {}
        self._not_understood: tuple[str, ...] = ()

    def bind(self, ledger: LedgerLike) -> None:
        """Collectives are counted into `ledger` from now on."""

    def unbind(self, ledger: LedgerLike) -> None:
        """Nothing more reaches `ledger` once this returns; what is in flight is dropped. Twice is fine."""

    def role(self, ledger: LedgerLike, group_name: str, role: int) -> None:
        """What a process group is for, a gradgate.adapters.base.Role; one may be for several."""

    def ours(self, group_name: str) -> None:
        """Whatever runs on this group is gradgate's own."""

    def active(self, ledger: LedgerLike | None) -> None:
        """The ledger whose micro-step is open."""

    def late(self, on: bool) -> None:
        """Whether this thread issues gradient collectives outside a backward."""

    def gradient_sizes(self, ledger: LedgerLike, sizes: Iterable[int] | None) -> None:
        """Elements that a gradient collective can have, summed over its tensors, as handed in (a reduce-scatter: before it
        scatters); None: any."""

    def reducer(self) -> Callable[..., object] | None:
        """Makes what reduces unwrapped parameters in C++, as adapters.plain takes it; None where there is none."""
        return None

    def poll(self) -> None:
        """Asks what is outstanding whether it has completed. Does not block; at most 4096 works."""

    def blind(self, ledger: LedgerLike) -> None:
        """Its counts were found wrong: nothing more is counted into `ledger`, and the tap says that it does not see."""
        self.seeing = False
        self.unbind(ledger)

    def outstanding(self) -> int:
        """Works that `poll` will ask."""
        return 0

    def steps(self, ledger: LedgerLike) -> tuple[Callable[[int], int], Callable[[], None]]:
        """`begin(last) -> closes` and `end()` of a ledger's micro-steps, by the shortest way, which also set what is active. They raise
        what ledger.micro_step_begin and micro_step_end raise."""
        return ledger.micro_step_begin, ledger.micro_step_end

    def on_first_gradient(self, ledger: LedgerLike, callback: Callable[[], object] | None) -> None:
        """Calls back once, on the issuing thread, just before the ledger's next gradient collective is dispatched. What it issues is
        classified like anything else. What it raises is kept for `error`."""
        handle = ledger.handle
        if callback is None:
            self._callbacks.pop(handle, None)
        else:
            self._callbacks[handle] = callback
        self._arm(handle, callback is not None)

    def error(self, ledger: LedgerLike) -> BaseException | None:
        """What the last first-gradient callback raised; reading it clears it."""
        return self._errors.pop(ledger.handle, None)

    def raise_error(self, ledger: LedgerLike) -> None:
        if self._errors and (error := self.error(ledger)) is not None:
            raise error

    def blind_spots(self) -> tuple[str, ...]:
        """What is not counted, for people."""
        return BLIND_SPOTS + tuple(f"{name}: not understood by this version of gradgate" for name in self._not_understood)

    def _arm(self, handle: int, on: bool) -> None:
        pass

    def _fire(self, handle: int) -> None:
        """The callback of a ledger, whatever it does."""
        callback = self._callbacks.pop(handle, None)
        if callback is None:
            return
        try:
            callback()
        except BaseException as error:  # also KeyboardInterrupt: raised where the loop can see it, not inside the engine
            self._errors[handle] = error


_loaded: Tap | None = None


def load() -> Tap:
    """The process's tap. The first call may compile for a while (with a line that says so). Any failure to get the native one is one
    warning, and the Python one."""
    global _loaded  # noqa: PLW0603 - torch's dispatcher, which it registers with, is one per process
    if _loaded is None:
        _loaded = _load(os.environ.get("GRADGATE_TAP", "native"))
    return _loaded


def _load(wanted: str) -> Tap:
    if wanted == "off":
        return Tap()
    if wanted not in ("native", "python"):
        warnings.warn(f"GRADGATE_TAP={wanted!r} is none of native, python, off; taken as native", stacklevel=3)
    from ._tap_python import PythonTap  # noqa: PLC0415 - imports torch.distributed

    if wanted == "python":
        return PythonTap()
    try:
        from ._tap_native import NativeTap  # noqa: PLC0415

        return NativeTap()
    except Exception as error:
        warnings.warn(
            f"gradgate: the collective tap is the Python one (tap_python), about 17 µs a collective: {error}",
            RuntimeWarning,
            stacklevel=3,
        )
        return PythonTap()
