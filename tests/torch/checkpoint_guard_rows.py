"""Rows about what reads, scales or drops gradients in a window of which a part is kept aside; and about saving it twice."""

from __future__ import annotations

import io
from typing import Any

import checkpointed as c
import gradgate
import torch
import trainers as t
from rows import Says, refused, row
from torch import nn


@row(norms=[33.0, 33.0], weights=[-8.25, -8.25], steps=[1, 0], windows=[1, 1])
def clipped_and_stepped_at_once(rank: int, world: int) -> dict[str, Any]:
    """16.5 in four weights has a norm of 33; in a run that loads no micro-step has begun."""
    run, state = c.half(rank)
    found: dict[str, list[Any]] = {"norms": [], "weights": [], "steps": [], "windows": []}
    for one in (run, c.Run(t.ddp()).load(state)):
        found["norms"].append(float(nn.utils.clip_grad_norm_(one.model.parameters(), 1e9)))
        one.optimizer.step()
        one.optimizer.zero_grad()
        found["weights"].append(t.one(t.weights(one.model)))
        told = one.close().sync.stats()
        found["steps"].append(told["steps"])
        found["windows"].append(told["windows"])
    return found


@row(gradients=[55.0, 55.0], scales=[16.0, 16.0])
def scaled(rank: int, world: int) -> dict[str, Any]:
    """A GradScaler unscales what was kept aside with the rest."""
    found, scales, states = [], [], dict[str, Any]()
    for loads in (False, True):
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
        run = c.Run(t.ddp(t.Units(dtype=torch.float32)))
        if loads:
            run.load(states["run"])
            scaler.load_state_dict(states["scaler"])
        for x in t.data(rank)[2 * loads :]:
            with run.sync.micro_step():
                scaler.scale(run.model(x)).backward()
            if x == t.data(rank)[1] and not loads:
                states = {"run": run.saved(), "scaler": scaler.state_dict()}
        scaler.unscale_(run.optimizer)
        found.append(t.one(t.gradients(run.model)))
        scaler.step(run.optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        run.close()
    return {"gradients": found, "scales": scales}


@row(discarded=[True, True], next=[55.0, 55.0])
def discarded(rank: int, world: int) -> dict[str, Any]:
    """Said before the checkpoint by the last rank, or after it."""
    found, after = [], []
    for before in (True, False):
        run = c.Run(t.ddp())
        for x in t.data(rank, 2):
            with run.sync.micro_step():
                run.model(x).backward()
        if before and rank == world - 1:
            run.sync.discard()
        state = run.saved()
        run.close()
        run = c.Run(t.ddp()).load(state)
        if not before and rank == 0:
            run.sync.discard()
        run.train(t.data(rank)[2:])
        found.append(run.sync.discarded)
        watch = t.Watch(run.sync)
        with watch:
            after += t.drive(run.sync, watch, run.model, run.optimizer, t.data(rank))
        run.close()
    return {"discarded": found, "next": [t.one(g) for g in after]}


@row(gradients=[38.5, 22.0, 55.0])
def zeroed(rank: int, world: int) -> dict[str, Any]:
    """In the middle of a window zero_grad drops what is aside, too; before the first micro-step of a run that loads it is a habit."""
    found = []
    for where in ("saved", "loaded", "first"):
        run, state = c.half(rank)
        if where != "saved":
            run.close()
            run = c.Run(t.ddp()).load(state)
        if where != "loaded":
            run.optimizer.zero_grad()
        for i, x in enumerate(t.data(rank)[2:]):
            if where == "loaded" and i == 1:
                run.optimizer.zero_grad()
            with run.sync.micro_step():
                run.model(x).backward()
        found.append(t.one(t.gradients(run.model)))
        run.optimizer.step()
        run.close()
    return {"gradients": found}


@row(same=True, gradients=[55.0, 55.0, 55.0], left=[2, 1])
def saved_twice_in_a_window(rank: int, world: int) -> dict[str, Any]:
    """What was saved first is not changed by the second; a run that loads can save at once, and again."""
    run, state = c.half(rank)
    first = state["sync"]["gradients"]["units.0.w"].clone()
    loaded = c.Run(t.ddp()).load(state)
    same = loaded.sync.state_dict()
    runs, left = [run, loaded], [c.N - same["micro_steps"]]
    for one in runs:
        with one.sync.micro_step():
            one.model(t.data(rank)[2]).backward()
        later = one.saved()
    left.append(c.N - later["sync"]["micro_steps"])
    runs.append(c.Run(t.ddp()).load(later))
    found = []
    for one in runs:
        with one.sync.micro_step():
            one.model(t.data(rank)[3]).backward()
        found.append(t.one(t.gradients(one.model)))
        one.optimizer.step()
        one.close()
    gradients = {key: value for key, value in same["gradients"].items() if not torch.equal(value, state["sync"]["gradients"][key])}
    rest = {key: value for key, value in same.items() if key != "gradients" and value != state["sync"][key]}
    return {
        "same": torch.equal(first, state["sync"]["gradients"]["units.0.w"]) and not gradients and not rest,
        "gradients": found,
        "left": left,
    }


@row(gradients=55.0)
def through_a_file_that_is_not_trusted(rank: int, world: int) -> dict[str, Any]:
    run, state = c.half(rank)
    run.close()
    file = io.BytesIO()
    torch.save(state["sync"], file)
    file.seek(0)
    run = c.Run(t.ddp())
    run.sync.load_state_dict(torch.load(file, weights_only=True))
    watch = t.Watch(run.sync)
    with watch:
        found = t.drive(run.sync, watch, run.model, run.optimizer, t.data(rank)[2:])
    run.close()
    return {"gradients": t.one(found[0])}


@row(weights=[[-17.0, -60.0]] * 2)
def one_of_two_optimizers_zeroes(rank: int, world: int) -> dict[str, Any]:
    """In the middle of a window: what the other's parameters have left stays, kept aside or not."""
    found = []
    for saves in (False, True):
        model = nn.ModuleDict({"a": t.Unit(), "b": t.Unit()})
        optimizers = [torch.optim.SGD(part.parameters(), lr=1.0) for part in model.values()]
        with gradgate.attach(model, optimizers, accumulate=4, parity_every=0) as sync:
            for x in range(1, 5):
                with sync.micro_step():
                    (model["a"](float(x + 10 * rank)) + model["b"](2.0 * (x + 10 * rank))).backward()
                if x == 2:
                    if saves:
                        sync.state_dict()
                    optimizers[0].zero_grad()
            for optimizer in optimizers:
                optimizer.step()
        found.append(t.weights(model))
    return {"weights": found}


@row(told=Says("ranks differ", "staged", "call zero_grad(), on all ranks alike"))
def one_rank_zeroes(rank: int, world: int) -> dict[str, Any]:
    """What was kept aside is all ranks' share: one cannot drop it."""
    run, _ = c.half(rank)
    if rank == 0:
        run.optimizer.zero_grad()
    with refused(gradgate.Disagreement) as told:
        run.train(t.data(rank)[2:])
    run.close()
    return {"told": told}


@row(sums=[[-4.5, -3.0, -6.0, -3.0], [-4.5, -3.0, -6.0, -3.0]] * 2)
def sparse_and_dense(rank: int, world: int) -> dict[str, Any]:
    """Of one parameter, in turns, with and without a part kept aside between them."""
    found = []
    for first in (True, False):
        for saves in (False, True):
            embedding = nn.Embedding(4, 1, sparse=True, dtype=torch.float64)
            nn.init.zeros_(embedding.weight)
            optimizer = t.sgd(embedding, 1.0)
            with gradgate.attach(embedding, optimizer, accumulate=2) as sync:
                for sparse in (first, not first):
                    with sync.micro_step():
                        (embedding(torch.tensor([0, 2, 2])).sum() * 1.5 if sparse else embedding.weight.sum() * (2 + 2 * rank)).backward()
                    if saves and sparse is first:
                        sync.state_dict()
                optimizer.step()
            found.append(embedding.weight.view(-1).tolist())
    return {"sums": found}
