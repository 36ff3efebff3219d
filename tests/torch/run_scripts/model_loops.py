"""Loops over DDP whose models differ: what they return, recomputation, compilation; and when they fail."""

from __future__ import annotations

import functools
from typing import Any

import models
import torch
from loops import Loop, Run


def _train(run: Run, model: Any, loss: Any, *sizes: int) -> Any:
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(*sizes):
        for x in batches:
            loss(model(x)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def loss_inside(run: Run) -> Any:
    return _train(run, models.ddp(functools.partial(models.Telling, torch.Tensor)), lambda loss: loss, 4, 4, 4, 4)


def in_a_dictionary(run: Run) -> Any:
    return _train(run, models.ddp(functools.partial(models.Telling, dict)), lambda output: output["loss"], 4, 4, 4, 4)


def in_a_dataclass(run: Run) -> Any:
    return _train(run, models.ddp(functools.partial(models.Telling, models.Output)), lambda output: output.loss, 4, 4, 4, 4)


def recomputed(run: Run) -> Any:
    return _train(run, models.ddp(functools.partial(models.Recomputed, False)), lambda y: y.square().mean(), 4, 4, 4, 4)


def recomputed_reentrant(run: Run) -> Any:
    return _train(run, models.ddp(functools.partial(models.Recomputed, True)), lambda y: y.square().mean(), 4, 4, 4, 4)


def compiled(run: Run) -> Any:
    return _train(run, torch.compile(models.ddp(), backend="eager"), lambda y: y.square().mean(), 4, 4, 4, 4)


def two_backwards(run: Run) -> Any:
    """Of one forward; a wrapper reduces in the first alone."""
    model = models.ddp()
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(1, 1, 1, 1):
        for x in batches:
            output = model(x)
            output.square().mean().backward(retain_graph=True)
            output.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def optimizer_made_late(run: Run) -> Any:
    """After forwards and a backward that no optimizer has stepped on."""
    model = models.ddp()
    model(torch.ones(5, 6, dtype=torch.float64)).square().mean().backward()
    with torch.no_grad():
        model(torch.ones(5, 6, dtype=torch.float64))
    model.zero_grad()
    return _train(run, model, lambda y: y.square().mean(), 4, 4, 4, 4)


def optimizer_made_anew(run: Run) -> Any:
    """Another optimizer for the same model, in the middle of training."""
    model = models.ddp()
    for step, batches in enumerate(run.windows(4, 4, 4, 4)):
        if step % 2 == 0:
            optimizer = run.sgd(model.parameters())
        for x in batches:
            model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


class Failing(models.Net):
    def forward(self, x: torch.Tensor) -> Any:
        if x.shape[0] == 3:
            raise ValueError("no batch of three")
        return super().forward(x)


def failures_caught(run: Run) -> Any:
    """A forward and a loss that fail in the middle of a window, on all ranks; the loop goes on."""
    model = models.ddp(Failing)
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(4, 4, 4, 4):
        for i, x in enumerate(batches):
            try:
                loss = model(x[:3] if i == 1 else x).square().mean()
                if i == 2:
                    raise ValueError("no loss")
            except ValueError:
                continue
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


LOOPS: dict[str, Loop] = {
    loop.__name__: loop
    for loop in (
        *(loss_inside, in_a_dictionary, in_a_dataclass, recomputed, recomputed_reentrant, compiled, two_backwards, optimizer_made_late),
        *(optimizer_made_anew, failures_caught),
    )
}
