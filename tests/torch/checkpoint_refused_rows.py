"""Rows about checkpoints that are refused, and about ranks that do not take part: named, and nothing has changed."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import checkpointed as c
import gradgate
import rows
import torch
import torch.distributed as dist
import trainers as t
from rows import Each, Says, row
from torch import nn

AR = "all_reduce"


@row(first=Says("ranks [1] had not called it"), behind=Each(Says("ranks [1] had not called it"), ""), second=True, weights=-27.5)
def called_again_after_one_rank_was_late(rank: int, world: int) -> dict[str, Any]:
    run = c.Run(t.ddp(), options={"deadline_s": 1.0}).train(t.data(rank)[:2])
    if rank == 0:
        with rows.refused(gradgate.DeadlineExceeded) as first:
            run.sync.state_dict()
    dist.barrier()
    if rank == 1:
        with rows.refused(gradgate.DeadlineExceeded) as first:
            run.sync.state_dict()
    dist.barrier()
    with rows.refused(gradgate.DeadlineExceeded) if rank == 0 else contextlib.nullcontext([""]) as behind:
        if rank == 0:  # which is one ahead then
            run.sync.state_dict()
    dist.barrier()
    second = bool(run.sync.state_dict()["gradients"])
    run.train(t.data(rank)[2:]).close()
    return {"first": first, "behind": behind[0], "second": second, "weights": t.one(t.weights(run.model))}


@row(uneven=Says("flush(divisor=4) where ranks brought different numbers"))
def flushed_right_after_loading_uneven_ranks(rank: int, world: int) -> dict[str, Any]:
    """Each rank's share of what was kept is not known any more."""
    run = c.Run(t.ddp(), options={"windows": "variable"}).train(t.data(rank)[: 2 - rank])
    state = run.saved()
    run.close()
    loaded = c.Run(t.ddp(), options={"windows": "variable"}).load(state)
    with rows.refused(gradgate.Refused) as uneven:
        loaded.sync.flush(divisor=4)
    return {"uneven": uneven}


@row(
    inside=Says("inside a micro-step"),
    unstepped=Says("between a window's reduction and its step"),
    opened=Says("into an open window, with 1 micro-steps done"),
    number=Says("accumulate is 4", "this attachment has 2", "accumulate=4"),
    model=Says("gradients['units.0.w']", "no such parameter is trained here", "first"),
    shape=Says("gradients['units.0.w']", "shape (4,)", "the parameter has shape (7,)"),
    dtype=Says("torch.float64", "gradients of torch.float32"),
    closed=Says("after sync.close()"),
    untouched=55.0,
)
def refused_states(rank: int, world: int) -> dict[str, Any]:
    kinds = (gradgate.Refused, gradgate.InvalidArgument)
    run, state = c.half(rank)
    found = {}
    with run.sync.micro_step():
        run.model(t.data(rank)[2]).backward()
        with rows.refused(*kinds) as found["inside"]:
            run.sync.state_dict()
    with run.sync.micro_step():
        run.model(t.data(rank)[3]).backward()
    with rows.refused(*kinds) as found["unstepped"]:
        run.sync.state_dict()
    untouched = t.one(t.gradients(run.model))
    run.step_at_boundary()
    with run.sync.micro_step():
        run.model(t.data(rank)[3]).backward()
    with rows.refused(*kinds) as found["opened"]:
        run.sync.load_state_dict(state["sync"])
    run.sync.discard()
    run.sync.flush()
    run.close()
    with rows.refused(*kinds) as found["closed"]:
        run.sync.state_dict()
    others = {
        "number": (t.ddp(), {"accumulate": 2}),
        "model": (t.ddp(nn.ModuleDict({"first": t.Unit()})), {}),
        "shape": (t.ddp(t.Units(size=7)), {}),
        "dtype": (t.ddp(t.Units(dtype=torch.float32)), {}),
    }
    for name, (model, options) in others.items():
        other = c.Run(model, options)
        with rows.refused(*kinds) as found[name]:
            other.sync.load_state_dict(state["sync"])
        assert other.sync.window.kept is None
        other.close()
    return {**found, "untouched": untouched}


