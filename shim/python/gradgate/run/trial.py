"""Two policies on one running job, a window each in turn, and which of them is faster: `gradgate trial`.

    3 windows of the second ──► pairs, each in an order drawn by lot: A B, B A, … ──► the script as it was written

What is compared is the time from one optimizer step to the next. Beside the ratio stands what chance makes of two windows of the same
policy (A/A); where the ratio is inside of that, there is no verdict. All ranks draw the same lots.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import time
from collections import Counter
from typing import Any, NamedTuple

VARIABLE = "GRADGATE_RUN_TRIAL"
POLICIES = ("every_micro_step", "window", "window_replica")
_WARM = 3  # windows: allocations, and two alike for a prediction
_FEWEST = 5  # pairs that an interval is told of
_MOST = 10_000  # windows of each policy
_RESAMPLES = 2000


class Sample(NamedTuple):
    """`policy`: 0 or 1. `pair`: from 0. `seconds`: from the step before to this one's end."""

    policy: int
    pair: int
    micro_steps: int
    seconds: float


class Trial:
    """In place of an attachment's ladder (see auto.Ladder): the mode of each window. Thread class: the loop's thread."""

    keep: bool = False

    def __init__(self, policies: tuple[str, str], windows: int, seed: int = 0) -> None:
        self.policies = policies
        self.windows = windows  # of each policy
        lots = random.Random(seed)
        self._order = [1] * _WARM
        for _ in range(windows):
            first = lots.randrange(2)
            self._order += [first, 1 - first]
        self._at = 0  # the window that is open, or closed and not stepped on
        self._stepped = time.perf_counter()
        self._window = -1  # that climbed last
        self.samples: list[Sample] = []

    @property
    def mode(self) -> str:
        return self.policies[self._order[min(self._at, len(self._order) - 1)]]

    def headroom_bytes(self, _window: int) -> int:
        from ..auto import UNKNOWN  # noqa: PLC0415 - the command does without torch

        return UNKNOWN

    def climb(self, window: int, _headroom_bytes: int) -> bool:
        """The window ends; again, if it goes on after that."""
        self._at += window != self._window
        self._window = window
        return True

    def stepped(self, micro_steps: int) -> None:
        """The optimizers have stepped on a window of so many micro-steps."""
        now, at = time.perf_counter(), self._at - 1
        if _WARM <= at < len(self._order):
            self.samples.append(Sample(self._order[at], (at - _WARM) // 2, micro_steps, now - self._stepped))
        self._stepped = now

    @property
    def over(self) -> bool:
        return self._at >= len(self._order)


def start(windows: int, policies: str) -> str:
    """The environment variable's value. ValueError names what is wrong."""
    names = tuple(name.strip() for name in policies.split(","))
    if len(names) != 2 or names[0] == names[1] or not set(names) <= set(POLICIES):
        raise ValueError(f"--policies {policies}: two different ones of {', '.join(POLICIES)}, as every_micro_step,window")
    if windows < _FEWEST:
        raise ValueError(f"--windows {windows}: at least {_FEWEST} of each policy, or chance cannot be told from difference")
    if windows > _MOST:
        raise ValueError(f"--windows {windows}: at most {_MOST} of each policy")
    return f"{windows},{names[0]},{names[1]}"


def asked() -> Trial | None:
    """For this process."""
    given = os.environ.get(VARIABLE)
    if not given:
        return None
    windows, first, second = given.split(",")
    return Trial((first, second), int(windows))


def _interval(logs: list[float]) -> tuple[float, float]:
    """Of the mean ratio, 95 %, by resampling."""
    lots = random.Random(0)
    means = sorted(statistics.fmean(lots.choices(logs, k=len(logs))) for _ in range(_RESAMPLES))
    return math.exp(means[int(0.025 * _RESAMPLES)]), math.exp(means[int(0.975 * _RESAMPLES) - 1])


def verdict(trial: Trial) -> dict[str, Any]:
    """What was measured, of windows of the commonest size alone. Without "ratio" where too few pairs are complete."""
    sizes = Counter(sample.micro_steps for sample in trial.samples)
    size = sizes.most_common(1)[0][0] if sizes else 0
    pairs: dict[int, dict[int, float]] = {}
    for sample in trial.samples:
        if sample.micro_steps == size:
            pairs.setdefault(sample.pair, {})[sample.policy] = sample.seconds
    whole = [both for both in pairs.values() if len(both) == 2]
    found: dict[str, Any] = {"policies": list(trial.policies), "pairs": len(whole), "micro_steps": size, "over": trial.over}
    if len(whole) < _FEWEST:
        return found
    logs = [math.log(both[1] / both[0]) for both in whole]
    same = [
        sign * math.log(one[policy] / other[policy])
        for policy in (0, 1)
        for sign, one, other in zip((1, -1) * len(whole), whole, whole[1:], strict=False)
    ]
    low, high = _interval(logs)
    chance = _interval(same)
    ratio = math.exp(statistics.fmean(logs))
    return {
        **found,
        "seconds": [statistics.median(both[policy] for both in whole) for policy in (0, 1)],
        "ratio": ratio,
        "interval": [low, high],
        "same": list(chance),
        "differs": high < min(1.0, chance[0]) or low > max(1.0, chance[1]),
    }


def page(found: dict[str, Any], what: str) -> list[str]:
    first, second = found["policies"]
    state = "" if found["over"] else ", and the script ended before all were run"
    head = f"gradgate trial: {what}: {found['pairs']} windows of {found['micro_steps']} micro-steps under each policy{state}"
    if "ratio" not in found:
        return [head, f"  too few to tell; at least {_FEWEST} of each, all of one size, are needed"]
    (a, b), (low, high), (least, most) = found["seconds"], found["interval"], found["same"]
    chance = f"two windows of one policy: {least:.1%} to {most:.1%}"
    lines = [
        head,
        f"  {first:<18}{a * 1e3:10.2f} ms from one optimizer step to the next (median)",
        f"  {second:<18}{b * 1e3:10.2f} ms",
        f"  {second} takes {found['ratio']:.1%} of it (95 % interval {low:.1%} to {high:.1%}; {chance})",
    ]
    if not found["differs"]:
        return [*lines, "  no verdict: chance alone could make that difference; run more windows, or with less beside it on the machine"]
    faster = second if found["ratio"] < 1 else first
    return [*lines, f"  {faster} is faster, by {abs(a - b) * 1e3:.2f} ms for each optimizer step"]
