"""The tap counts what torch's profiler sees, native and Python alike; what it counts is the same collective, once."""

from __future__ import annotations

import os
import pathlib
from collections import Counter
from typing import Any

import launch
import pytest

CACHE = os.environ.get("GRADGATE_CACHE", str(pathlib.Path(launch.ROOT) / ".cache"))


def environment(kind: str) -> dict[str, str]:
    return {"GRADGATE_TAP": kind, "GRADGATE_CACHE": CACHE}


def issued(ledger: Any) -> Counter[str]:
    from gradgate.ledger import OPERATIONS

    counts: Counter[str] = Counter()
    for role in range(4):
        for name in OPERATIONS:
            cell = ledger.collective_stats(role, name)
            counts[name] += cell.gradient_issued + cell.ours_issued + cell.other_issued
    return counts


def counting(rank: int, world: int, kind: str) -> dict[str, Any]:
    import counting as profiler
    import tap_rows
    from gradgate import tap
    from gradgate.ledger import Ledger

    ledger, seen = Ledger(accumulate=1), tap.load()
    assert seen.native == (kind == "native")
    seen.bind(ledger)
    results: dict[str, Any] = {}
    for name, row in tap_rows.ROWS.items():
        before = issued(ledger)
        with profiler.profiled() as expected:
            row(rank, world)
        results[name] = (dict(issued(ledger) - before), dict(expected))
    for row in (tap_rows.under_comm_debug_mode, tap_rows.on_meta):
        before = issued(ledger)
        row(rank, world)
        results[row.__name__] = dict(issued(ledger) - before)
    seen.unbind(ledger)
    before = issued(ledger)
    tap_rows.asynchronous(rank, world)
    results["unbound"] = dict(issued(ledger) - before)
    ledger.close()
    ledger.destroy()
    return results


@pytest.mark.parametrize("kind", ["native", "python"])
def test_counts_are_the_profilers(kind: str) -> None:
    for rank, results in enumerate(launch.run(counting, 2, args=(kind,), env=environment(kind), timeout=240)):
        assert results.pop("under_comm_debug_mode") == {"all_reduce": 2, "barrier": 1}
        assert results.pop("on_meta") == {}
        assert results.pop("unbound") == {}
        assert len(results) >= 15
        for name, (counted, expected) in results.items():
            assert expected, f"rank {rank}: row {name} issued nothing"
            assert counted == expected, f"rank {rank}: row {name}"
