"""The launcher brings back values and failures of every rank, and leaves nobody behind."""

from __future__ import annotations

import os
import pathlib
import time
from typing import Any

import launch
import pytest


def summing(rank: int, world: int, factor: int) -> dict[str, Any]:
    import counting
    import torch
    import torch.distributed as dist

    value, net = torch.tensor([float(factor * rank)]), torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    with counting.profiled() as counts:
        dist.all_reduce(value)
        net(torch.ones(1, 2)).sum().backward()
        dist.broadcast(value, 0)
    return {"sum": value.item(), "counts": dict(counts), "world": world, "pid": os.getpid(), "threads": torch.get_num_threads()}


def half_failing(rank: int, world: int) -> None:
    import torch
    import torch.distributed as dist

    if rank == 1:
        raise ValueError("rank one's own reason")
    dist.all_reduce(torch.ones(1))


def never_ending(rank: int, world: int) -> None:
    child = os.fork()
    print(f"forked {child or os.getpid()}", flush=True)
    while True:
        time.sleep(60)


def test_values_and_counts() -> None:
    results = launch.run(summing, 2, args=(5,))
    assert [result["sum"] for result in results] == [5.0, 5.0]
    assert [result["world"] for result in results] == [2, 2]
    assert results[0]["pid"] != results[1]["pid"]
    for result in results:
        assert result["counts"] == {"all_reduce": 2, "broadcast": 1}
        assert result["threads"] == 1


def test_a_failing_rank_is_told_with_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "GRACE_S", 0.5)
    with pytest.raises(launch.RankFailed, match="rank one's own reason") as caught:
        launch.run(half_failing, 2)
    assert "half_failing" in caught.value.outcomes[0].output + str(caught.value.outcomes[0].error)


def test_deadline_shows_stacks_and_ends_forked_children() -> None:
    outcomes = launch.launch(never_ending, 1, timeout=4, group=False)
    assert outcomes[0].error == "ended at the deadline, or aborted"
    assert "in never_ending" in outcomes[0].output
    forked = int(outcomes[0].output.split("forked ")[1].split()[0])
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = pathlib.Path(f"/proc/{forked}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":  # ended; its reaper is slow
            return
    pytest.fail(f"process {forked} is still there")
