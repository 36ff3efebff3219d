"""Merged groups of parameters that FSDP2 has sharded: no bit of a rank's shards or of their state differs after twelve steps."""

from __future__ import annotations

from typing import Any

import launch
import pytest
from grouped_model import SETTINGS, TENSORS


def two_ranks(rank: int, world: int) -> dict[str, Any]:
    import param_groups_rows

    return param_groups_rows.two_ranks(rank, world)


@pytest.fixture(scope="module")
def two() -> list[dict[str, Any]]:
    return launch.run(two_ranks, 2, timeout=240)


def test_merged_is_unmerged_on_every_rank(two: list[dict[str, Any]]) -> None:
    for ranks in two:
        assert len(ranks["rows"]) == 5
        for name, row in ranks["rows"].items():
            assert row == {"differ": [], "groups": SETTINGS, "settings kept": True, "sharded": TENSORS, "moved": True}, name


def test_a_rank_has_nothing_of_some_tensors(two: list[dict[str, Any]]) -> None:
    assert [ranks["empty"] for ranks in two] == [[], ["position", "token"]]


def test_sharded_and_plain_tensors_stay_apart(two: list[dict[str, Any]]) -> None:
    """torch's foreach and fused take lists of one kind alone."""
    for ranks in two:
        assert ranks["in part"] == {"differ": [], "groups": 30, "kinds in each": {1}}


def test_torch_has_no_fused_sgd_for_them(two: list[dict[str, Any]]) -> None:
    for ranks in two:
        assert "_fused_sgd_" in ranks["refused"]
