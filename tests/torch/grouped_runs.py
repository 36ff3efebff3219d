"""Trains the detector of grouped_model with its 465 groups, and with merged ones, and says where parameters or state differ in any bit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import grouped_model
import torch
from gradgate.param_groups import Report, merge, merge_optimizer
from torch.distributed.tensor import DTensor

STEPS, MIDDLE = 12, 5
LATE, ABSENT = 3, 7  # of the synthetic gradients: the step of the first ones of some tensors; one in so many is missing later on
SEED = 20261130

IMPLEMENTATIONS: dict[str, dict[str, bool]] = {"for-loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
WAYS = ("built merged", "merged midway")  # beside "unmerged"

Gradients = list[torch.Tensor | None]
Schedule = Callable[
    [torch.optim.Optimizer, Callable[[list[Any]], list[Any]]], Any
]  # its second argument: one value for each group from 465


@dataclass(frozen=True)
class Kind:
    """An optimizer with options. `gradients`: "dense"; "sparse", with which torch has no weight decay; "matrices", of which alone."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    gradients: str = "dense"
    base_lr: float = 1e-2

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{key}={value}" for key, value in self.options.items()), self.gradients])

    def groups(self, model: torch.nn.Module, **choices: bool) -> list[dict[str, Any]]:
        found = grouped_model.groups(model, base_lr=self.base_lr, **choices)
        if self.gradients == "sparse":
            return [{key: value for key, value in group.items() if key != "weight_decay"} for group in found]
        return [group for group in found if self.gradients != "matrices" or group["params"][0].ndim == 2]

    def make(self, groups: Iterable[Any], implementation: Mapping[str, bool]) -> torch.optim.Optimizer:
        optimizer: torch.optim.Optimizer = getattr(torch.optim, self.name)(groups, **self.options, **implementation)
        return optimizer


@dataclass
class Run:
    """A training that is over. Everything is by the tensor's name."""

    tensors: dict[str, dict[str, Any]]  # "parameter", and what the optimizer holds for it
    settings: dict[str, dict[str, Any]]
    moved: set[str]
    optimizer: torch.optim.Optimizer
    report: Report | None


def synthetic(kind: Kind, late: bool = True) -> list[Gradients]:
    """For each step a gradient for each tensor of the narrow model, or none."""
    generator = torch.Generator().manual_seed(SEED)
    shapes = [group["params"][0].shape for group in kind.groups(grouped_model.build(narrow=True))]
    steps: list[Gradients] = []
    for step in range(STEPS):
        found: Gradients = [torch.randn(shape, generator=generator) for shape in shapes]
        for index, gradient in enumerate(found):
            begun = not late or index % 5 or step >= LATE
            if not begun or (step > LATE and (index + step) % ABSENT == 0):
                found[index] = None
            elif kind.gradients == "sparse" and gradient is not None:
                gradient[1::2] = 0
                found[index] = gradient.to_sparse(1)
        steps.append(found)
    return steps


def train(
    kind: Kind, implementation: Mapping[str, bool], way: str, gradients: list[Gradients] | None, schedule: Schedule | None = None
) -> Run:
    """`gradients`: what synthetic() made, for the narrow model; None: forward and backward of the full-sized one."""
    model = grouped_model.build(narrow=gradients is not None)
    groups = kind.groups(model)
    tensors = [group["params"][0] for group in groups]
    before = [tensor.detach().clone() for tensor in tensors]
    report: Report | None = None
    if way == "built merged":
        merged = merge(groups)
        optimizer, report = kind.make(merged, implementation), merged.report
    else:
        optimizer = kind.make(groups, implementation)
    collapse: Callable[[list[Any]], list[Any]] = unchanged
    if report:
        collapse = report.collapse
    scheduler = schedule(optimizer, collapse) if schedule else None
    for step in range(STEPS):
        if way == "merged midway" and step == MIDDLE:
            report = merge_optimizer(optimizer, *([scheduler] if scheduler else []))
        if gradients is None:
            loss = grouped_model.backward(model, step)
        else:
            loss = 1.0
            for tensor, gradient in zip(tensors, gradients[step], strict=True):
                tensor.grad = None if gradient is None else gradient.clone()
        optimizer.step()
        if scheduler:
            scheduler.step(*([loss] if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau) else []))
    names = names_of(model)
    moved = {names[tensor] for tensor, was in zip(tensors, before, strict=True) if not torch.equal(tensor.detach(), was)}
    return Run(held(names, optimizer), settings(names, optimizer), moved, optimizer, report)


def unchanged(values: list[Any]) -> list[Any]:
    return values


def names_of(model: torch.nn.Module) -> dict[torch.Tensor, str]:
    return {parameter: name for name, parameter in model.named_parameters()}


def held(names: Mapping[torch.Tensor, str], optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Any]]:
    """Of each tensor that the optimizer updates, twice if it is there twice."""
    return {names[tensor]: {"parameter": tensor.detach(), **optimizer.state[tensor]} for tensor, _ in each(optimizer)}


def settings(names: Mapping[torch.Tensor, str], optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Any]]:
    return {names[tensor]: {key: value for key, value in group.items() if key != "params"} for tensor, group in each(optimizer)}


def each(optimizer: torch.optim.Optimizer) -> Iterator[tuple[torch.Tensor, dict[str, Any]]]:
    return ((tensor, group) for group in optimizer.param_groups for tensor in group["params"])


def differences(one: Mapping[str, Mapping[str, Any]], other: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The names of tensors that differ in type, shape or any bit, of parameters or state."""
    found = sorted(one.keys() ^ other.keys())
    for name in one.keys() & other.keys():
        mine, theirs = one[name], other[name]
        found += [f"{name}: {key}" for key in sorted(mine.keys() ^ theirs.keys())]
        found += [f"{name}: {key}" for key in sorted(mine.keys() & theirs.keys()) if not same(mine[key], theirs[key])]
    return found


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if not isinstance(one, torch.Tensor):
        return bool(one == other)
    if isinstance(one, DTensor):  # what this rank has of it
        return one.placements == other.placements and same(one.to_local(), other.to_local())
    if one.dtype != other.dtype or one.shape != other.shape or one.layout != other.layout:
        return False
    if one.layout == torch.sparse_coo:
        return same(one._indices(), other._indices()) and same(one._values(), other._values())
    return torch.equal(bits(one), bits(other))


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
