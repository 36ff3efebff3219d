"""The same counts of a rank, read from several places: the training loop, gradgate's library, gradgatectl, /metrics, torch's profiler.

Each function returns {rank: {name: value}} with the names of COUNTS, and of OPERATIONS where they are known: the trainer's own
collectives, without gradgate's. Times are in nanoseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

Ranks = dict[int, dict[str, int]]

# What is compared. The loop does not know times, nor what was late.
COUNTS = (
    "windows_full",
    "windows_partial",
    "windows_empty",
    "micro_steps",
    "steps",
    "items",
    "reductions",
    "suppressed",
    "late",
    "collectives",
    "bytes",
    "completed",
    "exposed_ns",
)

# The trainer's own collectives, for gradients and for other ends; of these the ones for other ends; gradgate's own.
OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "other all_reduce", "gradgate's own")


def _operations(cells: Iterable[tuple[str, str, int]]) -> dict[str, int]:
    """From (operation, traffic, count): traffic is gradient, other or ours."""
    counts = dict.fromkeys(OPERATIONS, 0)
    for op, traffic, count in cells:
        for name in ["gradgate's own"] if traffic == "ours" else [op, f"{traffic} {op}"]:
            if name in counts:
                counts[name] += count
    return counts


def from_loop(report: Any) -> Ranks:
    renamed = {"collectives": "gradient_collectives", "bytes": "gradient_bytes"}
    unknown = ("late", "completed", "exposed_ns")
    return {
        rank["rank"]: {name: rank["counted"][renamed.get(name, name)] for name in COUNTS if name not in unknown} for rank in report["ranks"]
    }


def from_library(report: Any) -> Ranks:
    renamed = {
        "reductions": "reductions_issued",
        "suppressed": "reductions_suppressed",
        "late": "reductions_late",
        "collectives": "gradient_collectives",
        "bytes": "gradient_bytes",
    }
    ranks = {}
    for rank in report["ranks"]:
        stats = {**rank["stats"], "completed": rank["collectives"]["dp"]["all_reduce"]["completed"]}
        ranks[rank["rank"]] = {name: stats[renamed.get(name, name)] for name in COUNTS}
    return ranks


def _duration_ns(text: str) -> int:
    """A protobuf duration, "1.5s"."""
    seconds, _, fraction = text.removesuffix("s").partition(".")
    return int(seconds) * 10**9 + int(fraction.ljust(9, "0"))


def from_ctl(status: Any) -> Ranks:
    fields = {
        "windows_full": "window_full_count",
        "windows_partial": "window_partial_count",
        "windows_empty": "window_empty_count",
        "micro_steps": "micro_step_count",
        "steps": "step_count",
        "items": "item_count",
        "reductions": "reduction_issued_count",
        "suppressed": "reduction_suppressed_count",
        "late": "reduction_late_count",
        "collectives": "gradient_collective_count",
        "bytes": "gradient_bytes",
    }
    ranks = {}
    for rank in status["ranks"]:
        counts = {name: int(rank["totals"][field]) for name, field in fields.items()}
        counts["completed"] = sum(int(cell["completed_count"]) for cell in rank["collectives"])
        counts["exposed_ns"] = _duration_ns(rank["totals"]["exposed_duration"])
        counts |= _operations(
            (cell["op"].removeprefix("COLLECTIVE_OP_").lower(), traffic, int(cell[f"{traffic}_issued_count"]))
            for cell in rank["collectives"]
            for traffic in ("gradient", "ours", "other")
        )
        ranks[rank["rank"]] = counts
    return ranks


_SAMPLE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def parse_metrics(text: str) -> Iterable[tuple[str, dict[str, str], float]]:
    for line in text.splitlines():
        if line and not line.startswith("#"):
            sample = _SAMPLE.match(line)
            if not sample:
                raise ValueError(f"not a sample of the text format: {line!r}")
            yield sample["name"], dict(_LABEL.findall(sample["labels"] or "")), float(sample["value"])


def from_metrics(text: str, run_id: str) -> Ranks:
    wanted = {
        ("gradgate_windows_total", "kind", "full"): "windows_full",
        ("gradgate_windows_total", "kind", "partial"): "windows_partial",
        ("gradgate_windows_total", "kind", "empty"): "windows_empty",
        ("gradgate_micro_steps_total", "", ""): "micro_steps",
        ("gradgate_steps_total", "", ""): "steps",
        ("gradgate_items_total", "", ""): "items",
        ("gradgate_reductions_issued_total", "", ""): "reductions",
        ("gradgate_reductions_suppressed_total", "", ""): "suppressed",
        ("gradgate_reductions_late_total", "", ""): "late",
        ("gradgate_collectives_issued_total", "traffic", "gradient"): "collectives",
        ("gradgate_collective_bytes_total", "traffic", "gradient"): "bytes",
        ("gradgate_collectives_completed_total", "", ""): "completed",
        ("gradgate_exposed_seconds_total", "", ""): "exposed_ns",
    }
    samples = list(parse_metrics(text))
    rank_of_slot = {
        labels["slot"]: int(labels["rank"]) for name, labels, _ in samples if name == "gradgate_rank_info" and labels["run_id"] == run_id
    }
    ranks: Ranks = {rank: dict.fromkeys(COUNTS, 0) for rank in rank_of_slot.values()}
    for name, labels, value in samples:
        if labels.get("slot") not in rank_of_slot:
            continue
        for (metric, label, content), count in wanted.items():
            if name == metric and (not label or labels.get(label) == content):
                scaled = value * 1e9 if count.endswith("_ns") else value
                ranks[rank_of_slot[labels["slot"]]][count] += round(scaled)
    for slot, rank in rank_of_slot.items():
        ranks[rank] |= _operations(
            (labels["op"], labels["traffic"], round(value))
            for name, labels, value in samples
            if name == "gradgate_collectives_issued_total" and labels["slot"] == slot
        )
    return ranks


def first_difference(sources: dict[str, Ranks]) -> str | None:
    """Names the first number in which a source differs from the first that has it; None: all agree."""
    names = list(sources)
    for name in names[1:]:
        if sources[name].keys() != sources[names[0]].keys():
            return f"{names[0]} has ranks {sorted(sources[names[0]])}, {name} has {sorted(sources[name])}"
    for rank in sorted(sources[names[0]]):
        for count in (*COUNTS, *OPERATIONS):
            told = [(name, sources[name][rank][count]) for name in names if count in sources[name][rank]]
            for name, value in told[1:]:
                # A scrape gives seconds in a double: exact to the nanosecond below 100 days, but for the last digit.
                if abs(value - told[0][1]) > (1 if count.endswith("_ns") else 0):
                    return f"rank {rank}, {count}: {told[0][0]} says {told[0][1]:,}, {name} says {value:,}"
    return None


def total(ranks: Ranks, count: str) -> int:
    return sum(counts[count] for counts in ranks.values())
