"""The planner against what was measured: gradgatectl is given the parts of a micro-step, or a job, and its modes are compared."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
from collections.abc import Mapping
from typing import Any

import figures
from figures import Row, Series

N = 4
LIMIT = 0.1  # of what was measured
Told = Mapping[str, Series]


def per_micro_step(told: Told, name: str) -> float:
    return told[name].median / N / 1000


def parts(shape: str, told: Told) -> dict[str, float]:
    """The planner's flags, in seconds. Noise may make a part that is next to nothing negative; it is nothing then."""
    c, every = per_micro_step(told, "computing"), per_micro_step(told, "every_micro_step")
    if shape == "ddp":
        return {"compute-s": c, "sync-s": max(every - c, 0.0)}
    forward, gathers = per_micro_step(told, "forward"), per_micro_step(told, "gathers")
    found = {"compute-s": c, "gather-forward-s": max(forward - c, 0.0), "gather-backward-s": max(gathers - forward, 0.0)}
    if shape == "fsdp":
        return {**found, "shard-sync-s": max(every - gathers, 0.0)}
    inside = per_micro_step(told, "shard_sync")
    return {**found, "shard-sync-s": max(inside - gathers, 0.0), "replica-sync-s": max(every - inside, 0.0)}


def told(label: str, shape: str, series: Told) -> list[Row]:
    return [figures.told(f"{label}   {name.removesuffix('-s')}", f"{value:.3f} s", value) for name, value in parts(shape, series).items()]


@dataclasses.dataclass
class Prediction:
    seconds: float
    least: float
    most: float


class Planner:
    """gradgatectl plan, of one build folder."""

    def __init__(self, build_dir: pathlib.Path) -> None:
        self._program = str(build_dir / "bin/gradgatectl")

    def ask(self, *arguments: str) -> dict[str, Any]:
        done = subprocess.run([self._program, *arguments, "--json"], capture_output=True, text=True, timeout=30, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"gradgatectl {' '.join(arguments)}: {done.stderr.strip()}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def from_parts(self, shape: str, told: Told, ranks: int, shards: int) -> dict[str, Prediction]:
        flags = [f"--{name}={value:.9f}" for name, value in parts(shape, told).items()]
        return modes(self.ask("plan", f"--ranks={ranks}", "--nodes=2", f"--shards={shards}", f"--accumulate={N}", *flags))

    def from_job(self, directory: str) -> dict[str, Prediction]:
        (job,) = self.ask("jobs", f"--dir={directory}")["jobs"]
        return modes(self.ask("plan", job["run_id"], f"--dir={directory}"))


def modes(answer: Mapping[str, Any]) -> dict[str, Prediction]:
    names = {"SYNC_MODE_EVERY_MICRO_STEP": "every_micro_step", "SYNC_MODE_WINDOW": "window", "SYNC_MODE_WINDOW_REPLICA": "window_replica"}
    found = {}
    for mode in answer["plan"]["modes"]:
        kept = ", parameters kept" if mode["reshard"] == "RESHARD_WINDOW" else ""
        seconds = (mode["step_seconds"], mode["min_step_seconds"], mode["max_step_seconds"])
        found[names[mode["sync_mode"]] + kept] = Prediction(*seconds)
    return found


def compared(label: str, predicted: Mapping[str, Prediction], measured: Told) -> list[Row]:
    """A row for each mode that was both predicted and measured, and one for their order."""
    rows = []
    known = [name for name in predicted if name in measured]
    for name in known:
        spread = figures.noise(measured[name])
        rows.append(figures.predicted(f"{label} {name}", predicted[name].seconds, measured[name].median / 1000, LIMIT, spread))
    return [*rows, order(label, predicted, {name: measured[name] for name in known})]


def order(label: str, predicted: Mapping[str, Prediction], measured: Told) -> Row:
    """Whether, of each two modes, the one that is faster by more than limit and noise was predicted to be."""
    spread = max(figures.noise(series) for series in measured.values())
    wrong = []
    pairs = 0
    for slow in measured:
        for fast in measured:
            if measured[slow].median > measured[fast].median * (1 + max(LIMIT, spread)):
                pairs += 1
                if predicted[slow].seconds <= predicted[fast].seconds:
                    wrong.append(f"{fast} is faster than {slow}")
    verdict = "MISSED" if wrong else "met" if pairs else "none"
    return Row(f"{label} order of modes", "as predicted", "; ".join(wrong) or f"right, {pairs} pairs", spread, verdict, float(len(wrong)))


def bounds(label: str, predicted: Mapping[str, Prediction], measured: Told) -> list[Row]:
    """What a job's own measurements say, against the same modes by hand; ends that are open are shown."""
    rows = []
    for name, prediction in predicted.items():
        if name not in measured:
            continue
        seconds = measured[name].median / 1000
        row = figures.predicted(f"{label} {name}", prediction.seconds, seconds, LIMIT, figures.noise(measured[name]))
        if prediction.most > prediction.least * 1.001:
            row.measured = f"{seconds:.3f} s, predicted {prediction.least:.3f} to {prediction.most:.3f} s"
            off = max(prediction.least / seconds, seconds / prediction.most) - 1
            row.budget, row.verdict = "between", figures.verdict_of(off <= LIMIT, off - LIMIT, LIMIT, row.noise or 0)
        rows.append(row)
    return rows
