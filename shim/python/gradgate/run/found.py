"""Which models and optimizers a process has, found among its objects: a script that nobody edits cannot tell."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from .. import adapters


def _alive(kind: type) -> Iterator[Any]:
    return (held for held in gc.get_objects() if issubclass(type(held), kind))


def _parameters(optimizer: torch.optim.Optimizer) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def models_of(parameters: set[int]) -> list[torch.nn.Module]:
    """Outermost modules that have some of these parameters: as few as have all of them, the largest first."""
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
    found = {}
    for optimizer in _alive(torch.optim.Optimizer):
        if "param_groups" in vars(optimizer) and "state" in vars(optimizer) and id(optimizer.param_groups) not in known:
            theirs = [model for model in models_of(_parameters(optimizer)) if id(model) not in mine]
            if any(adapters.discover(model)[0] for model in theirs):
                found[id(optimizer.param_groups)] = optimizer
    return list(found.values())


def optimizers_of(models: Iterable[torch.nn.Module], first: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
    """Those that train some parameter of the models, each by the object that has the groups itself (not a wrapper around it)."""
    parameters = {id(parameter) for model in models for parameter in model.parameters()}
    found = {id(first.param_groups): first}
    for optimizer in _alive(torch.optim.Optimizer):
        if "param_groups" in vars(optimizer) and "state" in vars(optimizer) and _parameters(optimizer) & parameters:
            found.setdefault(id(optimizer.param_groups), optimizer)
    return list(found.values())
