"""The adapter for FSDP2: what is issued, that no byte of a parameter differs from reducing each micro-step, and what is refused."""

from __future__ import annotations

from typing import Any

import launch
import pytest


def four_ranks(rank: int, world: int) -> dict[str, Any]:
    import fsdp2_rows

    return fsdp2_rows.four_ranks(rank, world)


@pytest.fixture(scope="module")
def four() -> list[dict[str, Any]]:
    return launch.run(four_ranks, 4, timeout=300)


G, N = 4, 4


def test_windows_are_exact_with_the_counts_of_one_reduction(four: list[dict[str, Any]]) -> None:
    for rows in four:
        for name, row in rows.items():
            if isinstance(row, dict) and "same" in row:
                assert row["same"] and row["moved"], (name, row)
                assert row["left"] == [], name
        # 16 micro-steps in 5 windows. An all-gather per group and forward, and in backward but for the root's own.
        gathers = 16 * (2 * G - 1)
        assert rows["window"]["plain"] == {"reduce_scatter": 16 * G, "all_reduce": 16 * G, "all_gather": gathers}
        assert rows["window"]["counts"] == {"reduce_scatter": 5 * G, "all_reduce": 5 * G, "all_gather": gathers}
        assert rows["kept"]["counts"] == {"reduce_scatter": 5 * G, "all_reduce": 5 * G, "all_gather": 5 * G}
        assert rows["replica"]["counts"] == {"reduce_scatter": 16 * G, "all_reduce": 5 * G, "all_gather": gathers}
        assert rows["replica late"]["counts"] == rows["replica"]["counts"], "late costs nothing more"
        assert rows["replica kept"]["counts"] == {"reduce_scatter": N * G, "all_reduce": G, "all_gather": G}


def test_the_users_setter_between_micro_steps_is_undone_and_told(four: list[dict[str, Any]]) -> None:
    for rows in four:
        assert rows["setter"]["counts"]["all_reduce"] == G
        assert rows["setter"]["counts"]["reduce_scatter"] == N * G
        assert len(rows["setter"]["told"]) == G
        assert rows["setter"]["restored"]


def test_a_discarded_window_leaves_nothing_and_costs_nothing(four: list[dict[str, Any]]) -> None:
    for rows in four:
        assert rows["discard"] == {plan: ([2.0, 4.0, 6.0], {}, False) for plan in ("ACCUMULATE", "SHARD")}


def test_replicas_with_other_parameters_or_none(four: list[dict[str, Any]]) -> None:
    for rows in four:
        assert rows["replicas"] == {"none": [2.0, None, 2.0, 2.0], "none yet": [2.0, None, 2.0, 2.0], "other": [2.0, None, 2.0, 4.0]}


def test_an_unknown_partial_sum_is_refused_by_name(four: list[dict[str, Any]]) -> None:
    for rows in four:
        assert rows["before"].startswith("Unreduced: the partial gradient sum of blocks.0 was begun before gradgate.attach")


def test_facts_of_two_dimensions(four: list[dict[str, Any]]) -> None:
    for rows in four:
        assert rows["facts"] == {
            "groups": [("REPLICATE", 2), ("SHARD", 2)],
            "expected": {"SHARD reduce_scatter": G, "REPLICATE all_reduce": G},
            "parameters": 7,
            "reasons": [None, None, None, "bucket_fsdp2", "wire_fsdp2", None, "variable_fsdp", None],
        }


def test_types_are_made_one_before_a_reduction(four: list[dict[str, Any]]) -> None:
    for rows in four:
        assert rows["mixed types"] == [[2.0, 4.0, None]] * 2
