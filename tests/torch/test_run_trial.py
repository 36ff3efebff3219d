"""`gradgate trial` and `gradgate explain`: two policies in turn on one script, and what was found in it."""

from __future__ import annotations

import io
import json
import pathlib
import random
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout

import pytest
from forked_runs import Nursery
from gradgate.run import command, explain, trial
from run_rows import Loop, Loops
from test_run_loops import HSDP

WINDOWS = 5
WARM = 3  # windows


@pytest.fixture(scope="module")
def loops() -> Iterator[Loops]:
    with Nursery() as nursery:
        yield Loops(nursery)


def measured(ratio: float, noise: float, pairs: int = 20, seed: int = 7) -> trial.Trial:
    """As if windows of the second policy took `ratio` of the first's 0.1 s."""
    lots = random.Random(seed)
    one = trial.Trial(("every_micro_step", "window"), pairs)
    for pair in range(pairs):
        for policy in (0, 1):
            seconds = 0.1 * (ratio if policy else 1.0) * (1 + noise * lots.uniform(-1, 1))
            one.samples.append(trial.Sample(policy, pair, 4, seconds))
    return one


def modes(one: trial.Trial) -> list[str]:
    seen = []
    for window in range(WARM + 2 * one.windows):
        seen.append(one.mode)
        for _ in range(2):  # the second time after it went on
            one.climb(window, 0)
    return seen


def test_each_pair_has_both_in_an_order_drawn_alike_on_all_ranks() -> None:
    ranks = [trial.Trial(("every_micro_step", "window"), 20) for _ in range(2)]
    first, second = map(modes, ranks)
    assert first == second
    assert all(one.over for one in ranks)
    assert first[:WARM] == ["window"] * WARM
    pairs = list(zip(first[WARM::2], first[WARM + 1 :: 2], strict=True))
    assert {frozenset(pair) for pair in pairs} == {frozenset({"every_micro_step", "window"})}
    assert 4 < pairs.count(("window", "every_micro_step")) < 16


@pytest.mark.parametrize(("ratio", "faster"), [(0.7, "window"), (1.2, "every_micro_step")])
def test_tells_which_is_faster_and_by_how_much(ratio: float, faster: str) -> None:
    found = trial.verdict(measured(ratio, 0.05))
    low, high = found["interval"]
    assert low < ratio < high and high - low < 0.05
    assert found["differs"] and found["ratio"] == pytest.approx(ratio, abs=0.02)
    assert trial.page(found, "ddp")[-1].startswith(f"  {faster} is faster, by ")


@pytest.mark.parametrize(("ratio", "noise"), [(1.0, 0.05), (0.98, 0.4)])
def test_gives_no_verdict_where_chance_makes_as_much(ratio: float, noise: float) -> None:
    found = trial.verdict(measured(ratio, noise))
    assert not found["differs"]
    assert "no verdict" in trial.page(found, "ddp")[-1]


def test_windows_of_other_sizes_are_left_out_with_their_pairs() -> None:
    one = measured(0.5, 0.01, pairs=6)
    one.samples[0] = one.samples[0]._replace(micro_steps=1, seconds=1e9)
    found = trial.verdict(one)
    assert (found["pairs"], found["micro_steps"]) == (5, 4)
    assert found["ratio"] == pytest.approx(0.5, abs=0.02)
    one.samples.pop()
    assert "too few to tell" in trial.page(trial.verdict(one), "ddp")[-1]


@pytest.mark.parametrize(
    ("windows", "policies", "text"),
    [
        (4, "every_micro_step,window", "--windows 4: at least 5"),
        (10_001, "every_micro_step,window", "--windows 10001: at most 10000"),
        (20, "window,window", "--policies window,window: two different ones of every_micro_step, window, window_replica"),
        (20, "window", "two different ones"),
        (20, "window,never", "two different ones"),
    ],
)
def test_wrong_options_are_named(windows: int, policies: str, text: str) -> None:
    told = io.StringIO()
    with redirect_stderr(told), pytest.raises(SystemExit) as ended:
        command.main(["trial", "--windows", str(windows), "--policies", policies, "--", "true"])
    assert ended.value.code == 2
    assert text in told.getvalue()


