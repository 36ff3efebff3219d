"""Loops over DDP in all its options."""

from __future__ import annotations

import contextlib
from typing import Any

import models
from loops import Loop, Run


def _train(run: Run, model: Any, *sizes: int) -> Any:
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(*sizes):
        for x in batches:
            (model(x).square().mean() / len(batches)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def naive(run: Run) -> Any:
    return _train(run, models.ddp(), 4, 4, 4, 4)


def one_each(run: Run) -> Any:
    return _train(run, models.ddp(), 1, 1, 1, 1, 1)


def changing_sizes(run: Run) -> Any:
    return _train(run, models.ddp(), 2, 1, 1, 3, 4, 2)


def static_graph(run: Run) -> Any:
    return _train(run, models.ddp(static_graph=True), 4, 4, 4, 4)


def bucket_view(run: Run) -> Any:
    return _train(run, models.ddp(gradient_as_bucket_view=True), 4, 4, 4, 4)


def own_no_sync(run: Run) -> Any:
    model = models.ddp()
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(4, 4, 4, 4):
        for i, x in enumerate(batches):
            with model.no_sync() if i < len(batches) - 1 else contextlib.nullcontext():
                model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def find_unused(run: Run) -> Any:
    model = models.ddp(models.Branch, find_unused_parameters=True)
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(4, 4, 4, 4):
        for i, x in enumerate(batches):
            model(x, used=(i + run.rank) % 2 == 0).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def never_reduced(run: Run) -> Any:
    """A flag that is always off: each rank steps on its own gradients."""
    model = models.ddp()
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(2, 2, 2, 2):
        with model.no_sync():
            for x in batches:
                model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


LOOPS: dict[str, Loop] = {
    loop.__name__: loop for loop in (naive, one_each, changing_sizes, static_graph, bucket_view, own_no_sync, find_unused, never_reduced)
}
