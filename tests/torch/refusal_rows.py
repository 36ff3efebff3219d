"""What ends a job: refused in words, before the step, on every rank, with the ranks and parameters named."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import gradgate
import rows
import torch
import torch.distributed as dist
import trainers as t
from rows import Each, Says, row

DEADLINE_S = 3.0


def own_group() -> Any:
    """One that may break: its time-out is short, and nobody else uses it."""
    dist.barrier()  # the row before may have held the ranks for different times
    group = dist.new_group(timeout=timedelta(seconds=DEADLINE_S))
    t.KEPT.append(group)
    return group


@contextlib.contextmanager
def failing() -> Any:
    """What the block raised, whatever it is."""
    with rows.refused(Exception) as text:
        yield text


def train(model: Any, rank: int, step: Callable[[int, float], torch.Tensor], *, again: bool = False) -> dict[str, Any]:
    """One window: how it failed, whether the optimizer stepped, and what a further micro-step is told."""
    optimizer, steps = t.sgd(model, lr=1.0), []
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    with gradgate.attach(model, optimizer, accumulate=4, deadline_s=DEADLINE_S) as sync:
        began = time.monotonic()
        with failing() as refusal:
            for i, c in enumerate(t.data(rank)):
                with sync.micro_step():
                    step(i, c).backward()
                if sync.boundary:
                    optimizer.step()
        seconds, afterwards = time.monotonic() - began, [""]
        if again:
            with failing() as afterwards, sync.micro_step():
                pass
    return {"refusal": refusal[0], "steps": len(steps), "in_time": seconds < 4 * DEADLINE_S, "afterwards": afterwards[0]}


@row(refusal=Each(Says("DeadlineExceeded", "1", "every micro-step reduces", "mode=window"), Says("")), in_time=True)
def fewer_micro_steps_where_each_reduces(rank: int, world: int) -> dict[str, Any]:
    """The other rank waits in its third backward for one that this rank does not run."""
    model = t.ddp(process_group=own_group())
    options: dict[str, Any] = {"accumulate": 4, "mode": "every_micro_step", "deadline_s": DEADLINE_S}
    with gradgate.attach(model, t.sgd(model), **options) as sync, failing() as refusal:
        began = time.monotonic()
        for c in t.data(rank)[: 2 if rank == 0 else 4]:
            with sync.micro_step():
                model(c).backward()
        sync.flush()
    return {"refusal": refusal[0], "in_time": time.monotonic() - began < 4 * DEADLINE_S}


# T7: a weight that the boundary micro-step does not use.


@row(refusal=Says("Unreduced", "units.1.w", "find_unused_parameters"), steps=0, afterwards=Says("failed"))
def t7_unused_on_all_ranks(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp(t.Units(2), process_group=own_group())
    return train(model, rank, lambda i, c: model(c, (0,) if i == 3 else None), again=True)


@row(refusal=Each(Says("1"), Says("Unreduced", "units.1.w")), steps=0, in_time=True)
def t7_unused_on_one_rank(rank: int, world: int) -> dict[str, Any]:
    """The other rank waits for a reduction that never comes, and names this one at its deadline."""
    model = t.ddp(t.Units(2), process_group=own_group())
    return train(model, rank, lambda i, c: model(c, (0,) if i == 3 and rank == 1 else None))


@row(refusal=Says("Unreduced", "units.0.w"), steps=0)
def t7_unused_weight_in_the_last_bucket(rank: int, world: int) -> dict[str, Any]:
    """Another bucket is reduced, so that a count of one proves nothing."""
    model = t.ddp(t.Units(2), buckets=True, process_group=own_group())
    model(1.0).backward()
    model(1.0)  # rebuilds the buckets: the last unit's is the first
    return train(model, rank, lambda i, c: model(c, (1,) if i == 3 else None))


# T35 on FSDP2: ranks gather parameters together, so a rank that has fewer micro-steps cannot wait for long.


@row(refusal=Says("DeadlineExceeded", "ranks [1]"), steps=0, in_time=True)
def t35_three_and_four_micro_steps_fsdp2(rank: int, world: int) -> dict[str, Any]:
    from torch.distributed.fsdp import fully_shard

    mesh = dist.device_mesh.DeviceMesh.from_group(own_group(), "cpu", mesh_dim_names=("shard",))
    model: Any = fully_shard(t.Units(), mesh=mesh)
    t.KEPT.append(model)
    optimizer, steps = t.sgd(model, lr=1.0), []
    with gradgate.attach(model, optimizer, accumulate=4, mode="window", deadline_s=DEADLINE_S) as sync:
        began = time.monotonic()
        with failing() as refusal:
            for c in t.data(rank, 3 + rank):
                with sync.micro_step():
                    model(c).backward()
            if rank == 0:
                sync.flush()
            optimizer.step()
            steps.append(1)
    others = [None] * world
    dist.all_gather_object(others, refusal[0])
    # Rank 0 is the one that is told; rank 1 hears of a group that broke.
    return {"refusal": others[0], "steps": len(steps), "in_time": time.monotonic() - began < 4 * DEADLINE_S}


# An exception in one rank's boundary.


@row(refusal=Each(Says("[1]"), Says("RuntimeError: nothing more on this rank")), steps=0, in_time=True)
def exception_on_one_rank_that_gives_up(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp(t.Units(2), process_group=own_group())

    def step(i: int, c: float) -> torch.Tensor:
        if i == 3 and rank == 1:
            raise RuntimeError("nothing more on this rank")
        return torch.as_tensor(model(c))

    return train(model, rank, step)


@row(refusal=Each(Says("[1]"), Says("RuntimeError: in the middle of the backward")), afterwards=Says("failed"), steps=0)
def exception_after_the_first_bucket(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp(t.Units(2), buckets=True, process_group=own_group())
    model(1.0).backward()
    model(1.0)

    def fail(gradient: torch.Tensor) -> None:
        raise RuntimeError("in the middle of the backward")

    def step(i: int, c: float) -> torch.Tensor:
        loss = torch.as_tensor(model(c))
        if i == 3 and rank == 1:
            first = model.module.units[0]
            first.w.register_hook(fail)
        return loss

    return train(model, rank, step, again=True)


# Handshakes.


@row(refusal=Says("Disagreement", "accumulate"))
def other_window_on_one_rank(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp()
    with failing() as refusal:
        gradgate.attach(model, t.sgd(model), accumulate=4 + rank)
    return {"refusal": refusal[0]}


@row(refusal=Says("Disagreement", "GRADGATE"))
def switched_off_on_one_rank(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp()
    if rank == 1:
        os.environ["GRADGATE"] = "off"
    with failing() as refusal:
        gradgate.attach(model, t.sgd(model), accumulate=4)
    os.environ.pop("GRADGATE", None)
    return {"refusal": refusal[0]}


@row(refusal=Says("Disagreement", "parameters"))
def other_model_on_one_rank(rank: int, world: int) -> dict[str, Any]:
    model = t.Units(1 + rank)
    with failing() as refusal:
        gradgate.attach(model, t.sgd(model), accumulate=4)
    return {"refusal": refusal[0]}


NAMED = Says("DeadlineExceeded", "no gradgate on ranks [1]")


@row(world=3, refusal=Each(NAMED, "", NAMED), in_time=True, sum=21.0)
def n6_rank_without_gradgate(rank: int, world: int) -> dict[str, Any]:
    """The others name it, and the trainer's own collective holds the trainer's own numbers."""
    model, refusal = t.ddp(), [""]
    dist.barrier()
    began = time.monotonic()
    if rank != 1:
        with failing() as refusal:
            gradgate.attach(model, t.sgd(model), accumulate=4, handshake_deadline_s=4.0)
    seconds = time.monotonic() - began
    own = torch.tensor(7.0)
    dist.all_reduce(own)
    return {"refusal": refusal[0], "in_time": seconds < 10.0, "sum": float(own)}
