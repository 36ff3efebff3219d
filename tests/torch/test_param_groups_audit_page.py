"""How an audit judges times, and what a person reads."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import audited
import pytest
import torch
from gradgate.param_groups import _page, _timing
from gradgate.param_groups.audit import Audit, audit


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> type[audited.Ticking]:
    monkeypatch.setattr(_timing, "clock", audited.Ticking.clock)
    monkeypatch.setattr(audited.Ticking, "now", 0.0)
    monkeypatch.setattr(audited.Ticking, "noise", iter(()))
    return audited.Ticking


def test_times_are_those_of_the_groups_as_they_are_and_merged(ticking: type[audited.Ticking]) -> None:
    found = audit(ticking(audited.groups(8, 2)))  # 2 + 8 ms to warm up, 18 ms a round
    assert (found.step_ms, found.merged_ms, found.saving_ms, found.share) == pytest.approx((8, 2, 6, 0.75))
    assert found.interval_ms == pytest.approx(0) and found.verdict == "saves" and found.rounds == (2000 - 10) // 18
    assert str(found).startswith("Ticking has 8 parameter groups and needs 2: merging saves 6.00 ms of each 8.00 ms step (−75 %).\n")
    assert str(found).endswith(
        "Do: groups = gradgate.param_groups.merge(groups) before the optimizer is built, "
        "or gradgate.param_groups.merge_optimizer(optimizer) on this one."
    )


def test_three_rounds_however_slow(ticking: type[audited.Ticking]) -> None:
    assert audit(ticking(audited.groups(8, 2)), seconds=1e-6).rounds == 3


def test_no_verdict_where_the_same_step_differs_by_as_much(ticking: type[audited.Ticking], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticking, "noise", itertools.cycle([0.0, 40.0, 0.0, 0.0, 30.0, 0.0, 60.0]))
    found = audit(ticking(audited.groups(8, 2)))
    assert found.saving_ms is not None and found.interval_ms is not None and found.interval_ms >= abs(found.saving_ms) > 0
    assert found.verdict == "no verdict" and ": no verdict, merged the step is " in str(found)
    assert str(found).endswith("Do: measure for longer, on a quieter machine: audit(optimizer, seconds=20).")


def test_rounds_take_turns(ticking: type[audited.Ticking]) -> None:
    taken: list[str] = []
    times = _timing.in_turn({name: functools.partial(taken.append, name) for name in "abc"}, lambda: None, deadline=1.0)
    assert len(taken) == 3 * _timing.MOST_ROUNDS == sum(map(len, times.values()))
    rounds = ["".join(taken[i : i + 3]) for i in range(0, len(taken), 3)]
    assert set(rounds[:6]) == {"abc", "acb", "cab", "bac", "bca", "cba"}


@pytest.mark.parametrize(("count", "low", "high"), [(3, 0, 2), (5, 0, 4), (9, 1, 7), (100, 40, 59)])
def test_interval(count: int, low: int, high: int) -> None:
    assert _timing.interval([float(i) for i in reversed(range(count))]) == (low, high)
    assert _timing.chance([0.0] * 3, [1.0, -2.0, 0.5]) == 2.0


FOUND = Audit("AdamW", 465, 28, 465, 11_200_000, 0, (), "for-loop", "for-loop", "torch", "cpu, 2 threads", 38.0, 37.9, 0.5, rounds=40)


def _found(**changes: Any) -> Audit:
    return dataclasses.replace(FOUND, **changes)


@pytest.mark.parametrize(
    ("changes", "first", "last"),
    [
        (
            {"alternatives": {"foreach": 30.0, "fused": 4.0}},
            "AdamW has 465 parameter groups and needs 28: merged and with fused=True, a step takes 4.00 ms instead of 38.0 ms (−89 %).",
            "Do: AdamW(gradgate.param_groups.merge(groups), fused=True, …) where the optimizer is built; "
            "fused rounds differently: not the same bits as before.",
        ),
        (
            {"merged_ms": 20.0, "alternatives": {"fused": 4.0}},
            "AdamW has 465 parameter groups and needs 28: merged and with fused=True, a step takes 4.00 ms instead of 38.0 ms (−89 %).",
            "Do: AdamW(gradgate.param_groups.merge(groups), fused=True, …) where the optimizer is built; "
            "fused rounds differently: not the same bits as before, which merging alone would give.",
        ),
        (
            {"alternatives": {"foreach": 30.0, "fused": 29.9}},
            "AdamW has 465 parameter groups and needs 28: merged and with foreach=True, a step takes 30.0 ms instead of 38.0 ms (−21 %).",
            "Do: AdamW(gradgate.param_groups.merge(groups), foreach=True, …) where the optimizer is built.",
        ),
        (
            {"alternatives": {"foreach": 37.0}},  # less than a twentieth
            "AdamW has 465 parameter groups and needs 28: no verdict, merged the step is 0.10 ms shorter, and by chance alone ±0.50 ms.",
            "Do: nothing: leave it as it is.",
        ),
        (
            {"merged_ms": 40.0},
            "AdamW has 465 parameter groups and needs 28, but merging alone makes the step longer by 2.00 ms.",
            "Do: nothing: leave it as it is.",
        ),
        (
            {"groups": 28, "merged_ms": 38.0},
            "AdamW has 28 parameter groups and needs them all: there is nothing to merge.",
            "Do: nothing: leave it as it is.",
        ),
        (
            {"groups": 1, "needed": 1, "merged_ms": 38.0, "alternatives": {"fused": 4.0}},
            "AdamW has 1 parameter group: with fused=True, a step takes 4.00 ms instead of 38.0 ms (−89 %).",
            "Do: AdamW(groups, fused=True, …) where the optimizer is built; fused rounds differently: not the same bits as before.",
        ),
    ],
    ids=["fused", "fused or merged", "foreach", "none", "costs", "merged", "one"],
)
def test_verdict_first_and_advice_last(changes: dict[str, Any], first: str, last: str) -> None:
    lines = str(_found(**changes)).splitlines()
    assert (lines[0], lines[-1]) == (first, last)
    assert max(map(len, lines)) <= 190 and len(lines) <= 9


def test_table() -> None:
    lines = str(_found(alternatives={"foreach": 30.0, "fused": 4.0})).splitlines()
    assert [line.split("  ", 1)[1] for line in lines[1:6]] == [
        "as it is    465 groups  for-loop, torch's default here  38.0 ms",
        "merged       28 groups  for-loop                        37.9 ms  −0.10 ms (chance)",
        "merged       28 groups  foreach=True                    30.0 ms  −8.00 ms",
        "merged       28 groups  fused=True                      4.00 ms  −34.0 ms",
        "465 tensors, 11.2 M elements, on cpu, 2 threads; medians of 40 rounds, the same step against itself ±0.50 ms",
    ]


def test_says_in_what_the_groups_differ() -> None:
    held = [{**group, "weight_decay": 0.05 * (i % 2)} for i, group in enumerate(audited.groups(12, 6))]
    assert "  the 6 differ in lr (6 values, 0.001 … 0.006), weight_decay (0, 0.05)" in str(audit(torch.optim.AdamW(held), measure=False))


def test_names_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA L4")
    found = [torch.device(name) for name in ("cuda:0", "cpu", "cuda:0", "meta")]
    for threads, said in ((1, "1 thread"), (8, "8 threads")):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert _page.devices(found) == f"cuda:0 NVIDIA L4 and cpu, {said} and meta"


def test_units() -> None:
    times = [(0.0123, 0.5), (0.5, 0.5), (12.34, 40.0), (0.0, 40.0), (1234.0, 40.0), (1234.0, 1234.0)]
    assert [_page.time(*each) for each in times] == ["12.3 µs", "500 µs", "12.3 ms", "0.00 ms", "1234 ms", "1.23 s"]
    assert [_page.count(number) for number in (999_999, 1_500_000, 7_200_000_000)] == ["999,999", "1.5 M", "7.2 G"]
