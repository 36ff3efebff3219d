"""From which groups of a checkpoint each group of an optimizer is made, and what they had to agree on for that."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import InvalidArgument
from . import schedulers, settings
from .layout import Layout
from .matching import Found

# What a scheduler's list holds for a group that the checkpoint did not have, from the group's own settings.
_FROM_SETTINGS = {"base_lrs": ("initial_lr", "lr"), "base_values": ("initial_lr", "lr"), "_last_lr": ("lr",)}


# How a step is done, not what it does: the target's own, which it was built with.
IMPLEMENTATION = frozenset({"foreach", "fused"})


@dataclass(frozen=True)
class Grouping:
    """`sources[i]`: the saved groups of the target's group i; none where all its parameters are frozen and were not saved."""

    saved: Layout
    target: Layout
    sources: list[list[int]]

    @staticmethod
    def of(saved: Layout, target: Layout, found: list[Found]) -> Grouping:
        return Grouping(saved, target, [[*dict.fromkeys(saved.group_of[key] for key in keys if key is not None)] for keys in found])

    def settings(self, ignore: Collection[str]) -> list[dict[str, Any]]:
        """Of each group of the target: what was saved, and its own where nothing was. Errors: InvalidArgument where saved groups differ."""
        sharers: dict[tuple[int, str], int] = {}
        return [{**own, **self._saved_settings(number, ignore, sharers)} for number, own in enumerate(self.target.settings)]

    def _saved_settings(self, number: int, ignore: Collection[str], sharers: dict[tuple[int, str], int]) -> dict[str, Any]:
        if not self.sources[number]:
            return {}
        ignore = {*ignore, *(IMPLEMENTATION & self.target.settings[number].keys())}
        first, *others = self.sources[number]
        for index in others:
            ours, theirs = self.saved.settings[first], self.saved.settings[index]
            for key in settings.differing(ours, theirs, ignore):
                raise InvalidArgument(
                    self._differ(key, first, index, (ours.get(key), theirs.get(key)), number)
                    + f"; keep them apart in the optimizer, or take its own with ignore=('{key}',)"
                )
        held = {}
        for key, value in self.saved.settings[first].items():
            if key in ignore:
                continue
            # Schedulers write into tensors, and others into lists: what the target's groups do not share they must not load shared.
            own = self.target.settings[number].get(key)
            sharer = id(own) if isinstance(own, torch.Tensor) else -number - 1
            alone = sharers.setdefault((first, key), sharer) == sharer
            held[key] = value if alone else copy.deepcopy(value)
        return held

    def schedulers(self, states: Any, per_group: Collection[str]) -> Any:
        """Schedulers' states with a value for each group of the target: one state, or a list or dict of them."""
        if schedulers.holds_states(states):
            return {name: self._scheduler(state, per_group) for name, state in states.items()}
        if isinstance(states, list | tuple):
            return type(states)(self._scheduler(state, per_group) for state in states)
        return self._scheduler(states, per_group)

    def _scheduler(self, state: Any, per_group: Collection[str]) -> Any:
        return schedulers.regroup_state(state, len(self.saved.keys), len(self.target.keys), self._pick, per_group)

    def _pick(self, path: str, values: Sequence[Any]) -> list[Any]:
        used: set[int] = set()
        picked = []
        for number, members in enumerate(self.sources):
            if not members:
                picked.append(self._not_saved(path, number, values))
                continue
            value = settings.agreed(values, members, self._refusal(path, values, number))
            picked.append(copy.deepcopy(value) if members[0] in used else value)
            used.add(members[0])
        return picked

    def _not_saved(self, path: str, number: int, values: Sequence[Any]) -> Any:
        """For a group whose parameters are all frozen."""
        key = path.rpartition(".")[2]
        if key == "lr_lambdas":
            return None
        own = self.target.settings[number]
        found = next((own[name] for name in _FROM_SETTINGS.get(key, ()) if name in own), None)
        return copy.deepcopy(values[0] if found is None else found)

    def _refusal(self, path: str, values: Sequence[Any], number: int) -> Callable[[int, int], str]:
        return lambda one, odd: self._differ(f"the scheduler's {path}", one, odd, (values[one], values[odd]), number)

    def _differ(self, what: str, one: int, other: int, values: Sequence[Any], number: int) -> str:
        saved, shown = self.saved, [settings.shown(value) for value in values]
        return (
            f"{what} was {shown[0]} in the checkpoint's group {one} ({saved.called(one)}) and {shown[1]} in its group {other} "
            f"({saved.called(other)}), and group {number} of the optimizer has both"
        )
