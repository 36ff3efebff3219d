"""Loops of enough windows to predict where the next one ends: some end before, one goes on."""

from __future__ import annotations

import contextlib
from typing import Any

import models
import torch
from loops import Loop, Run
from sharded_loops import hybrid, sharded, train
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel

# Not seen, counted, two alike, as predicted, shorter, as predicted, longer, two alike, as predicted.
SIZES = (4, 4, 4, 4, 4, 2, 4, 6, 4, 4, 4)


def _train(run: Run, model: Any, *, clip: bool = False, used: bool | None = None, sizes: tuple[int, ...] = SIZES) -> Any:
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(*sizes):
        for i, x in enumerate(batches):
            output = model(x) if used is None else model(x, used=(i + run.rank) % 2 == 0)
            output.square().mean().backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0**40)
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def predicted(run: Run) -> Any:
    return _train(run, models.ddp())


def tried(run: Run) -> Any:
    return _train(run, models.ddp(), sizes=(4,) * 18)


def tried_sharded(run: Run) -> Any:
    return train(run, hybrid(run), *(4,) * 18)


def predicted_clipped(run: Run) -> Any:
    return _train(run, models.ddp(), clip=True)


def predicted_scaled(run: Run) -> Any:
    """The step of a window that ends as predicted is skipped: one loss of rank 1 is not finite."""
    model, scaling = models.ddp(), torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = run.sgd(model.parameters())
    for step, batches in enumerate(run.windows(*SIZES)):
        for i, x in enumerate(batches):
            factor = torch.inf if (step, i, run.rank) == (6, 1, 1) else 1.0
            scaling.scale(model(x).square().mean() * factor).backward()
        scaling.step(optimizer)
        scaling.update()
        optimizer.zero_grad(set_to_none=False)
    assert scaling.get_scale() == 512.0, scaling.get_scale()
    return model.parameters()


def predicted_thrown_away(run: Run) -> Any:
    model = models.ddp()
    optimizer = run.sgd(model.parameters())
    for step, batches in enumerate(run.windows(*SIZES)):
        for x in batches:
            model(x).square().mean().backward()
        if step != 6:
            optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def predicted_read(run: Run) -> Any:
    """Looks at gradients before a step, where they are reduced already."""
    model = models.ddp()
    optimizer = run.sgd(model.parameters())
    for step, batches in enumerate(run.windows(*SIZES)):
        for x in batches:
            model(x).square().mean().backward()
        if step == 6:
            assert all(parameter.grad is not None for parameter in model.parameters())
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def predicted_retried(run: Run) -> Any:
    """Rank 1 alone meets an exception when a backward begins, once in a window and once where one ends as predicted; and tries again."""
    model = models.ddp()
    optimizer = run.sgd(model.parameters())

    def fail(_gradient: torch.Tensor) -> None:
        raise MemoryError

    for step, batches in enumerate(run.windows(*SIZES)):
        for i, x in enumerate(batches):
            if run.rank == 1 and (step, i) in ((4, 1), (6, 3)):
                output = model(x)
                output.register_hook(fail)
                with contextlib.suppress(MemoryError):
                    output.square().mean().backward()
            model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def predicted_unused(run: Run) -> Any:
    return _train(run, models.ddp(models.Branch, find_unused_parameters=True), used=True)


def unpredicted_hook(run: Run) -> Any:
    model = models.ddp()
    model.register_comm_hook(None, allreduce_hook)
    return _train(run, model)


def unpredicted_backwards(run: Run) -> Any:
    """One for each half of what a forward returned: DDP reduces when both have run."""
    model = models.ddp(models.Halves)
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(*SIZES):
        for x in batches:
            for half in model(x):
                half.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


class Beside(torch.nn.Module):
    """A wrapped model, and a layer that nobody wraps, trains or uses."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = models.ddp()
        self.beside = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x)


def untrained_beside(run: Run) -> Any:
    model = Beside()
    optimizer = run.sgd(model.inner.parameters())
    for batches in run.windows(*SIZES):
        for x in batches:
            model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.inner.parameters()


def one_rank_clips(run: Run) -> Any:
    """In the middle of a window, which a script that reduces in each backward can do."""
    model = models.ddp()
    optimizer = run.sgd(model.parameters())
    for step, batches in enumerate(run.windows(*(4,) * 8)):
        for i, x in enumerate(batches):
            model(x).square().mean().backward()
            if (step, i, run.rank) == (6, 1, 0):
                torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0**40)
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def misplaced(run: Run) -> Any:
    """Reduces in the first micro-step of each window, and keeps DDP from it in the others."""
    model = models.ddp()
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(*SIZES):
        for i, x in enumerate(batches):
            with model.no_sync() if i else contextlib.nullcontext():
                model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def late_backward(run: Run) -> Any:
    """A backward that adds to a window which had seemed over."""
    model = models.ddp()
    optimizer = run.sgd(model.parameters())
    for step, batches in enumerate(run.windows(*SIZES)):
        for x in batches:
            output = model(x)
            output.square().mean().backward(retain_graph=True)
        if step == 4:
            model.module(torch.ones(5, 6, dtype=torch.float64)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def predicted_fsdp2(run: Run) -> Any:
    return train(run, sharded(init_device_mesh("cpu", (run.world,))), *SIZES)


def predicted_hsdp(run: Run) -> Any:
    return train(run, hybrid(run), *SIZES)


def predicted_fsdp1(run: Run) -> Any:
    model = FullyShardedDataParallel(models.Known(), device_id=torch.device("cpu"), use_orig_params=True)
    train(run, model, *SIZES)
    with FullyShardedDataParallel.summon_full_params(model):
        return [p.detach().clone() for p in model.parameters()]


LOOPS: dict[str, Loop] = {
    loop.__name__: loop
    for loop in (
        *(predicted, predicted_clipped, predicted_scaled, predicted_thrown_away, predicted_read, predicted_retried, predicted_unused),
        *(unpredicted_hook, unpredicted_backwards, late_backward, misplaced, untrained_beside, one_rank_clips),
        *(predicted_fsdp2, predicted_hsdp, predicted_fsdp1, tried, tried_sharded),
    )
}
