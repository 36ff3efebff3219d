"""Times of several things, taken in turn in one run, and what of a difference is chance. Milliseconds."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

LEAST_ROUNDS = 3
MOST_ROUNDS = 200
clock = time.perf_counter  # seconds


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Where the median lies with 95 % confidence, from order statistics; of few values: from the least to the greatest."""
    ordered = sorted(values)
    outside = max(0, math.floor(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered))))
    return ordered[outside], ordered[-1 - outside]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def chance(samples: Sequence[float], again: Sequence[float]) -> float:
    """How far apart two measurements of one thing come out: half the width of the interval of their median difference (A/A)."""
    low, high = interval([one - other for one, other in zip(samples, again, strict=True)])
    return max(abs(low), abs(high))


def in_turn(things: Mapping[str, Callable[[], object]], synchronize: Callable[[], None], deadline: float) -> dict[str, list[float]]:
    """The times of each thing, round by round, until `deadline` on the clock (seconds), at least three rounds and at most 200.

    Each takes each place in a round, and follows each of its two neighbours as often. A round that the deadline cuts short does not count.
    """
    names = list(things)
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(MOST_ROUNDS):
        turn = number % len(names)
        order = names[turn:] + names[:turn]
        taken = {}
        for name in order if number % 2 == 0 else reversed(order):
            if number >= LEAST_ROUNDS and clock() > deadline:
                return times
            synchronize()
            begin = clock()
            things[name]()
            synchronize()
            taken[name] = 1e3 * (clock() - begin)
        for name, spent in taken.items():
            times[name].append(spent)
    return times


@contextmanager
def same_random_numbers(devices: Sequence[torch.device]) -> Iterator[None]:
    """Afterwards Python's and torch's global generators are as before, also those of `devices`."""
    python = random.getstate()
    accelerators = [device for device in devices if device.type != "cpu"]
    kind = {"device_type": accelerators[0].type} if accelerators else {}
    with torch.random.fork_rng([device.index or 0 for device in accelerators], **kind):
        try:
            yield
        finally:
            random.setstate(python)
