"""Evaluation between and inside windows; models moved before and copied after attaching."""

from __future__ import annotations

import copy
from typing import Any

import gradgate
import torch
import trainers as t
from rows import row
from torch import nn

AR, RS, AG = "all_reduce", "reduce_scatter", "all_gather"


# Evaluation between and inside windows.


def evaluated(rank: int, model: nn.Module, **options: Any) -> dict[str, Any]:
    """After each micro-step a forward without gradients, whose value shows the weights that the optimizer left."""
    optimizer, found, values = t.sgd(model, lr=1.0), [], []
    with gradgate.attach(model, optimizer, accumulate=2, **options) as sync, t.Watch(sync) as watch:
        for c in t.data(rank):
            with sync.micro_step():
                model(c).backward()
            if sync.boundary:
                found.append(t.one(t.gradients(model)))
                t.finish(optimizer, model)
            model.eval()
            with torch.no_grad():
                values.append(float(model(1.0)) / 8)
            model.train()
    return watch.seen(gradients=found, values=values)


EVALUATED: dict[str, Any] = {"gradients": [16.5, 38.5], "values": [0.0, -16.5, -16.5, -55.0], "windows_mismatched": 0}


@row(**EVALUATED, gradient={AR: 2})
def evaluation_ddp(rank: int, world: int) -> dict[str, Any]:
    return evaluated(rank, t.ddp(t.Units(2)))


@row(**EVALUATED, gradient={RS: 4})
def evaluation_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return evaluated(rank, t.fsdp(t.Units(2)), mode="window")


@row(**EVALUATED, gradient={RS: 4})
def evaluation_fsdp2_parameters_stay(rank: int, world: int) -> dict[str, Any]:
    return evaluated(rank, t.fsdp(t.Units(2)), mode="window", keep_params=True)


@row(world=4, **EVALUATED)
def evaluation_hsdp(rank: int, world: int) -> dict[str, Any]:
    return evaluated(rank // 2, t.fsdp(t.Units(2), (2, 2)), mode="window_replica")


@row(gradients=[16.5], values=[0.0, -16.5])
def state_dict_inside_a_window_of_kept_parameters(rank: int, world: int) -> dict[str, Any]:
    """What is saved after a step are the new weights, whole windows and broken ones alike."""
    model = t.fsdp(t.Units(2))
    optimizer, found, saved = t.sgd(model, lr=1.0), [], []

    def save() -> None:
        saved.append(t.one(t.values(model.state_dict().values())))

    with gradgate.attach(model, optimizer, accumulate=4, mode="window", keep_params=True) as sync:
        for c in t.data(rank, 2):
            with sync.micro_step():
                model(c).backward()
        save()
        optimizer.step()
        found.append(t.one(t.gradients(model)))
        optimizer.zero_grad()
        save()
    return {"gradients": found, "values": saved}


# Models moved before, copied after.


@row(gradients=[55.0], gradient={AR: 1}, dtype="torch.float32")
def moved_before_attaching(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp(t.Units(2).to(torch.float32))
    optimizer = t.sgd(model)
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        found = t.drive(sync, watch, model, optimizer, t.data(rank))
    return watch.seen(gradients=[t.one(b) for b in found], dtype=str(next(model.parameters()).dtype))


def averaged(rank: int, model: nn.Module, inner: nn.Module) -> dict[str, Any]:
    """A moving average, copied after attaching and updated after each step; it is evaluated, and trained by itself once."""
    optimizer = t.sgd(model, lr=1.0)
    with gradgate.attach(model, optimizer, accumulate=2) as sync, t.Watch(sync) as watch:
        average = torch.optim.swa_utils.AveragedModel(inner)
        found = []
        for c in t.data(rank):
            with sync.micro_step():
                model(c).backward()
            if sync.boundary:
                found.append(t.one(t.gradients(model)))
                t.finish(optimizer, model)
                average.update_parameters(inner)
            with torch.no_grad():
                average(1.0)
        twin = copy.deepcopy(inner)
        twin(7.0).backward()
    return watch.seen(gradients=found, average=t.one(t.weights(average)), twin=t.one(t.gradients(twin)))


@row(gradients=[16.5, 38.5], average=-(16.5 + 55) / 2, twin=7.0, gradient={AR: 2}, profiler={AR: 4, "broadcast": 2})
def moving_average_ddp(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp(t.Units(2))
    return averaged(rank, model, model.module)


@row(gradients=[16.5, 38.5], average=-(16.5 + 55) / 2, twin=7.0, gradient={AR: 2})
def moving_average_unwrapped(rank: int, world: int) -> dict[str, Any]:
    model = t.Units(2)
    return averaged(rank, model, model)
