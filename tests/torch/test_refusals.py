"""What ends a job is told in words, with the ranks named, on every rank that is left."""

from __future__ import annotations

import os
import signal

import gradgate
import launch
import rows
import trainers as t
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