@row(why=Each(Says("ranks [1] had not called it after 1 s"), ""), gradients=55.0, late=Each("", Says("ranks [1] had not called it")))
def a_rank_that_does_not_call(rank: int, world: int) -> dict[str, Any]:
    """It is named, nothing has changed, and the window goes on; one that comes later is told the same."""
    run = c.Run(t.ddp(), {"deadline_s": 1.0})
    data = t.data(rank)
    why, late = [""], [""]
    for i, x in enumerate(data):
        with run.sync.micro_step():
            run.model(x).backward()
        if i == 1 and rank == 0:
            with rows.refused(gradgate.DeadlineExceeded) as why:
                run.sync.state_dict()
        if i == 1:
            dist.barrier()
        if i == 1 and rank == 1:
            with rows.refused(gradgate.DeadlineExceeded) as late:
                run.sync.state_dict()
    found = t.one(t.gradients(run.model))
    run.optimizer.step()
    run.close()
    return {"why": why[0], "late": late[0], "gradients": found}


@row(why=Each(Says("units.1.w", "save at a boundary"), Says("units.1.w")), gradients=[55.0, 38.5])
def a_parameter_that_is_not_used_yet(rank: int, world: int) -> dict[str, Any]:
    run = c.Run(t.ddp(t.Units(2)))
    data = t.data(rank)
    for i, x in enumerate(data):
        with run.sync.micro_step():
            run.model(x, (0,) if i < 2 else None).backward()
        if i == 1:
            with rows.refused(gradgate.Unreduced) as why:
                run.sync.state_dict()
    found = t.gradients(run.model)
    run.optimizer.step()
    run.close()
    return {"why": why[0], "gradients": found}


@row(why=Says("fsdp1", "save at a boundary"), windows=1)
def fsdp1_in_a_window(rank: int, world: int) -> dict[str, Any]:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(t.Units(), use_orig_params=True, device_id=torch.device("cpu"))
    t.KEPT.append(model)
    run = c.Run(model)
    run.train(t.data(rank))
    between = run.sync.state_dict()
    run.train(t.data(rank, 2))
    with rows.refused(gradgate.Unreduced) as why:
        run.sync.state_dict()
    run.train(t.data(rank, 2))
    run.close()
    return {"why": why[0], "windows": between["windows"]}


@row(why=Says("a checkpoint has summed", "load it, and call zero_grad(), on all ranks alike"))
def loaded_on_one_rank_alone(rank: int, world: int) -> dict[str, Any]:
    run, state = c.half(rank)
    run.close()
    run = c.Run(t.ddp(), {"deadline_s": 20.0})
    if rank == 0:
        run.sync.load_state_dict(state["sync"])
    with rows.refused(gradgate.Disagreement) as why:
        run.train(t.data(rank, 2))
        run.sync.flush()
    run.close()
    return {"why": why[0]}


@row(keys=[], micro_steps=0, told=["unsaved_window"], gradients=55.0, why=Says("GRADGATE=audit or off"), ours={AR: 1})
def audited(rank: int, world: int) -> dict[str, Any]:
    run, state = c.half(rank)
    run.close()
    os.environ["GRADGATE"] = "audit"
    try:
        run = c.Run(t.ddp())
    finally:
        del os.environ["GRADGATE"]
    with t.Watch(run.sync) as watch:
        for x in t.data(rank):
            with run.sync.micro_step():
                run.model(x).backward()
            if x == t.data(rank)[1]:
                told = run.sync.state_dict()
    found = t.one(t.gradients(run.model))
    run.optimizer.step()
    with rows.refused(gradgate.InvalidArgument) as why:
        run.sync.load_state_dict(state["sync"])
    run.sync.load_state_dict(told)
    run.close()
    return watch.seen(keys=list(told["gradients"]), micro_steps=told["micro_steps"], gradients=found, why=why[0])
