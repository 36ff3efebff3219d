"""Loops over DDP that do more between the last backward and the step than torch's functions: gradients read and changed by hand."""

from __future__ import annotations

from typing import Any

import models
import torch
from loops import Loop, Run
from torch.nn.utils import clip_grads_with_norm_, get_total_norm


def _train(run: Run, touch: Any) -> Any:
    model = models.ddp()
    optimizer = run.sgd(model.parameters())
    for batches in run.windows(4, 4, 4, 4):
        for x in batches:
            model(x).square().mean().backward()
        touch(list(model.parameters()))
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def _scale(parameters: list[Any]) -> None:
    for parameter in parameters:
        parameter.grad.mul_(0.25)


def _clip(parameters: list[Any]) -> None:
    norm = torch.stack([parameter.grad.square().sum() for parameter in parameters]).sum().sqrt()
    for parameter in parameters:
        parameter.grad.mul_(1e3 / norm)


def _clip_in_two(parameters: list[Any]) -> None:
    clip_grads_with_norm_(parameters, 1e3, get_total_norm([parameter.grad for parameter in parameters]))


def scaled_by_hand(run: Run) -> Any:
    return _train(run, _scale)


def clipped_by_hand(run: Run) -> Any:
    """By a norm that no function of torch computes."""
    return _train(run, _clip)


def clipped_in_two(run: Run) -> Any:
    """By torch's functions, one for the norm and one for the rest."""
    return _train(run, _clip_in_two)


def read_now_and_then(run: Run) -> Any:
    """Rank 0 alone looks at a gradient, before the fourth of seven steps."""
    model = models.ddp()
    optimizer = run.sgd(model.parameters())
    for step, batches in enumerate(run.windows(*(4,) * 7)):
        for x in batches:
            model(x).square().mean().backward()
        if step == 3 and torch.distributed.get_rank() == 0:
            assert all(parameter.grad is not None for parameter in model.parameters())
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


LOOPS: dict[str, Loop] = {loop.__name__: loop for loop in (scaled_by_hand, clipped_by_hand, clipped_in_two, read_now_and_then)}
