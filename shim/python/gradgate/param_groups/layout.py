"""The parameter groups of a checkpoint and of an optimizer, in one form."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from . import merging, settings

# State that torch's optimizers keep in the shape of the parameter.
ELEMENTWISE = frozenset(
    "exp_avg exp_avg_sq max_exp_avg_sq exp_inf momentum_buffer sum square_avg grad_avg acc_delta prev step_size ax".split()
)
WRAPPERS = frozenset({"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})


@dataclass(frozen=True)
class Layout:
    """Groups in order: the settings of each, and of each of its parameters the key in the state dict, and where there are any the name and
    the tensor. Nothing is copied."""

    settings: list[dict[str, Any]]
    keys: list[list[Hashable]]
    names: list[list[str]] | None
    tensors: list[list[torch.Tensor]] | None
    state: Mapping[Hashable, Any]

    @property
    def sizes(self) -> list[int]:
        return [len(keys) for keys in self.keys]

    @cached_property
    def flat(self) -> list[Hashable]:
        return [key for keys in self.keys for key in keys]

    @cached_property
    def group_of(self) -> dict[Hashable, int]:
        """By the parameter's key."""
        return {key: index for index, keys in enumerate(self.keys) for key in keys}

    @cached_property
    def flat_names(self) -> list[str] | None:
        return None if self.names is None else [name for names in self.names for name in names]

    @cached_property
    def flat_tensors(self) -> list[torch.Tensor] | None:
        return None if self.tensors is None else [tensor for tensors in self.tensors for tensor in tensors]

    @cached_property
    def idle(self) -> frozenset[Hashable]:
        """Parameters that are frozen; where there are no tensors to ask, those without state beside others that have some."""
        if self.flat_tensors is not None:
            return frozenset(key for key, tensor in zip(self.flat, self.flat_tensors, strict=True) if not tensor.requires_grad)
        keeping = [keys for keys, group in zip(self.keys, self.settings, strict=True) if group.get("momentum") != 0]  # SGD has none then
        without = frozenset(key for keys in keeping for key in keys if not self.stepped(key))
        return without if len(without) < len(self.flat) else frozenset()

    def stepped(self, key: Hashable) -> bool:
        """Whether there is state of a step. Adagrad makes state for what is never stepped, too."""
        held = self.state.get(key)
        return bool(held) and not (isinstance(held, Mapping) and "step" in held and float(held["step"]) == 0)

    def without_idle(self) -> Layout:
        return self._of([[place for place, key in enumerate(keys) if key not in self.idle] for keys in self.keys])

    def _of(self, places: list[list[int]]) -> Layout:
        def picked(rows: list[list[Any]] | None) -> Any:
            return rows and [[row[place] for place in kept] for row, kept in zip(rows, places, strict=True) if kept]

        held = [group for group, kept in zip(self.settings, places, strict=True) if kept]
        return Layout(held, picked(self.keys), picked(self.names), picked(self.tensors), self.state)

    def singles(self, places: list[int]) -> Layout:
        """A group for each parameter, in the order of `places` among all."""

        def picked(flat: list[Any] | None) -> Any:
            return None if flat is None else [[flat[place]] for place in places]

        held = [self.settings[self.group_of[self.flat[place]]] for place in places]
        return Layout(held, picked(self.flat), picked(self.flat_names), picked(self.flat_tensors), self.state)

    def merged(self, ignore: Collection[str]) -> Layout:
        """As merge() would group it."""
        parts = settings.partition(self.settings, ignore)

        def joined(rows: list[list[Any]] | None) -> Any:
            return rows and [[held for index in part for held in rows[index]] for part in parts]

        held = [self.settings[part[0]] for part in parts]
        return Layout(held, joined(self.keys), joined(self.names), joined(self.tensors), self.state)

    def called(self, group: int, place: int = 0) -> str:
        return repr(self.names[group][place]) if self.names else f"its parameter {place}"

    def shape(self, group: int, place: int) -> tuple[int, ...] | None:
        """Of a parameter, from its tensor or else its state; None where neither tells."""
        if self.tensors is not None:
            return tuple(self.tensors[group][place].shape)
        return self.shape_in_state(self.keys[group][place])

    def shape_in_state(self, key: Hashable) -> tuple[int, ...] | None:
        held = self.state.get(key) or {}
        found = (tuple(value.shape) for name, value in held.items() if name in ELEMENTWISE and isinstance(value, torch.Tensor))
        return next(found, None)


def of_state_dict(state: Any) -> Layout | None:
    """None where it is not an optimizer's state dict, or one without parameters."""
    if not isinstance(state, Mapping) or not isinstance(state.get("state"), Mapping) or not isinstance(state.get("param_groups"), list):
        return None
    groups = state["param_groups"]
    if not all(isinstance(group, Mapping) and isinstance(group.get("params"), list) for group in groups):
        return None
    keys = [list(group["params"]) for group in groups]
    kinds = {type(key) for held in keys for key in held}
    if kinds not in ({int}, {str}):
        return None
    named = all(len(group.get("param_names") or ()) == len(group["params"]) for group in groups)
    names = keys if kinds == {str} else [list(group["param_names"]) for group in groups] if named else None
    names = names and [[bare(name) for name in held] for held in names]
    return Layout([settings.of_group(group) for group in groups], keys, names, None, state["state"])


def bare(name: str) -> str:
    """Without what wrappers put into it."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def of_optimizer(optimizer: Any) -> Layout:
    groups = [merging.members_of(index, group) for index, group in enumerate(optimizer.param_groups)]
    numbers = iter(range(sum(map(len, groups))))
    names = [[bare(member.name or "") for member in group] for group in groups]
    return Layout(
        [settings.of_group(group) for group in optimizer.param_groups],
        [[next(numbers) for _ in group] for group in groups],
        names if all(map(all, names)) else None,
        [[member.tensor for member in group] for group in groups],
        {},
    )
