"""The tap in C++ (shim/torch): under half a microsecond a collective."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _abi, _tap_build
from ._tap_operators import capturing, operators
from .tap import Tap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from .tap import LedgerLike


class NativeTap(Tap):
    native = True
    seeing = True
    reason = ""

    def __init__(self) -> None:
        """Raises _tap_build.Unbuildable."""
        super().__init__()
        found, not_understood = operators()
        self._extension = extension = _tap_build.extension()
        taken = []
        for operator in found:
            name, _, overload = operator.name.removeprefix("c10d::").partition(".")
            if not extension.watch(name, overload, operator.op, operator.group, operator.payload):
                taken.append(operator.name)
        self._not_understood = (*not_understood, *taken)
        extension.on_first_gradient(self._fire)
        self._steps: dict[int, list[Any]] = {}
        # Without a Python frame around them.
        self.active = extension.active  # type: ignore[method-assign]
        self.late = extension.late  # type: ignore[method-assign]
        self.outstanding = extension.outstanding  # type: ignore[method-assign]

    def bind(self, ledger: LedgerLike) -> None:
        self._extension.bind(ledger.handle, _abi.address("gg_ledger_collective_issued"), _abi.address("gg_ledger_collective_done"))

    def unbind(self, ledger: LedgerLike) -> None:
        self._extension.unbind(ledger.handle)
        self._callbacks.pop(ledger.handle, None)
        for capsule in self._steps.pop(ledger.handle, ()):
            self._extension.stop(capsule)

    def role(self, ledger: LedgerLike, group_name: str, role: int) -> None:
        self._extension.role(ledger.handle, group_name, int(role))

    def ours(self, group_name: str) -> None:
        self._extension.ours(group_name)

    def gradient_sizes(self, ledger: LedgerLike, sizes: Iterable[int] | None) -> None:
        self._extension.sizes(ledger.handle, None if sizes is None else tuple(sizes))

    def reducer(self) -> Callable[..., Any]:
        return self._extension.Reducer  # type: ignore[no-any-return]

    def poll(self) -> None:
        if self.outstanding() and not capturing():
            self._extension.poll()

    def steps(self, ledger: LedgerLike) -> tuple[Callable[[int], int], Callable[[], None]]:
        addresses = (_abi.address("gg_ledger_micro_step_begin"), _abi.address("gg_ledger_micro_step_end"))
        capsule, begin, end = self._extension.steps(ledger.handle, *addresses, ledger.micro_step_begin, ledger.micro_step_end)
        self._steps.setdefault(ledger.handle, []).append(capsule)
        return begin, end

    def _arm(self, handle: int, on: bool) -> None:
        self._extension.arm(handle, on)