@pytest.mark.parametrize(
    ("name", "loop", "policies", "counts"),
    [
        ("tried", Loop(), "every_micro_step,window", (4, 1)),
        ("tried_sharded", Loop(gradients=HSDP), "window,every_micro_step", (1, 4)),
    ],
)
def test_alternates_and_goes_back(loops: Loops, name: str, loop: Loop, policies: str, counts: tuple[int, int]) -> None:
    """18 windows: one not seen, one counted, three of the second policy, five of each, and three as the script is written."""
    plain = loops(name, "plain")
    tried = loops(name, "enforce", **{trial.VARIABLE: f"{WINDOWS},{policies}"})
    assert tried.parameters == plain.parameters
    reductions = 4 + WARM * counts[1] + WINDOWS * sum(counts) + 3 * 4
    assert tried.gradients(loop) == reductions * len(loop.gradients)
    [figures] = tried.report["observed"]
    found = figures["trial"]
    assert (found["over"], found["pairs"], found["micro_steps"]) == (True, WINDOWS, 4)
    assert found["policies"] == policies.split(",")
    assert all(seconds > 0 for seconds in found["seconds"])
    assert figures["mismatched"] == 0
    [head, *_] = [line for line in tried.done.stderr[0].splitlines() if line.startswith("gradgate trial")]
    assert head.endswith(f"{WINDOWS} windows of 4 micro-steps under each policy")
    assert "went wrong" not in tried.done.stderr[0] and not tried.done.stderr[1]


def test_a_policy_without_effect_is_told_and_not_tried(loops: Loops) -> None:
    plain, told = loops("tried", "plain"), loops("tried", "enforce", **{trial.VARIABLE: "5,window_replica,window"})
    assert (told.parameters, told.collectives) == (plain.parameters, plain.collectives)
    assert "where policy window_replica has no effect" in told.left_alone


def test_a_script_that_ends_first_says_so(loops: Loops) -> None:
    told = loops("predicted", "enforce", **{trial.VARIABLE: "20,every_micro_step,window"})
    assert "and the script ended before all were run" in told.done.stderr[0]
    [figures] = told.report["observed"]
    assert (figures["trial"]["over"], figures["given_up"]) == (False, "")


def test_explains_what_was_found(loops: Loops, tmp_path: pathlib.Path) -> None:
    """Once, after the first window, and from the report the same."""
    told = loops("tried_sharded", "enforce", **{explain.VARIABLE: "1"})
    lines = told.done.stderr[0].splitlines()
    first, last = lines.index("gradgate found: FSDPKnown"), next(i for i, line in enumerate(lines) if line.startswith("gradgate: fsdp2"))
    page = "\n".join(lines[first:last])
    for text in (
        "fsdp2 on FSDPKnown: 3 parameters, 0.00 M elements",
        "group replicate: 2 ranks (0, 1), gloo; one reduction is 3 all_reduce",
        "whether to reduce is read in the backward",
        "stepped by SGD: 3 parameters, 1 parameter group",
        "in force: enforce, window: a window that was only counted reduced 4 times; a step needs one reduction",
        "prediction: none yet",
    ):
        assert text in page
    path = tmp_path / "report.json"
    path.write_text(json.dumps(told.report))
    shown = io.StringIO()
    with redirect_stdout(shown):
        assert command.main(["explain", str(path)]) == 0
    assert shown.getvalue().splitlines()[0] == lines[first]
    assert "in force: enforce, window" in shown.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"observed": [{}], "left_alone": {}}',
        '{"observed": [{"explain": {"wrappers": {"a": 1}}, "model": []}], "left_alone": {}}',
        "[" * 100000,
    ],
)
def test_a_file_that_is_no_report_is_named(tmp_path: pathlib.Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    told = io.StringIO()
    with redirect_stderr(told):
        assert command.main(["explain", str(path)]) == 1
    assert f"{path}: not a report" in told.getvalue()


def test_what_a_report_says_is_printed_escaped(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"observed": [], "left_alone": {"a\x1b[2Jb\ud800c": None}}))
    shown = io.StringIO()
    with redirect_stdout(shown):
        assert command.main(["explain", str(path)]) == 0
    assert shown.getvalue() == "gradgate: left alone: a\\x1b[2Jb\\xd800c\n"


def test_audit_explains_after_its_first_window(loops: Loops) -> None:
    told = loops("naive", "audit", **{explain.VARIABLE: "1"})
    page = told.done.stderr[0]
    assert page.index("gradgate found: DistributedDataParallel") < page.index("gradgate: ddp · ")
    assert "in force: audit, every_micro_step: counted, and nothing changed: this is what --audit does" in page
    assert "whether to reduce is read in the forward: a context around the backward alone comes too late" in page
