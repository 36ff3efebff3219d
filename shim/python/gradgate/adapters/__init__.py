"""One adapter per wrapper instance, and what finds them in a model."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator

import torch

from .base import Adapter, NoEffect

# Modules with find(model) -> list[Adapter], outer wrappers before inner ones. Each is imported when a model is looked at.
_DETECTORS = ("ddp_find", "fsdp2", "fsdp1", "deepspeed")


def discover(model: torch.nn.Module) -> tuple[list[Adapter], list[tuple[str, torch.nn.Parameter]]]:
    """All wrapped parts of a model, nested ones included, and the parameters outside of them with their names, frozen ones too."""
    found: list[Adapter] = []
    for name in _DETECTORS:
        find: Callable[[torch.nn.Module], list[Adapter]] = importlib.import_module(f"{__name__}.{name}").find
        found += find(model)
    _share(found)
    wrapped = {id(p) for adapter in found for p in adapter.parameters() + adapter.ignored()}
    inside = wrapped | {id(p) for adapter in found for p in adapter.module.parameters()}
    return found, [(name, p) for name, p in model.named_parameters() if id(p) not in (inside if not p.requires_grad else wrapped)]


def _share(found: list[Adapter]) -> None:
    """Two wrappers on one group: a rank that is late with both issues one's collectives before the other's, a backward mixes them."""
    users: dict[str, list[Adapter]] = {}
    for adapter in found:
        for group in adapter.groups():
            users.setdefault(group.process_group.group_name, []).append(adapter)
    for sharing in users.values():
        if len(sharing) > 1:
            for adapter in sharing:
                adapter.late_alone = False


def double_reductions(found: list[Adapter]) -> Iterator[NoEffect]:
    """Weights that two wrappers reduce, each in every reduction, also when all is right: a wrapper inside another that does not
    ignore its parameters."""
    owners: dict[int, Adapter] = {}
    for adapter in found:
        own = adapter.parameters()
        shared = [p for p in own if id(p) in owners]
        if shared:
            outer = owners[id(shared[0])]
            text = (
                f"{len(shared)} parameters of a {adapter.kind} wrapper are reduced by the {outer.kind} around it as well: twice the "
                "traffic. Let the outer one ignore them (DDP: _set_params_and_buffers_to_ignore_for_model)"
            )
            yield NoEffect("double_reduction", text)
        owners.update((id(p), adapter) for p in own if id(p) not in owners)
