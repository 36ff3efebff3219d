"""What ends a job is told in words, with the ranks named, on every rank that is left."""

from __future__ import annotations

import os
import signal

import gradgate
import launch
import rows
import trainers as t
from failing_rows import Fragile, Oops
from refusal_rows import DEADLINE_S, failing

test_row = rows.tests(__file__, "refusal_rows")


def losing_a_rank(rank: int, world: int) -> None:
    model = t.ddp()
    optimizer = t.sgd(model)
    with gradgate.attach(model, optimizer, accumulate=4, deadline_s=DEADLINE_S) as sync, failing() as refusal:
        for i, c in enumerate(t.data(rank)):
            with sync.micro_step():
                if i == 2 and rank == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                model(c).backward()
    print(f"told: {refusal[0]}", flush=True)
    os._exit(0 if "[1]" in refusal[0] else 3)  # the barrier at a good end would wait for the lost rank


def test_killed_rank_is_named_by_the_others() -> None:
    outcomes = launch.launch(losing_a_rank, 2)
    assert outcomes[1].error == "exit status -9"
    assert outcomes[0].error is None, outcomes[0]


def failing_alone(rank: int, world: int) -> None:
    """Rank 1 fails when it has gathered parameters in its second micro-step, and tries again; rank 0 waits for its next gathering."""
    inner = Fragile(2)
    model = t.fsdp(inner)
    with gradgate.attach(model, t.sgd(model), accumulate=4, mode="window", deadline_s=DEADLINE_S) as sync, failing() as refusal:
        for i, c in enumerate(t.data(rank)):
            inner.fail = "backward" if i == 1 and rank == 1 else ""
            for _ in range(2):
                try:
                    with sync.micro_step():
                        model(c).backward()
                    break
                except Oops:
                    print("failed", flush=True)
    print(f"told: {refusal[0]}", flush=True)
    os._exit(0)  # the other waits in a collective


def test_micro_step_that_failed_on_one_rank_amid_collectives_is_not_tried_again() -> None:
    outcomes = launch.launch(failing_alone, 2, timeout=60)
    assert [outcome.error for outcome in outcomes] == [None, None], launch.RankFailed(outcomes)
    texts = [outcome.output.partition("told: ")[2] for outcome in outcomes]
    assert texts[1].startswith("Disagreement: window 0: micro-step 2 failed on this rank after collectives")
    assert "has not failed at the same place on ranks [0]" in texts[1]
    assert texts[0].startswith("RuntimeError")
    assert "gradgate: window 0: ranks [1]" in texts[0]
    assert "micro-step 2 failed on this rank" in texts[0]
