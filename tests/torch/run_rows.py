"""The loops of run_scripts/, run by `gradgate run`'s observer: what is expected of each, and what became of it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from forked_runs import SCRIPTS, Done, Nursery

ALL_REDUCE = frozenset({("all_reduce", 92)})


@dataclass(frozen=True)
class Loop:
    """`sizes`: micro-steps of the windows after the first step. `places`: where the script reduces: in each, or in the last.
    `gradients`: operations and elements of the collectives that one reduction consists of. `beside`: of others that go with them.
    `evaluations`: windows of a step."""

    sizes: tuple[int, ...] = (4, 4, 4)
    places: str = "each"
    gradients: frozenset[tuple[str, int]] = ALL_REDUCE
    beside: frozenset[tuple[str, int]] = frozenset()
    evaluations: int = 1

    @property
    def counted(self) -> int:
        """Windows up to the first in which a reduction is wasted, that one included: enforced are those after it."""
        wasteful = [at for at, size in enumerate(self.sizes, 1) if size > 1 and self.places == "each"]
        return wasteful[0] * self.evaluations if wasteful else len(self.sizes)

    def reducing(self) -> dict[str, int]:
        """Windows that reduce in their first micro-step, in their second, …"""
        places = [range(1, size + 1) if self.places == "each" else [size] for size in self.sizes]
        return {str(place): count for place, count in Counter(place for window in places for place in window).items()}


def late(sizes: tuple[int, ...]) -> int:
    """Windows, none of which goes on after its predicted end, that are reduced at their step: until two in a row were alike."""
    count = predicted = last = 0
    for size in sizes:
        count += size != predicted
        predicted = size if size == last else predicted
        last = size
    return count


def by_size(sizes: tuple[int, ...]) -> dict[str, int]:
    return {str(size): count for size, count in Counter(sizes).items()}


@dataclass
class Told:
    """Of one run: each rank's parameters and collectives by operation and elements, and gradgate's report."""

    parameters: list[str]
    collectives: Counter[tuple[str, int]]
    report: Any
    done: Done

    def gradients(self, loop: Loop) -> int:
        return sum(count for key, count in self.collectives.items() if key in loop.gradients)

    def beside(self, loop: Loop) -> int:
        return sum(count for key, count in self.collectives.items() if key in loop.beside)

    def others(self, loop: Loop) -> dict[str, int]:
        """By operation, those that have nothing to do with reductions."""
        found: Counter[str] = Counter()
        for (operation, elements), count in self.collectives.items():
            if (operation, elements) not in loop.gradients | loop.beside:
                found[operation] += count
        return dict(found)

    @property
    def figures(self) -> Any:
        assert not self.report["left_alone"], self.done
        [figures] = self.report["observed"]
        assert not figures["given_up"], figures["given_up"]
        return figures

    @property
    def left_alone(self) -> str:
        assert not self.report["observed"], self.done
        [why] = self.report["left_alone"]
        return str(why)


class Loops:
    """Each run once."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self._told: dict[tuple[Any, ...], Told] = {}

    def ended(self, name: str, how: str, mode: str = "window", **env: str) -> Done:
        return self._nursery.run([str(SCRIPTS / "loops.py"), "{folder}", name], how=how, mode=mode, env=env)

    def __call__(self, name: str, how: str, mode: str = "window", **env: str) -> Told:
        key = name, how, mode if how == "enforce" else "", *env.items()
        if key not in self._told:
            done = self.ended(name, how, mode, **env)
            if done.statuses != [0, 0]:
                pytest.fail(f"{name}, {how}: {done}")
            ranks = [json.loads((done.folder / f"{rank}.json").read_text()) for rank in range(2)]
            [collectives, other] = [
                Counter(
                    {
                        (operation, int(elements)): count
                        for operation, found in rank["collectives"].items()
                        for elements, count in found.items()
                    }
                )
                for rank in ranks
            ]
            assert collectives == other, "ranks called different collectives"
            self._told[key] = Told([rank["parameters"] for rank in ranks], collectives, done.report, done)
        return self._told[key]
