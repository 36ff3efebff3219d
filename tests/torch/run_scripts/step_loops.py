"""Loops over DDP that differ in what is around the step: optimizers, closures, scalers, clipping, evaluation, failures."""

from __future__ import annotations

from typing import Any

import models
import torch
import torch.distributed as dist
from loops import Loop, Run
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.utils import clip_grad_norm_


def _loss(output: Any) -> Any:
    return output.square().mean()


def two_optimizers(run: Run) -> Any:
    model = models.ddp()
    first, second = run.sgd(model.module.a.parameters()), run.sgd(model.module.b.parameters(), lr=2e-7)
    for batches in run.windows(4, 4, 4, 4):
        for x in batches:
            _loss(model(x)).backward()
        first.step()
        second.step()
        first.zero_grad()
        second.zero_grad()
    return model.parameters()


def one_after_the_other(run: Run) -> Any:
    """Two models, each trained by itself in turns."""
    held = [models.ddp(), models.ddp()]
    optimizers = [run.sgd(model.parameters()) for i, model in enumerate(held)]
    for batches in run.windows(2, 2, 2, 2):
        for model, optimizer in zip(held, optimizers, strict=True):
            for x in batches:
                _loss(model(x)).backward()
            optimizer.step()
            optimizer.zero_grad()
    return [p for model in held for p in model.parameters()]


class Critic(models.Net):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(4, 8)
        self.b = torch.nn.Linear(8, 1)


def adversarial(run: Run) -> Any:
    """Two models; the backward of one goes through the other as well."""
    generator, critic = models.ddp(), models.ddp(Critic, broadcast_buffers=False)
    of_generator, of_critic = run.sgd(generator.parameters()), run.sgd(critic.parameters())
    for batches in run.windows(1, 1, 1, 1):
        for x in batches:
            fake = generator(x)
            of_critic.zero_grad()
            (critic(x[:, :4]).mean() - critic(fake.detach()).mean()).backward()
            of_critic.step()
            of_generator.zero_grad()
            critic(fake).square().mean().backward()
            of_generator.step()
    return [*generator.parameters(), *critic.parameters()]


def closure(run: Run) -> Any:
    model = models.ddp()
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(4, 4, 4, 4):

        def window(batches: Any = batches) -> Any:
            optimizer.zero_grad()
            for x in batches:
                loss = _loss(model(x))
                loss.backward()
            return loss

        optimizer.step(window)
    return model.parameters()


def lbfgs(run: Run) -> Any:
    model = models.ddp()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-9, max_iter=3)
    for batches in run.windows(2, 2, 2, 2):

        def window(batches: Any = batches) -> Any:
            optimizer.zero_grad()
            loss = torch.zeros(())
            for x in batches:
                one = _loss(model(x))
                one.backward()
                loss = loss + one.detach()
            dist.all_reduce(loss)
            return loss

        optimizer.step(window)
    return model.parameters()


def scaler(run: Run) -> Any:
    """The third step is skipped: one loss of rank 1 is not finite."""
    model, scaling = models.ddp(), torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = run.sgd(model.parameters())
    for step, batches in enumerate(run.windows(4, 4, 4, 4, 4)):
        for i, x in enumerate(batches):
            factor = torch.inf if (step, i, run.rank) == (2, 1, 1) else 1.0
            scaling.scale(_loss(model(x)) * factor).backward()
        scaling.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1e4)
        scaling.step(optimizer)
        scaling.update()
        optimizer.zero_grad()
    assert scaling.get_scale() == 512.0, scaling.get_scale()
    return model.parameters()


def scaler_alone(run: Run) -> Any:
    """Unscales in its step."""
    model, scaling = models.ddp(), torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(4, 4, 4, 4):
        for x in batches:
            scaling.scale(_loss(model(x))).backward()
        scaling.step(optimizer)
        scaling.update()
        optimizer.zero_grad()
    return model.parameters()


def clipped(run: Run) -> Any:
    model = models.ddp()
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(4, 4, 4, 4):
        for x in batches:
            _loss(model(x)).backward()
        clip_grad_norm_(model.parameters(), 1e3)
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def zeroed_after_the_forward(run: Run) -> Any:
    model = models.ddp()
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(1, 1, 1, 1):
        for x in batches:
            loss = _loss(model(x))
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
    return model.parameters()


def thrown_away(run: Run) -> Any:
    """Two micro-steps in front of each window are zeroed."""
    model = models.ddp()
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(4, 4, 4, 4):
        for i, x in enumerate(batches):
            _loss(model(x)).backward()
            if i == 1:
                optimizer.zero_grad()
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def evaluating(run: Run) -> Any:
    """In the middle of a window, and between two: without gradients, and without a backward."""
    model = models.ddp()
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(4, 4, 4, 4):
        for i, x in enumerate(batches):
            _loss(model(x)).backward()
            if i % 2:
                model.eval()
                with torch.no_grad():
                    model(x)
                model(x)
                model.train()
                with torch.no_grad():
                    model(x)
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def gradients_of_inputs(run: Run) -> Any:
    """In the middle of a window, and between two: none of a parameter."""
    model = models.ddp()
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(4, 4, 4, 4):
        for i, x in enumerate(batches):
            _loss(model(x)).backward()
            if i % 2:
                torch.autograd.grad(_loss(model(x.requires_grad_())), x)
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def two_forwards(run: Run) -> Any:
    model = models.ddp()
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(4, 4, 4, 4):
        for x in batches:
            (_loss(model(x)) + _loss(model(x + 1))).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def hand_written(run: Run) -> Any:
    """No wrapper: the script reduces by itself."""
    model = models.net()
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(4, 4, 4, 4):
        for x in batches:
            _loss(model(x)).backward()
        for p in model.parameters():
            assert p.grad is not None
            dist.all_reduce(p.grad)
            p.grad.div_(run.world)
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def zero_redundancy(run: Run) -> Any:
    model = models.ddp()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=1e-7)
    for batches in run.windows(4, 4, 4, 4):
        for x in batches:
            _loss(model(x)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


LOOPS: dict[str, Loop] = {
    loop.__name__: loop
    for loop in (
        *(two_optimizers, one_after_the_other, adversarial, closure, lbfgs, scaler, scaler_alone, clipped, zeroed_after_the_forward),
        *(thrown_away, evaluating, gradients_of_inputs, two_forwards, hand_written, zero_redundancy),
    )
}
