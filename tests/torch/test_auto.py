"""Which rung mode="auto" takes under which headroom. One process, no group."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from gradgate import auto

DEFERRED, UNSHARDED = 1000, 400


def rungs(may_defer: bool = True, may_keep: bool = True) -> list[auto.Rung]:
    return auto._rungs("window_replica", False, may_defer, may_keep, lambda: DEFERRED, lambda: UNSHARDED)


def climbed(free: int, windows: int = 12, steps: list[auto.Rung] | None = None) -> list[tuple[str, bool]]:
    """The rung of each window, where so much is free beyond the first rung's peak."""
    ladder = auto.Ladder(steps or rungs(), torch.device("cpu"))
    seen = []
    with mock.patch.object(auto, "memory", lambda _device: (free - ladder._rungs[ladder.at].cost(), 10)):
        for window in range(windows):
            seen.append((ladder.mode, ladder.keep))
            ladder.climb(window, ladder.headroom_bytes(window))
    return seen


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")


BASE, WINDOW, BASE_KEPT, WINDOW_KEPT = ("window_replica", False), ("window", False), ("window_replica", True), ("window", True)


def test_with_room_for_all_it_goes_up_rung_by_rung() -> None:
    assert climbed(1 << 40) == [BASE] * 3 + [WINDOW] * 3 + [WINDOW_KEPT] * 6


def test_with_room_for_gradients_alone_it_stops_there() -> None:
    assert climbed(DEFERRED + 1) == [BASE] * 3 + [WINDOW] * 9


def test_where_only_parameters_have_room_they_are_kept() -> None:
    assert climbed(UNSHARDED + 1) == [BASE] * 6 + [BASE_KEPT] * 6


def test_where_nothing_has_room_it_stays() -> None:
    assert climbed(UNSHARDED - 1) == [BASE] * 12


def test_windows_of_one_micro_step_need_no_room_for_gradients() -> None:
    assert climbed(UNSHARDED + 1, steps=rungs(may_defer=False)) == [BASE] * 3 + [BASE_KEPT] * 9


def test_where_parameters_cannot_be_kept_window_is_the_last() -> None:
    assert climbed(1 << 40, steps=rungs(may_keep=False)) == [BASE] * 3 + [WINDOW] * 9
    assert climbed(1 << 40, steps=rungs(may_defer=False, may_keep=False)) == [BASE] * 12


def test_headroom_is_asked_for_in_windows_that_decide_alone() -> None:
    ladder = auto.Ladder(rungs(), torch.device("cpu"))
    with mock.patch.object(auto, "memory", lambda _device: (5000, 10)):
        assert [ladder.headroom_bytes(window) for window in range(4)] == [auto.UNKNOWN, auto.UNKNOWN, 5000 - 1 - DEFERRED, auto.UNKNOWN]


def test_never_after_an_out_of_memory_nor_without_a_limit() -> None:
    ladder = auto.Ladder(rungs(), torch.device("cpu"))
    ladder.out_of_memory = True
    assert ladder.headroom_bytes(2) == -1
    with mock.patch.object(auto, "memory", lambda _device: (0, 0)):
        ladder.out_of_memory = False
        assert ladder.headroom_bytes(2) == auto.UNKNOWN
        assert not ladder.climb(2, auto.UNKNOWN)
        assert ladder.unlimited
