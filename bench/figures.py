"""Medians, intervals, verdicts, and the table. No measuring here.

A series has `samples` and `again`, taken in turn in the same run: what differs between them is the machine's noise, the A/A
interval. A verdict is given only where that interval is narrower than what is to be told apart.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

WIDTHS = (43, 12, 19, 8, 7)  # of the table's columns; with the gaps and the last column below 100


@dataclasses.dataclass
class Series:
    name: str
    unit: str
    samples: list[float]
    again: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.samples + self.again)

    def pairs(self) -> list[tuple[float, float]]:
        return list(zip(self.samples, self.again, strict=False))


def parse(lines: Iterable[str]) -> dict[str, Series]:
    """The series among a program's lines of output."""
    found = [Series(**json.loads(line)) for line in lines if line.startswith("{")]
    return {series.name: series for series in found}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Where the median lies with 95 % confidence, from order statistics; of few values: from the least to the greatest."""
    ordered = sorted(values)
    outside = max(0, math.floor(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered))))
    return ordered[outside], ordered[-1 - outside]


def noise(series: Series) -> float:
    """Half the width of the A/A interval, as a share."""
    if len(series.samples) < 2 or len(series.again) < 2:
        return math.inf
    low, high = interval([b / a for a, b in series.pairs()])
    return max(high - 1, 1 - low, 0)


def ratios(above: Series, below: Series) -> list[float]:
    """Round by round, so that a machine whose speed drifts does not matter."""
    return [a / b for x, y in ((above.samples, below.samples), (above.again, below.again)) for a, b in zip(x, y, strict=False)]


@dataclasses.dataclass
class Row:
    what: str
    budget: str = ""
    measured: str = ""
    noise: float | None = None
    verdict: str = ""  # met, MISSED, none (cannot be told here), skipped, or empty: no budget
    value: float | None = None  # what is compared with the baseline

    def cells(self, change: str) -> tuple[str, ...]:
        shown = "" if self.noise is None else ("wide" if self.noise > 9.99 else f"±{100 * self.noise:.1f} %")
        return self.what, self.budget, self.measured, shown, self.verdict, change


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def at_most(what: str, value: float, unit: str, limit: float, spread: float | None, note: str = "") -> Row:
    """An absolute budget: a verdict if the distance to it is more than the noise."""
    distance = abs(limit - value) / limit
    verdict = "met" if value <= limit else "MISSED"
    if spread is not None and spread > max(distance, 1e-9):
        verdict = "none"
    return Row(what, f"≤ {number(limit)} {unit}", f"{number(value)} {unit}{note}", spread, verdict, value)


def verdict_of(met: bool, distance: float, gate: float, spread: float) -> str:
    """Noise wider than the gate hides a budget that is met, and a miss unless it is farther off than the noise."""
    if met:
        return "met" if spread <= gate else "none"
    return "MISSED" if spread <= gate or spread < distance else "none"


def at_least_ratio(what: str, values: Sequence[float], limit: float, gate: float, spread: float, note: str = "") -> Row:
    """A ratio that must not be below `limit`; `gate` is the difference that matters."""
    value = statistics.median(values)
    verdict = verdict_of(value >= limit, (limit - value) / limit, gate, spread)
    return Row(what, f"≥ {100 * limit:.3g} %", f"{100 * value:.1f} %{note}", spread, verdict, value)


def no_slower(what: str, values: Sequence[float], limit: float, gate: float, spread: float, note: str = "") -> Row:
    """A ratio of times that must not be above `limit`."""
    value = statistics.median(values)
    verdict = verdict_of(value <= limit, (value - limit) / limit, gate, spread)
    return Row(what, f"≤ {100 * limit:.4g} %", f"{100 * value:.1f} %{note}", spread, verdict, value)


def no_difference(what: str, values: Sequence[float], gate: float, spread: float) -> Row:
    """A ratio of times that must not be beyond the noise; noise wider than `gate` tells nothing."""
    low, _ = interval(values)
    value = statistics.median(values)
    verdict = verdict_of(low <= 1 + spread, low - 1, gate, spread)
    return Row(what, "within A/A", f"{100 * value:.1f} %", spread, verdict, value)


def predicted(what: str, seconds: float, measured: float, limit: float, spread: float) -> Row:
    """What was predicted against what was measured: no further off than `limit`, as a share of the latter."""
    off = seconds / measured - 1
    shown = f"{measured:.3f} s, predicted {100 * off:+.1f} %"
    return Row(what, f"± {100 * limit:.3g} %", shown, spread, verdict_of(abs(off) <= limit, abs(off) - limit, limit, spread), off)


def told(what: str, measured: str, value: float | None = None, spread: float | None = None) -> Row:
    return Row(what, "", measured, spread, "", value)


def skipped(what: str, why: str) -> Row:
    return Row(what, "", why, None, "skipped")


def change(row: Row, baseline: dict[str, Any] | None) -> str:
    before = (baseline or {}).get("rows", {}).get(row.what)
    if before is None or row.value is None or before == 0:
        return ""
    return f"{100 * (row.value / before - 1):+.1f} %"


def table(sections: dict[str, list[Row]], baseline: dict[str, Any] | None) -> str:
    lines = []
    head = ("", "budget", "measured", "A/A", "verdict", "change" if baseline else "")
    for title, rows in sections.items():
        lines += ["", line((title, *head[1:])), "─" * 99]
        lines += [line(row.cells(change(row, baseline))) for row in rows]
    return "\n".join(lines)


def line(cells: Sequence[str]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, (*WIDTHS, 0), strict=True)).rstrip()


def markdown(sections: dict[str, list[Row]]) -> str:
    lines = ["| what | budget | measured | A/A | verdict |", "| --- | --- | --- | --- | --- |"]
    for title, rows in sections.items():
        lines.append(f"| **{title}** | | | | |")
        lines += ["| " + " | ".join(row.cells("")[:5]) + " |" for row in rows]
    return "\n".join(lines)
