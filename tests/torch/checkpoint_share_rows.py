"""Rows about what another number of ranks divides by, and about what torch.distributed.checkpoint and torch.save bring back."""

from __future__ import annotations

import copy
from typing import Any

import checkpointed as c
import checkpointed_worlds as w
import gradgate
import rows
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import trainers as t
from rows import Says, row


def loaded(options: dict[str, Any], before: int, after: int, first: Any, second: Any) -> float | None:
    """first(run, rank) on some ranks, saved, loaded by others, second(run, rank) there; the gradient then."""
    path, found, state = w.folder(), None, None
    for size, part in ((before, first), (after, second)):
        one = w.group(size)
        if w.inside(size):
            run = c.Run(t.ddp(process_group=one), options, one)
            if part is second:
                run.sync.load_state_dict(torch.load(f"{path}/state", weights_only=True))
            part(run, dist.get_rank())
            if part is first:
                state = run.sync.state_dict()
                if dist.get_rank() == 0:
                    torch.save(state, f"{path}/state")
                if run.sync.window.micro_steps:
                    run.sync.discard()
                run.sync.flush()
            else:
                run.sync.flush()
                found = t.one(t.gradients(run.model))
                run.optimizer.step()
            run.close()
        dist.barrier()
    return found


def micro_step(run: c.Run, x: float, **given: Any) -> None:
    with run.sync.micro_step(**given):
        run.model(x).backward()


@row(world=4, gradient=(1 + 10 + 100 + 4) / 20)
def items_of_two_and_of_one(rank: int, world: int) -> dict[str, Any]:
    """Sums of losses over 2, 3 and 10, 5 items: by the items of both parts, whoever ran them."""

    def first(run: c.Run, rank: int) -> None:
        micro_step(run, (1.0, 10.0)[rank], items=2 + rank)

    def second(run: c.Run, rank: int) -> None:
        micro_step(run, 100.0, items=10)
        micro_step(run, 4.0, items=5)

    found = loaded({"accumulate": 3}, 2, 1, first, second)
    return {"gradient": (1 + 10 + 100 + 4) / 20 if found is None else found}


@row(world=4, gradient=(1 + 10) / 2 + 9.0)
def active_ranks_of_three_and_of_two(rank: int, world: int) -> dict[str, Any]:
    """Rank 2 of three brings nothing in the first part, rank 1 of two nothing in the second: each part by those that had data."""

    def first(run: c.Run, rank: int) -> None:
        if rank < 2:
            micro_step(run, (1.0, 10.0)[rank])

    def second(run: c.Run, rank: int) -> None:
        if rank == 0:
            micro_step(run, 9.0)

    found = loaded({"accumulate": 4, "windows": "variable", "divide": "active"}, 3, 2, first, second)
    return {"gradient": 14.5 if found is None else found}


@row(world=4, mean=(1 + 10 + 5 + 7) / 4)
def means_of_both_parts(rank: int, world: int) -> dict[str, Any]:
    means: dict[str, float] = {}

    def first(run: c.Run, rank: int) -> None:
        run.sync.mean(x=(1.0, 10.0)[rank])
        micro_step(run, 1.0)

    def second(run: c.Run, rank: int) -> None:
        for x in (5.0, 7.0):
            run.sync.mean(x=x)
            micro_step(run, 1.0)
        means.update(run.sync.means)

    loaded({"accumulate": 3}, 2, 1, first, second)
    return {"mean": means.get("x", 23 / 4)}


# Through torch.distributed.checkpoint.


@row(
    world=4,
    why=Says("gradients['", "gradgate.checkpoint.load"),
    open=False,
    dtype=Says("torch.float64", "torch.float32"),
    shard=Says("torch.save"),
)
def loads_that_do_not_fit(rank: int, world: int) -> dict[str, Any]:
    """dcp.load in place does not see what is in the checkpoint: it is told, and so is another type, which it would convert in silence."""
    path, found = w.folder(), {}
    run = c.Run(c.sharded(w.mesh(4)), {"mode": "window"}).train(c.feed(rank, 0, 2))
    dcp.save({"sync": run.sync}, checkpoint_id=path)
    shard = run.sync.state_dict()
    run.sync.discard()
    run.sync.flush()
    run.close()
    run = c.Run(c.sharded(w.mesh(4)))
    with rows.refused(gradgate.InvalidArgument) as found["why"]:
        dcp.load({"sync": run.sync}, checkpoint_id=path)
    opened = run.sync.window.kept is not None
    run.close()
    run = c.Run(c.sharded(w.mesh(4), torch.float32))
    with rows.refused(gradgate.InvalidArgument, dcp.CheckpointException) as found["dtype"]:
        gradgate.checkpoint.load({"sync": run.sync}, checkpoint_id=path)
    run.close()
    run = c.Run(c.ddp())
    with rows.refused(gradgate.InvalidArgument) as found["shard"]:
        run.sync.load_state_dict(shard)
    run.close()
    return {**found, "open": opened}


@row(world=4, windows=3, other=7)
def between_windows_through_dcp(rank: int, world: int) -> dict[str, Any]:
    path = w.folder()
    run = c.Run(c.sharded(w.mesh(4))).train(c.feed(rank, 0, 3 * c.N))
    dcp.save({"sync": run.sync, "other": 7}, checkpoint_id=path)
    run.close()
    counts = []
    for load in (dcp.load, gradgate.checkpoint.load):
        run = c.Run(c.sharded(w.mesh(4)))
        state = {"sync": run.sync, "other": 0}
        load(state, checkpoint_id=path)
        counts.append(run.sync.state_dict()["windows"])
        run.close()
    assert counts[0] == counts[1]
    return {"windows": counts[0], "other": state["other"]}


@row(world=4, same=True)
def shards_through_torch_save(rank: int, world: int) -> dict[str, Any]:
    """Each rank has its own, as of its optimizer's state."""

    def half() -> c.Run:
        return c.Run(c.sharded(w.mesh(4)), {"mode": "window"})

    run = half().train(c.feed(rank, 0, 2))
    state = copy.deepcopy(run.sync.state_dict())
    other = half()
    other.sync.load_state_dict(state)
    found = []
    for one in (run, other):
        one.train(c.feed(rank, 2, 2))
        found.append(one.close().bytes())
    return {"same": found[0] == found[1]}
