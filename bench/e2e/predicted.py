"""From series to rows: c, s and the models of a window, taken round by round, and what is demanded of gradgate.

N micro-steps a window, c: computing, s: the reduction's exposed part, of one micro-step.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

import figures
from figures import Row, Series

N = 4
GATE = 0.03
Told = Mapping[str, Series]


def combined(name: str, formula: Callable[..., float], *parts: Series) -> Series:
    """A series computed from others, round by round."""

    def each(lists: list[list[float]]) -> list[float]:
        return [formula(*values) for values in zip(*lists, strict=True)]

    return Series(name, "ms", each([p.samples for p in parts]), each([p.again for p in parts]))


def spread(*series: Series) -> float:
    """The widest of their A/A intervals."""
    return max(map(figures.noise, series))


def seconds(series: Series) -> str:
    return f"{series.median / 1000:.3f} s"


def parts_of(told: Told, single: Mapping[str, float], label: str) -> tuple[list[Row], Series, bool]:
    """c, s and the rate; the window of N·c + s; whether s/c is where the budgets hold."""
    computing, every = told["computing"], told["every"]
    ideal = combined("ideal", lambda c, e: c + (e - c) / N, computing, every)
    shares = [(e - c) / c for e, c in zip(every.samples + every.again, computing.samples + computing.again, strict=True)]
    share = statistics.median(shares)
    c = computing.median / N / 1000
    rows = [
        figures.told(f"{label} c", f"{c:.3f} s", c, figures.noise(computing)),
        figures.told(f"{label} s / c, and the link", f"{share:.2f}, {single['rate'] / 1e6:.0f} Mbit/s", share, spread(computing, every)),
        figures.told(f"{label} every micro-step reduces", seconds(every), every.median, figures.noise(every)),
        figures.told(f"{label} the model, N·c + s", seconds(ideal), ideal.median),
    ]
    return rows, ideal, 1.0 <= share <= 1.2


def at_model(label: str, ideal: Series, every: Series, measured: Series, *, demanded: bool, at_least: float | None = None) -> list[Row]:
    """One way to reduce once a window: its time, how near the model it is, how much faster than reducing each time."""
    noise = spread(every, measured)
    near, gain = figures.ratios(ideal, measured), figures.ratios(every, measured)
    value = statistics.median(near)
    rows = [figures.told(label, seconds(measured), measured.median, figures.noise(measured))]
    if not demanded:
        rows.append(figures.told(f"{label}, of the model's gain", f"{100 * value:.1f} %, {statistics.median(gain):.2f} ×", value, noise))
        return rows
    rows.append(figures.at_least_ratio(f"{label}, of the model's gain", near, 0.97, GATE, noise))
    rows.append(figures.no_slower(f"{label}, of N·c + s", figures.ratios(measured, ideal), 1.03, GATE, noise))
    faster = f"{label}, faster than every"
    if at_least is None:
        rows.append(figures.told(faster, f"{statistics.median(gain):.2f} ×", statistics.median(gain), noise))
    else:
        rows.append(times_faster(faster, gain, at_least, noise))
    return rows


def times_faster(what: str, gain: list[float], limit: float, noise: float) -> Row:
    row = figures.at_least_ratio(what, gain, limit, GATE, noise)
    row.budget, row.measured = f"≥ {limit:.2f} ×", f"{row.value:.2f} ×"
    return row


def outside(rows: list[Row]) -> list[Row]:
    """s/c is not where the budgets were set: no verdicts."""
    for row in rows:
        row.verdict = "none" if row.verdict else ""
    return rows


def replicated(
    told: Told, single: Mapping[str, float], label: str, by_hand: Mapping[str, str], gated: Mapping[str, str], at_least: float | None
) -> list[Row]:
    """DDP and HSDP: {series: what it is}."""
    rows, ideal, inside = parts_of(told, single, label)
    every = told["every"]
    for name, what in by_hand.items():
        rows += at_model(f"{label} {what}", ideal, every, told[name], demanded=False)
    for name, what in gated.items():
        rows += at_model(f"{label} {what}", ideal, every, told[name], demanded=True, at_least=at_least)
    return rows if inside else outside(rows)


def kept(told: Told, single: Mapping[str, float]) -> list[Row]:
    """One-dimensional FSDP2: computing c, all-gathers a of the forward and of the backward, reduce-scatter g, of one micro-step."""
    computing, every, deferred, forward = told["computing"], told["every"], told["deferred"], told["forward_gathers"]
    g = combined("g", lambda e, d: (e - d) / (N - 1), every, deferred)
    a = combined("a", lambda f, c, e, d: (f - c - (e - d) / (N - 1)) / N, forward, computing, every, deferred)
    b = combined("b", lambda d, f: (d - f) / N, deferred, forward)
    ideal = combined("ideal", lambda c, x, y: c + x + y, computing, a, g)
    label = "FSDP2"
    rows = [
        figures.told(f"{label} c", f"{computing.median / N / 1000:.3f} s", computing.median / N / 1000, figures.noise(computing)),
        figures.told(f"{label} link", f"{single['rate'] / 1e6:.0f} Mbit/s"),
        figures.told(f"{label} all-gathers forward, backward", f"{a.median / 1000:.3f} s, {b.median / 1000:.3f} s"),
        figures.told(f"{label} reduce-scatter", f"{g.median / 1000:.3f} s"),
        figures.told(f"{label} every micro-step reduces", seconds(every), every.median, figures.noise(every)),
        figures.told(f"{label} the model, N·c + a + g", seconds(ideal), ideal.median),
    ]
    rows += at_model(f"{label} deferred by hand", ideal, every, deferred, demanded=False)
    rows += at_model(f"{label} kept by hand", ideal, every, told["kept_by_hand"], demanded=False)
    if "kept" in told:
        noise = spread(every, told["kept"])
        rows.append(figures.told(f"{label} kept", seconds(told["kept"]), told["kept"].median, figures.noise(told["kept"])))
        rows.append(figures.at_least_ratio(f"{label} kept, of the model's gain", figures.ratios(ideal, told["kept"]), 0.97, GATE, noise))
        gain = statistics.median(figures.ratios(every, told["kept"]))
        rows.append(figures.told(f"{label} kept, faster than every", f"{gain:.2f} ×", gain, noise))
    return rows
