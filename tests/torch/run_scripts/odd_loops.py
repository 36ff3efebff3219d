"""Loops over DDP of unusual shapes: parts wrapped by themselves, ranks that end early, scripts that fail or exit in a window."""

from __future__ import annotations

import copy
import io
import sys
from typing import Any

import exact
import models
import torch
from loops import Loop, Run
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP


def _loss(output: Any) -> Any:
    return output.square().mean()


class Normed(models.Net):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(6)

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(self.norm(x))


class Shifting(models.Net):
    """Its forward reads a buffer that the one before has changed."""

    def __init__(self) -> None:
        super().__init__()
        self.shift: torch.Tensor
        self.register_buffer("shift", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> Any:
        y = super().forward(x) + self.shift
        with torch.no_grad():
            self.shift.copy_(y.mean(0))
        return y


def buffers_read(run: Run) -> Any:
    return _train(run, models.ddp(Shifting))


def buffers(run: Run) -> Any:
    return _train(run, models.ddp(Normed))


def _train(run: Run, model: Any) -> Any:
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(4, 4, 4, 4):
        for x in batches:
            _loss(model(x)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def wrapped_in_parts(run: Run) -> Any:
    first, second = models.ddp(), models.ddp(lambda: torch.nn.Linear(4, 2))
    optimizer = run.sgd([*first.parameters(), *second.parameters()])
    for batches in run.windows(4, 4, 4, 4):
        for x in batches:
            _loss(second(first(x))).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [*first.parameters(), *second.parameters()]


def of_unlike_frequency(run: Run) -> Any:
    """One of two optimizers steps, and zeroes, in every second window only."""
    model = models.ddp()
    often, seldom = run.sgd(model.module.a.parameters()), run.sgd(model.module.b.parameters())
    for step, batches in enumerate(run.windows(2, 2, 2, 2, 2, 2)):
        for x in batches:
            _loss(model(x)).backward()
        often.step()
        often.zero_grad()
        if step % 2:
            seldom.step()
            seldom.zero_grad()
    return model.parameters()


def joined(run: Run) -> Any:
    """The second rank has one window fewer, and shadows the other's collectives."""
    model = models.ddp()
    optimizer = run.sgd(model.parameters())
    with Join([model]):
        for batches in run.windows(*(2, 2, 2, 2, 2)[run.rank :]):
            for x in batches:
                _loss(model(x)).backward()
            optimizer.step()
            optimizer.zero_grad()
    return model.parameters()


def saved_whole(run: Run) -> Any:
    """The wrapped model is pickled, read back and copied while it is trained."""
    model = models.ddp()
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(4, 4, 4, 4):
        for x in batches:
            _loss(model(x)).backward()
        optimizer.step()
        optimizer.zero_grad()
        file = io.BytesIO()
        torch.save((model.cpu(), optimizer), file)
        file.seek(0)
        read, _ = torch.load(file, weights_only=False)
        assert exact.parameter_hash(read.parameters()) == exact.parameter_hash(model.parameters())
        copied = copy.deepcopy(model)
        for one in (read, copied):
            _loss(one(batches[0])).backward()
    return model.parameters()


def wrapped_anew(run: Run) -> Any:
    """Another wrapper, with its own optimizer, for the same model, in the middle of training."""
    net = models.net()
    model, optimizer = DDP(net), run.sgd(net.parameters())
    for step, batches in enumerate(run.windows(4, 4, 4, 4, 4)):
        if step == 3:
            model, optimizer = DDP(net), run.sgd(net.parameters())
        for x in batches:
            _loss(model(x)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def scaled_anew(run: Run) -> Any:
    """The first step of an optimizer made in the middle of training is skipped: one loss of the second rank is not finite."""
    model, scaler = models.ddp(), torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step, batches in enumerate(run.windows(4, 4, 4, 4, 4)):
        if step in {0, 3}:
            optimizer = run.sgd(model.parameters())
        for i, x in enumerate(batches):
            scaler.scale(_loss(model(x)) * (torch.inf if (step, i, run.rank) == (3, 1, 1) else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert scaler.get_scale() == 512.0, scaler.get_scale()
    return model.parameters()


def _ending(run: Run, end: Any) -> Any:
    model = models.ddp()
    optimizer = run.sgd(model.parameters())
    for step, batches in enumerate(run.windows(2, 2, 2, 2)):
        for x in batches:
            _loss(model(x)).backward()
            if step == 3:
                end()
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def exits(run: Run) -> Any:
    return _ending(run, lambda: sys.exit(3))


def fails(run: Run) -> Any:
    return _ending(run, lambda: int("of the script"))


LOOPS: dict[str, Loop] = {
    loop.__name__: loop
    for loop in (buffers, buffers_read, wrapped_in_parts, of_unlike_frequency, joined, saved_whole, wrapped_anew, scaled_anew, exits, fails)
}
