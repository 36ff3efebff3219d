"""Which models and optimizers a process has, found among its objects: a script that nobody edits cannot tell."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from .. import adapters
from ..adapters import deepspeed_state


def _alive(kind: type) -> Iterator[Any]:
    return (held for held in gc.get_objects() if issubclass(type(held), kind))


def _optimizers() -> Iterator[torch.optim.Optimizer]:
    """Each by the object that has the groups itself, not by a wrapper around it."""
    return (held for held in _alive(torch.optim.Optimizer) if {"param_groups", "state"} <= vars(held).keys())


def _parameters(*optimizers: torch.optim.Optimizer) -> set[int]:
    return {id(parameter) for optimizer in optimizers for parameter in _trained_by(optimizer)}


def _trained_by(optimizer: torch.optim.Optimizer) -> Iterable[torch.Tensor]:
    """An engine of DeepSpeed's gives its optimizer flat copies."""
    engine = deepspeed_state.engine_that_steps(optimizer)
    held: Iterable[torch.Tensor] = (p for group in optimizer.param_groups for p in group["params"])
    return held if engine is None else list(engine.module.parameters())


def models_of(optimizers: Iterable[torch.optim.Optimizer]) -> list[torch.nn.Module]:
    """Outermost modules that have some of their parameters: as few as have all of them, the largest first."""
    parameters = _parameters(*optimizers)
    modules = list(_alive(torch.nn.Module))
    inside = {id(child) for module in modules for child in module._modules.values() if child is not None}
    own = {id(module): {id(p) for p in module.parameters()} & parameters for module in modules if id(module) not in inside}
    chosen, covered = [], set[int]()
    for module in sorted((m for m in modules if own.get(id(m))), key=lambda m: -len(own[id(m)])):
        if not own[id(module)] <= covered:
            covered |= own[id(module)]
            chosen.append(module)
    return chosen


def others_of(models: Iterable[torch.nn.Module], optimizers: list[torch.optim.Optimizer]) -> list[torch.optim.Optimizer]:
    """Optimizers of other models that are wrapped too."""
    known = {id(optimizer.param_groups) for optimizer in optimizers}
    mine = {id(model) for model in models}
    rest = {id(optimizer.param_groups): optimizer for optimizer in _optimizers() if id(optimizer.param_groups) not in known}
    theirs = [model for model in models_of(rest.values()) if id(model) not in mine and adapters.discover(model)[0]]
    parameters = {id(parameter) for model in theirs for parameter in model.parameters()}
    return [optimizer for optimizer in rest.values() if _parameters(optimizer) & parameters]


def optimizers_of(models: Iterable[torch.nn.Module], first: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
    """Those that train some parameter of the models."""
    parameters = {id(parameter) for model in models for parameter in model.parameters()}
    found = {id(first.param_groups): first}
    for optimizer in _optimizers():
        if _parameters(optimizer) & parameters:
            found.setdefault(id(optimizer.param_groups), optimizer)
    return list(found.values())
