"""Enforced windows whose end is predicted: reduced in the backward that was said to be their last, to the same bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from forked_runs import Nursery
from run_rows import ALL_REDUCE, Loop, Loops
from test_run_loops import FSDP1, FSDP2, HSDP, MAP, UNUSED

WINDOWS, AUDITED = 9, 4  # enforced; reductions of the one that was only counted
LATE, IN_TIME = 6, 4  # one of each in the window that went on


@pytest.fixture(scope="module")
def loops() -> Iterator[Loops]:
    with Nursery() as nursery:
        yield Loops(nursery)


@pytest.mark.parametrize(
    ("name", "gradients", "beside"),
    [
        ("predicted", ALL_REDUCE, frozenset[tuple[str, int]]()),
        ("predicted_clipped", ALL_REDUCE, frozenset()),
        ("predicted_scaled", ALL_REDUCE, frozenset()),
        ("predicted_thrown_away", ALL_REDUCE, frozenset()),
        ("predicted_read", ALL_REDUCE, frozenset()),
        ("predicted_retried", ALL_REDUCE, frozenset()),
        ("predicted_unused", UNUSED, MAP),
        ("predicted_fsdp2", FSDP2, frozenset()),
        ("predicted_hsdp", HSDP, frozenset()),
        ("predicted_fsdp1", FSDP1, frozenset()),
    ],
)
def test_reduced_where_it_was_predicted(
    loops: Loops, name: str, gradients: frozenset[tuple[str, int]], beside: frozenset[tuple[str, int]]
) -> None:
    loop = Loop(gradients=gradients, beside=beside)
    plain, enforced = loops(name, "plain"), loops(name, "enforce")
    assert enforced.parameters == plain.parameters
    figures = enforced.figures
    assert (figures["windows"], figures["late"], figures["reducing_micro_steps"]) == (WINDOWS, LATE, {"4": IN_TIME})
    assert (figures["reductions"], figures["wasted"]) == (LATE + IN_TIME, 1)
    assert figures["predicted"] == {"micro_steps": 4, "hits": 3, "outrun": 1}
    assert figures["gradient_collectives"] == (LATE + IN_TIME) * len(gradients)
    assert enforced.gradients(loop) == (AUDITED + LATE + IN_TIME) * len(gradients)
    assert enforced.beside(loop) == (AUDITED + LATE + IN_TIME) * len(beside)
    assert figures["told"].keys() <= {"shards_nothing", "unstepped"}, figures["told"]
    assert figures["mismatched"] == 0


@pytest.mark.parametrize(
    ("name", "why"), [("unpredicted_hook", "a communication hook"), ("unpredicted_backwards", "more backwards than micro-steps")]
)
def test_not_predicted(loops: Loops, name: str, why: str) -> None:
    plain, enforced = loops(name, "plain"), loops(name, "enforce")
    assert enforced.parameters == plain.parameters
    figures = enforced.figures
    assert (figures["windows"], figures["late"], figures["reductions"]) == (WINDOWS, WINDOWS, WINDOWS)
    assert why in figures["told"]["unpredicted"]
    assert figures["predicted"] is None


def test_what_the_script_keeps_from_reducing_is_reduced_at_the_step(loops: Loops) -> None:
    enforced = loops("misplaced", "enforce")
    figures = enforced.figures
    assert (figures["windows"], figures["late"], figures["reductions"]) == (WINDOWS, WINDOWS, WINDOWS)
    assert enforced.gradients(Loop()) == 1 + WINDOWS
    assert (figures["reducing_micro_steps"], figures["mismatched"], figures["told"]) == ({}, 0, {})


def test_a_backward_after_the_predicted_end_is_reduced_too(loops: Loops) -> None:
    plain, enforced = loops("late_backward", "plain"), loops("late_backward", "enforce")
    assert enforced.parameters == plain.parameters
    assert enforced.figures["predicted"] == {"micro_steps": 4, "hits": 1, "outrun": 1}
    assert enforced.figures["window_sizes"] == {"2": 1, "4": 6, "5": 1, "6": 1}
    assert enforced.figures["reductions"] == enforced.gradients(Loop()) - AUDITED == WINDOWS + 1


def test_a_layer_that_nobody_trains_changes_nothing(loops: Loops) -> None:
    plain, enforced = loops("untrained_beside", "plain"), loops("untrained_beside", "enforce")
    assert enforced.parameters == plain.parameters
    assert (enforced.figures["enforcement"], enforced.figures["windows"]) == ("enforce", WINDOWS)
    assert enforced.figures["told"].keys() == {"stray_parameters"}


def test_ranks_whose_windows_end_differently_all_stop(loops: Loops) -> None:
    plain, done = loops("one_rank_clips", "plain"), loops.ended("one_rank_clips", "enforce")
    assert plain.parameters[0] == plain.parameters[1]
    assert done.statuses == [1, 1], done
    assert all("Disagreement" in text and "micro_steps: ranks [1] have 4, ranks [0] have 2" in text for text in done.stderr), done
