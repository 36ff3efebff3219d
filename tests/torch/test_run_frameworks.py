"""`gradgate run` on what people train with: a framework's own loop, unchanged, gives the same bytes and the counts that torch sees."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from typing import Any

import pytest
from forked_runs import SCRIPTS, Nursery

ACCUMULATE = 4
# What each window reduces by itself.
LOOPS = {"automatic": 1, "manual": ACCUMULATE, "toggled": 1}


class Fits:
    """Each fit once."""

    def __init__(self, nursery: Nursery, script: str) -> None:
        self._nursery = nursery
        self._script = str(SCRIPTS / script)
        self._done: dict[tuple[str, str], tuple[list[Any], Any]] = {}

    def __call__(self, what: str, how: str, ranks: int = 2) -> tuple[list[Any], Any]:
        """What each rank told, and gradgate's figures of the one attachment."""
        if (what, how) not in self._done:
            done = self._nursery.run([self._script, "{folder}", what], how=how, ranks=ranks, timeout_s=120)
            assert done.statuses == [0] * ranks, done
            told = [json.loads((done.folder / f"{rank}.json").read_text()) for rank in range(ranks)]
            figures = None
            if how != "plain":
                assert done.report is not None and not done.report["left_alone"], done
                [figures] = done.report["observed"]
                assert not figures["given_up"], done
                assert set(figures["told"]) <= {"gloo_sums_average"}, done
            self._done[what, how] = told, figures
        return self._done[what, how]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as one:
        yield one


@pytest.fixture(scope="module")
def fits(nursery: Nursery) -> Fits:
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("lightning is not installed: gradgate run is not tried on its trainer")
    return Fits(nursery, "lightning_fit.py")


@pytest.mark.parametrize("loop", LOOPS)
class TestLightning:
    def test_audit_counts_what_torch_sees(self, fits: Fits, loop: str) -> None:
        told, figures = fits(loop, "audit")
        each = LOOPS[loop]
        steps = told[0]["steps"]
        assert steps == 3
        assert told[0]["collectives"]["all_reduce"] == each * steps
        assert figures["window_sizes"] == {str(ACCUMULATE): steps}
        places = range(1, ACCUMULATE + 1) if each == ACCUMULATE else [ACCUMULATE]
        assert {place: figures["reducing_micro_steps"].get(str(place)) for place in places} == dict.fromkeys(places, steps)
        assert figures["wasted"] == (each - 1) * steps
        assert figures["unreduced"] == 0

    def test_audit_adds_and_changes_nothing(self, fits: Fits, loop: str) -> None:
        plain, _ = fits(loop, "plain")
        audited, _ = fits(loop, "audit")
        assert audited == plain

    def test_enforce_reduces_once_to_the_same_bytes(self, fits: Fits, loop: str) -> None:
        plain, _ = fits(loop, "plain")
        enforced, figures = fits(loop, "enforce")
        assert [rank["parameters"] for rank in enforced] == [rank["parameters"] for rank in plain]
        assert figures["mode"] == "window"
        assert figures["window_sizes"][str(ACCUMULATE)] == 3
        assert figures["wasted"] == 0
        assert figures["late"] == figures["reductions"] == figures["windows"]
        # The gradients, and the ballot.
        assert enforced[0]["collectives"]["all_reduce"] == 2 * enforced[0]["steps"]


@pytest.fixture(scope="module")
def suppressing(nursery: Nursery) -> Fits:
    return Fits(nursery, "suppressing_fit.py")


@pytest.mark.parametrize(
    ("wrapper", "ranks", "each"),
    [
        ("fsdp2", 2, {"reduce_scatter": 1}),
        ("hsdp", 4, {"reduce_scatter": 1, "all_reduce": 1}),
        ("fsdp1", 2, {"reduce_scatter": 1}),
        ("ddp", 2, {"all_reduce": 1}),
    ],
)
def test_enforce_never_reduces_more_than_the_script(suppressing: Fits, wrapper: str, ranks: int, each: dict[str, int]) -> None:
    """Where it reduces once a window by itself: with little memory gradgate would rather reduce in each micro-step."""
    plain, _ = suppressing(wrapper, "plain", ranks)
    enforced, figures = suppressing(wrapper, "enforce", ranks)
    assert [rank["parameters"] for rank in enforced] == [rank["parameters"] for rank in plain]
    assert {operation: plain[0]["collectives"].get(operation) for operation in each} == {o: count * 3 for o, count in each.items()}
    assert figures["window_sizes"] == {"4": 3}
    assert figures["wasted"] == 0
    assert figures["gradient_collectives"] == 3 * sum(each.values())
