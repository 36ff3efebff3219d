"""What goes wrong, as exceptions: one for each status that a caller may want to tell apart."""

from __future__ import annotations

from typing import NoReturn

from . import _abi


class GradgateError(RuntimeError):
    """Any failure of gradgate. `status` is gradgate.h's code."""

    status = _abi.INTERNAL


class InvalidArgument(GradgateError, ValueError):
    """An option or argument; the message names the value and the remedy."""

    status = _abi.INVALID_ARGUMENT


class DeadlineExceeded(GradgateError, TimeoutError):
    """Ranks did not come; the message names them."""

    status = _abi.DEADLINE_EXCEEDED


class Refused(GradgateError):
    """The call does not fit the state: nothing was done."""

    status = _abi.FAILED_PRECONDITION


class Disagreement(GradgateError):
    """Ranks differ where they must not; the message names them."""

    status = _abi.ABORTED


class Unavailable(GradgateError, ConnectionError):
    """A peer's connection, or the store's, broke."""

    status = _abi.UNAVAILABLE


_BY_STATUS: dict[int, type[GradgateError]] = {
    kind.status: kind for kind in (InvalidArgument, DeadlineExceeded, Refused, Disagreement, Unavailable)
}


def raise_status(status: int, message: str) -> NoReturn:
    raised = _BY_STATUS.get(status, GradgateError)(message)
    raised.status = status
    raise raised
