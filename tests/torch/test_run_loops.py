"""`gradgate run` on loops that nobody edits: audit changes no byte and no collective and counts what torch's profiler counts; enforce
leaves the same bytes with one reduction for each step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from forked_runs import Nursery
from run_rows import Loop, Loops, by_size, late

FSDP2 = frozenset(("reduce_scatter", elements) for elements in (32, 48, 64))
HSDP = frozenset(("all_reduce", elements) for elements in (64, 96, 128))  # sharded over one rank, replicated over two
FSDP1 = frozenset({("reduce_scatter", 144)})
UNUSED, MAP = frozenset({("all_reduce", 120)}), frozenset({("all_reduce", 6)})  # of which parameters are used

WRAPPERS = {
    "naive": Loop(),
    "one_each": Loop((1, 1, 1, 1)),
    "changing_sizes": Loop((1, 1, 3, 4, 2)),
    "own_no_sync": Loop(places="last"),
    "find_unused": Loop(gradients=UNUSED, beside=MAP),
    "bucket_view": Loop(),
    "fsdp2": Loop((4, 2, 4), gradients=FSDP2),
    "hsdp": Loop((4, 2, 4), gradients=HSDP),
    "fsdp1": Loop(gradients=FSDP1),
    "fsdp1_flat": Loop(gradients=FSDP1),
}
STEPS = {
    "two_optimizers": Loop(),
    "closure": Loop(),
    "lbfgs": Loop((2,) * 7, evaluations=3),  # each of them looks at the gradients
    "scaler": Loop((4, 4, 4, 4)),
    "scaler_alone": Loop(),
    "clipped": Loop(),
    "zeroed_after_the_forward": Loop((1, 1, 1)),
    "thrown_away": Loop(),
    "two_forwards": Loop(),
    "zero_redundancy": Loop(),
}
MODELS = {
    "loss_inside": Loop(),
    "in_a_dictionary": Loop(),
    "in_a_dataclass": Loop(),
    "recomputed": Loop(),
    "recomputed_reentrant": Loop(),
    "compiled": Loop(),
    "optimizer_made_late": Loop(),
    "optimizer_made_anew": Loop(),
    "failures_caught": Loop((2, 2, 2)),
}
PARTS = {
    "buffers": Loop(gradients=frozenset({("all_reduce", 104)})),
    "buffers_read": Loop(),
    "wrapped_in_parts": Loop(gradients=frozenset({("all_reduce", 92), ("all_reduce", 10)})),
    "of_unlike_frequency": Loop((2, 2, 2, 2, 2)),
}
LOOPS = {**WRAPPERS, **STEPS, **MODELS, **PARTS}


@pytest.fixture(scope="module")
def loops() -> Iterator[Loops]:
    with Nursery() as nursery:
        yield Loops(nursery)


@pytest.mark.parametrize("name", LOOPS)
def test_audit_counts_what_torch_sees_and_changes_nothing(loops: Loops, name: str) -> None:
    loop, plain, audited = LOOPS[name], loops(name, "plain"), loops(name, "audit")
    assert audited.parameters == plain.parameters
    assert audited.collectives == plain.collectives
    figures = audited.figures
    assert figures["enforcement"] == "audit"
    assert figures["window_sizes"] == by_size(loop.sizes)
    assert figures["reducing_micro_steps"] == loop.reducing()
    assert figures["reductions"] == sum(loop.reducing().values())
    assert figures["wasted"] == (sum(loop.sizes) - len(loop.sizes) if loop.places == "each" else 0)
    assert (figures["unreduced"], figures["suppressed"], figures["late"]) == (0, 0, 0)
    assert figures["gradient_collectives"] == plain.gradients(loop) == figures["reductions"] * len(loop.gradients)
    expected = plain.others(loop)
    if loop.beside:
        expected["all_reduce"] = plain.beside(loop)
    assert figures["other_collectives"] == expected


@pytest.mark.parametrize("name", [name for name, loop in LOOPS.items() if loop.counted < len(loop.sizes)])
def test_enforce_reduces_once_for_each_step_to_the_same_bytes(loops: Loops, name: str) -> None:
    loop, plain, enforced = LOOPS[name], loops(name, "plain"), loops(name, "enforce")
    assert enforced.parameters == plain.parameters
    figures = enforced.figures
    assert (figures["enforcement"], figures["mode"]) == ("enforce", "window")
    counted, sizes = loop.sizes[: loop.counted], loop.sizes[loop.counted :]
    assert figures["before"] == sum(counted) / len(counted)
    assert figures["window_sizes"] == by_size(sizes)
    assert (figures["reductions"], figures["late"]) == (len(sizes), late(sizes))
    in_time = len(sizes) - late(sizes)
    assert (figures["wasted"], figures["unreduced"], figures["suppressed"]) == (0, 0, sum(sizes) - in_time)
    assert figures["gradient_collectives"] == len(sizes) * len(loop.gradients)
    assert enforced.gradients(loop) == (sum(counted) + len(sizes)) * len(loop.gradients)
    assert enforced.beside(loop) == (sum(counted) + len(sizes)) * len(loop.beside)
    seen, expected = enforced.others(loop), plain.others(loop)
    ours = {operation: count - expected.get(operation, 0) for operation, count in seen.items() if count != expected.get(operation, 0)}
    assert ours.keys() == {"all_reduce"}
    # At the start, and a ballot for each window; one more each where parts of the model may be unused.
    assert len(sizes) < ours["all_reduce"] <= 3 + 2 * len(sizes)
    assert figures["told"].keys() <= {"shards_nothing"}, figures["told"]


@pytest.mark.parametrize("name", [name for name, loop in LOOPS.items() if loop.counted == len(loop.sizes)])
def test_enforce_leaves_what_is_as_it_should_be(loops: Loops, name: str) -> None:
    """Counted on; in its own backward the reduction overlaps."""
    loop, plain, enforced = LOOPS[name], loops(name, "plain"), loops(name, "enforce")
    assert (enforced.parameters, enforced.collectives) == (plain.parameters, plain.collectives)
    assert (enforced.figures["enforcement"], enforced.figures["window_sizes"]) == ("audit", by_size(loop.sizes))
    assert "1.00 reductions per optimizer step: as it should be" in enforced.done.stderr[0]


@pytest.mark.parametrize(("name", "reductions", "mode"), [("hsdp", 2, "window"), ("fsdp2", 6, "every_micro_step")])
def test_enforce_begins_with_the_least_memory(loops: Loops, name: str, reductions: int, mode: str) -> None:
    loop, plain, enforced = LOOPS[name], loops(name, "plain"), loops(name, "enforce", "auto")
    assert enforced.parameters == plain.parameters
    assert (enforced.figures["mode"], enforced.figures["reductions"]) == (mode, reductions)
    assert enforced.figures["gradient_collectives"] == reductions * len(loop.gradients)
    assert enforced.gradients(loop) == (loop.sizes[0] + reductions) * len(loop.gradients)
    assert ("--mode window" in enforced.done.stderr[0]) == (mode != "window")


@pytest.mark.parametrize("name", ["evaluating", "gradients_of_inputs"])
def test_forwards_without_a_backward_to_the_parameters(loops: Loops, name: str) -> None:
    """DDP still waits for the backward of a forward that ran before gradgate took over, and reduces in the next one."""
    loop, plain, audited, enforced = Loop(), *(loops(name, how) for how in ("plain", "audit", "enforce"))
    assert audited.parameters == enforced.parameters == plain.parameters
    assert audited.collectives == plain.collectives
    assert (audited.figures["reductions"], audited.figures["windows"]) == (12, 3)
    assert (enforced.figures["late"], enforced.figures["windows"]) == (2, 2)
    assert enforced.figures["reductions"] <= 3
    assert enforced.gradients(loop) == 4 + enforced.figures["reductions"]


def test_windows_stay_apart_where_a_forward_has_no_backward(loops: Loops) -> None:
    assert [loops("evaluating", how).figures["window_sizes"] for how in ("audit", "enforce")] == [{"4": 3}, {"4": 2}]


# What is not to be enforced.


@pytest.mark.parametrize("how", ["audit", "enforce"])
@pytest.mark.parametrize(
    ("name", "hows", "why"),
    [
        ("hand_written", ("audit", "enforce"), "SGD trains Net, which neither DDP nor FSDP wraps: the script reduces in a way of its own"),
        ("adversarial", ("enforce",), "models that step in turns: attach them together by hand"),
        ("one_after_the_other", ("enforce",), "models that step in turns: attach them together by hand"),
        ("never_reduced", ("enforce",), "SGD, whose first window reduced nothing: local SGD, or an optimizer that reduces by itself"),
        ("joined", ("enforce",), "inside Join the ranks that have ended shadow each backward"),
        ("clipped_by_hand", ("enforce",), "reads gradients before the step"),
        ("static_graph", ("enforce",), "DDP(static_graph=True) cannot reduce late once it has reduced"),
    ],
)
def test_left_alone(loops: Loops, name: str, hows: tuple[str, ...], why: str, how: str) -> None:
    plain, told = loops(name, "plain"), loops(name, how)
    assert told.parameters == plain.parameters
    assert told.collectives == plain.collectives
    if how in hows:
        assert why in told.left_alone
        assert told.left_alone in told.done.stderr[0]
    else:
        assert told.figures["windows"]


def test_what_reads_gradients_later_is_left_alone_from_there(loops: Loops) -> None:
    """The first window is not seen, the second judged, the third and fourth enforced; after that the script reduces as it did."""
    plain, enforced = loops("read_now_and_then", "plain"), loops("read_now_and_then", "enforce")
    assert enforced.parameters == plain.parameters
    assert enforced.gradients(Loop()) == 4 + 1 + 1 + 3 * 4
    assert enforced.done.report is not None
    [figures] = enforced.done.report["observed"]
    assert (figures["windows"], figures["reductions"]) == (2, 2)
    assert "touched_loops.py" in figures["given_up"] and "reads gradients before the step" in figures["given_up"]
    assert figures["given_up"] in enforced.done.stderr[0]


def test_models_that_step_in_turns_are_counted_together(loops: Loops) -> None:
    figures: Any = loops("one_after_the_other", "audit").figures
    assert len(figures["model"]) == len(figures["optimizer"]) == 2
    assert (figures["window_sizes"], figures["wasted"]) == ({"2": 7}, 7)
    figures = loops("adversarial", "audit").figures
    assert (figures["window_sizes"], figures["wasted"]) == ({"1": 7}, 0)


def test_static_graph_is_counted(loops: Loops) -> None:
    figures = loops("static_graph", "audit").figures
    assert (figures["window_sizes"], figures["wasted"]) == ({"4": 3}, 9)


def test_gradients_that_nobody_reduces_are_told(loops: Loops) -> None:
    plain, told = loops("never_reduced", "plain"), loops("never_reduced", "audit")
    assert told.parameters == plain.parameters
    assert plain.parameters[0] != plain.parameters[1]
    assert (told.figures["unreduced"], told.figures["reductions"]) == (3, 0)
    assert "3 of 3 optimizer steps used gradients that no micro-step before them had reduced" in told.done.stderr[0]


def test_a_second_backward_of_the_same_forward_is_audited(loops: Loops) -> None:
    plain, told = loops("two_backwards", "plain"), loops("two_backwards", "audit")
    assert (told.parameters, told.collectives) == (plain.parameters, plain.collectives)
    assert told.figures["reductions"] == 3


@pytest.mark.parametrize("name", ["scaled_by_hand", "clipped_in_two", "saved_whole", "wrapped_anew", "scaled_anew"])
def test_the_same_bytes_whether_enforced_or_left_alone(loops: Loops, name: str) -> None:
    plain, audited, enforced = (loops(name, how) for how in ("plain", "audit", "enforce"))
    assert audited.parameters == enforced.parameters == plain.parameters
    assert audited.collectives == plain.collectives


@pytest.mark.parametrize("how", ["plain", "audit", "enforce"])
@pytest.mark.parametrize(("name", "status", "text"), [("exits", 3, ""), ("fails", 1, "ValueError: invalid literal for int()")])
def test_the_script_ends_in_the_middle_of_a_window(loops: Loops, name: str, status: int, text: str, how: str) -> None:
    """With its own status, and a report of the windows that were stepped on."""
    done = loops.ended(name, how)
    assert done.statuses == [status] * 2, done
    assert all(text in stderr for stderr in done.stderr)
    if how != "plain":
        assert done.report is not None
        [figures] = done.report["observed"]
        assert figures["window_sizes"] == {"2": 2 if how == "audit" else 1}
        assert figures["reductions"] == (4 if how == "audit" else 1)
