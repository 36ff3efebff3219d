"""The adapter for FSDP2 around the window: parameters that are kept, exceptions, evaluation, state dicts, memory, other wrappings."""

from __future__ import annotations

from typing import Any

import launch
import pytest


def two_ranks(rank: int, world: int) -> dict[str, Any]:
    import fsdp2_corner_rows

    return fsdp2_corner_rows.two_ranks(rank, world)


@pytest.fixture(scope="module")
def two() -> list[dict[str, Any]]:
    return launch.run(two_ranks, 2, timeout=300)


G, N = 4, 4


def test_every_wrapping_is_exact(two: list[dict[str, Any]]) -> None:
    for rows in two:
        for name, row in rows.items():
            if isinstance(row, dict) and "same" in row:
                assert row["same"] and row["moved"] and row["left"] == [], (name, row)
        assert rows["window"]["counts"] == {"reduce_scatter": 3 * G, "all_gather": 10 * (2 * G - 1)}
        assert rows["kept"]["counts"] == {"reduce_scatter": 3 * G, "all_gather": 3 * G}
        assert rows["recomputed"]["counts"] == {"reduce_scatter": 2 * G, "all_gather": 2 * G}
        assert rows["replica"]["counts"]["reduce_scatter"] == N * G, "one dimension has nothing to defer"
        assert rows["replicate"]["counts"]["all_reduce"] == 2 * G
        assert rows["replicate partial"]["counts"]["all_reduce"] == 2 * G
        assert rows["grouped"]["counts"] == {"reduce_scatter": 2 * 2, "all_gather": 2 * 2}, "the third block is the root's"


def test_facts_and_reasons(two: list[dict[str, Any]]) -> None:
    for rows in two:
        line = ("fsdp2", [("SHARD", 2)], {"SHARD reduce_scatter": G}, ["no_replica_dimension", None])
        tall = ("fsdp2", [("REPLICATE", 2)], {"REPLICATE all_reduce": G}, ["shards_nothing", "keep_params_unsharded"])
        replicate = ("replicate", [("DP", 2)], {"DP all_reduce": G}, ["no_shard_dimension", "keep_params_unsharded"])
        if rows["facts"]["replicate"][0] == "fsdp2":  # what replicate() was before torch 2.10
            replicate = tall
        assert rows["facts"] == {"line": line, "tall": tall, "replicate": replicate}
        assert rows["self test"] < 1 and rows["gloo"] is True


def test_a_root_that_the_boundary_does_not_use(two: list[dict[str, Any]]) -> None:
    for rows in two:
        assert rows["roots"]["reduced"] == [True, False]
        assert rows["roots"]["pending"] == [False, True]
        assert rows["roots"]["after"] == [2.0, 1.0]
        assert rows["roots"]["names"] == [7, 7]


def test_a_step_inside_a_window(two: list[dict[str, Any]]) -> None:
    for rows in two:
        for row in rows["early step"]:
            assert row["hidden"], "the gradient was to be hidden, or this shows nothing"
            assert row["norm"] == pytest.approx(1)
            assert row["loss"] == -14.0, "forward on the new weights: 1·(−1) + 2·(−2) + 3·(−3)"


def test_evaluation_and_state_dict_inside_a_kept_window(two: list[dict[str, Any]]) -> None:
    for rows in two:
        found = rows["settled"]
        assert found["inside"] == {}
        assert found["sharded"] and found["sharded after"]
        assert found["settled"] == {"all_gather": G + G - 1}, "the root's own stay until the next backward, as they do without gradgate"
        assert found["gradient"] == 4.0
        assert found["between"] == {"all_gather": G + G - 1}


def test_a_window_survives_an_exception(two: list[dict[str, Any]]) -> None:
    for rows in two:
        for where, found in zip(("forward", "backward"), rows["exceptions"], strict=True):
            for name, row in found.items():
                assert row == [where, 4.0, 4.0], name


def test_memory_is_predicted(two: list[dict[str, Any]]) -> None:
    count = 15 + 4 + 15 + 4 + 6 + 6 + 3
    for rank, rows in enumerate(two):
        assert rows["memory"].pop("kept") == count * 8
        for name, (predicted, held) in rows["memory"].items():
            assert predicted == held, (rank, name)


def test_a_torch_that_behaves_otherwise_is_refused(two: list[dict[str, Any]]) -> None:
    for rows in two:
        late, self_test = rows["refused"]
        assert late.startswith("Unreduced: FSDP2 of torch ") and " has left the gradients of g, blocks.0.a, blocks.0.b" in late
        assert (
            self_test.startswith("Unreduced: FSDP2 of torch ")
            and "does not defer and reduce gradients as this gradgate expects" in self_test
        )


def test_partial_sum_of_a_single_shard(two: list[dict[str, Any]]) -> None:
    for rows in two:
        assert rows["no replicas"]["found"] == [16.5, 16.5]
        assert rows["no replicas"]["counts"]["all_reduce"] == 2 * G
