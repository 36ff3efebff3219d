"""The ballot of a window: what a rank says, and what all ranks said together."""

from __future__ import annotations

from typing import NamedTuple

from . import _abi


class Vote(NamedTuple):
    """What this rank says of its window; the ledger adds where it is. See gg_vote."""

    contributes: bool = False
    skipped: int = 0
    discard: bool = False
    out_of_data: bool = False
    sums: bool = False
    divisor: int = 0
    parity: int = 0
    headroom_bytes: int = _abi.HEADROOM_UNKNOWN
    staged: int = 0


class Verdict(NamedTuple):
    """What all ranks said together; the same on all of them. See gg_verdict."""

    differs: bool
    incompatible: bool
    unequal: bool
    min_micro_steps: int
    max_micro_steps: int
    all_contribute: bool
    any_contribute: bool
    min_skipped: int
    max_skipped: int
    any_discard: bool
    all_out_of_data: bool
    any_out_of_data: bool
    any_sums: bool
    min_divisor: int
    max_divisor: int
    parity_differs: bool
    staged_equal: bool
    min_headroom_bytes: int
    staged: int


_FLAGS = frozenset(n for n in Verdict._fields if not n.startswith(("min_", "max_")) and n != "staged")


def fill(c: _abi.Vote, vote: Vote) -> None:
    for name, value in zip(Vote._fields, vote, strict=True):
        setattr(c, name, int(value))


def read(c: _abi.Verdict) -> Verdict:
    return Verdict(*(bool(getattr(c, n)) if n in _FLAGS else getattr(c, n) for n in Verdict._fields))
