"""The adapter for FSDP1, every sharding strategy: windows in time and late equal reducing each micro-step, byte by byte."""

from __future__ import annotations

from typing import Any

import launch
import pytest

G, N = 4, 4


def exact_rows(rows: dict[str, Any]) -> None:
    for name, row in rows.items():
        if isinstance(row, dict) and "same" in row:
            assert row["same"] and row["moved"] and row["flags"], (name, row)


def two_ranks(rank: int, world: int) -> dict[str, Any]:
    import fsdp1_rows

    return fsdp1_rows.two_ranks(rank, world)


def four_ranks(rank: int, world: int) -> dict[str, Any]:
    import fsdp1_rows

    return fsdp1_rows.four_ranks(rank, world)


@pytest.fixture(scope="module")
def two() -> list[dict[str, Any]]:
    return launch.run(two_ranks, 2, timeout=300)


def test_windows_are_exact_with_the_counts_of_one_reduction(two: list[dict[str, Any]]) -> None:
    for rows in two:
        exact_rows(rows)
        for original in (True, False):
            assert rows[f"FULL_SHARD {original}"]["plain"]["reduce_scatter"] == 12 * G
            assert rows[f"FULL_SHARD {original}"]["counts"]["reduce_scatter"] == 4 * G
            assert rows[f"FULL_SHARD {original}"]["counts"]["all_gather"] == rows[f"FULL_SHARD {original}"]["plain"]["all_gather"]
            assert rows[f"SHARD_GRAD_OP {original}"]["counts"]["reduce_scatter"] == 4 * G
            assert rows[f"SHARD_GRAD_OP {original}"]["counts"]["all_gather"] == 4 * G, "kept by the strategy itself"
            assert rows[f"NO_SHARD {original}"]["counts"] == {"all_reduce": 4 * G}
        assert rows["replica"]["counts"]["reduce_scatter"] == N * G


def test_facts_and_reasons(two: list[dict[str, Any]]) -> None:
    shared = [None, "bucket_fsdp1", None, "wire_fsdp1", "keep_params_fsdp1", None, "variable_fsdp", None]
    for rows in two:
        for strategy in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"):
            role, operation = ("DP", "all_reduce") if strategy == "NO_SHARD" else ("SHARD", "reduce_scatter")
            assert rows[f"facts {strategy}"] == {
                "groups": [(role, 2)],
                "expected": {f"{role} {operation}": G},
                "reasons": ["no_replica_dimension", *shared],
            }
        assert all(predicted == held for predicted, held in rows["memory"]), rows["memory"]


def test_a_part_that_the_boundary_does_not_use(two: list[dict[str, Any]]) -> None:
    for rows in two:
        for strategy in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"):
            assert rows[f"partly {strategy}"] == [False, True, None, False, -2.0, -2.0, -1.0, 0.0], strategy


def test_a_discarded_window_leaves_nothing(two: list[dict[str, Any]]) -> None:
    for rows in two:
        for strategy in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"):
            assert rows[f"discard {strategy}"] == [0.0, -1.0, -2.0, -3.0]


def test_a_window_survives_an_exception(two: list[dict[str, Any]]) -> None:
    for rows in two:
        for strategy in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"):
            for where, found in zip(("forward", "backward"), rows[f"exception {strategy}"], strict=True):
                assert found == [where, -4.0, -8.0, -12.0], strategy


def test_a_torch_that_behaves_otherwise_is_refused(two: list[dict[str, Any]]) -> None:
    for rows in two:
        assert "does not defer and reduce gradients as this gradgate expects" in rows["self test"]


def test_hybrid_strategies() -> None:
    for rows in launch.run(four_ranks, 4, timeout=300):
        exact_rows(rows)
        for strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
            counts, facts_of = rows[strategy]["counts"], rows[f"facts {strategy}"]
            assert (counts["reduce_scatter"], counts["all_reduce"]) == (4 * G, 4 * G)
            assert facts_of["groups"] == [("SHARD", 2), ("REPLICATE", 2)]
            assert facts_of["expected"] == {"SHARD reduce_scatter": G, "REPLICATE all_reduce": G}
            assert facts_of["reasons"][0] == "window_replica_fsdp1"
        assert rows["replica"]["counts"]["all_reduce"] == N * G
