"""What learning-rate schedulers keep for each parameter group, in the live object and in its state dict.

A scheduler holds lists with one value for each group, and schedulers made of others (SequentialLR, ChainedScheduler, warm-ups) hold those.
Neither torch nor the scheduler checks their length when a state is loaded: the first step does, or pairs values and groups wrongly.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ..errors import InvalidArgument

# torch's, and timm's base_values.
PER_GROUP = frozenset({"base_lrs", "_last_lr", "lr_lambdas", "min_lrs", "max_lrs", "base_momentums", "max_momentums", "base_values"})
# Lists whose length has nothing to do with groups.
OTHER_LISTS = frozenset({"milestones", "_milestones", "_schedule_phases", "_schedulers", "schedulers"})
_LOGGER = logging.getLogger("gradgate")

Pick = Callable[[str, Sequence[Any]], list[Any]]


def _is_state(value: object) -> bool:
    return isinstance(value, Mapping) and bool(({"last_epoch", "_schedulers"} | PER_GROUP) & value.keys())


def regroup_state(state: Any, old: int, new: int, pick: Pick, per_group: Collection[str], where: str = "") -> Any:
    """A copy of a scheduler's state dict with its lists of `old` values passed through `pick(where, values)`, nested schedulers' too.

    Lists that fit the `new` number already are kept, as is anything that is no scheduler's state.
    Errors: InvalidArgument where a list that is known to be per group has another length.
    """
    if not _is_state(state):
        return state
    copied = dict(state)
    for key, value in state.items():
        path = f"{where}{key}"
        if key in PER_GROUP or key in per_group:
            if not isinstance(value, list | tuple):
                continue
            if len(value) == old:
                copied[key] = type(value)(pick(path, value))
            elif len(value) != new:
                raise InvalidArgument(
                    f"the scheduler's {path} has {len(value)} entries; the checkpoint's optimizer has {old} parameter groups and the "
                    f"one to load into {new}: load the scheduler's state that was saved with this optimizer"
                )
        elif isinstance(value, list | tuple) and any(map(_is_state, value)):
            copied[key] = type(value)(
                regroup_state(held, old, new, pick, per_group, f"{path}[{place}].") for place, held in enumerate(value)
            )
        elif _is_state(value):
            copied[key] = regroup_state(value, old, new, pick, per_group, f"{path}.")
        elif isinstance(value, list) and key not in OTHER_LISTS and len(value) == old != new:
            _LOGGER.warning(
                "param_groups: the scheduler's %s has %d entries, as many as there were parameter groups; it is kept as it is: "
                "give per_group=('%s',) if there is one for each group",
                *(path, old, key),
                extra={"reason": "per_group_unknown"},
            )
    return copied


def _inside(scheduler: object) -> Iterator[tuple[str, object]]:
    """The schedulers that this one holds, by attribute."""
    for name, value in vars(scheduler).items():
        several = isinstance(value, list | tuple)
        for place, one in enumerate(value if several else [value]):
            if isinstance(one, LRScheduler) or (name == "scheduler" and hasattr(one, "optimizer")):
                yield f"{name}[{place}]" if several else name, one


def holds_states(states: Any) -> bool:
    """Whether it is a dict of schedulers' states."""
    return isinstance(states, Mapping) and not _is_state(states) and any(map(_is_state, states.values()))


def length_of_lists(states: Any) -> int | None:
    """How many values the first per-group list has in a scheduler's state or several; None where there is none."""
    if isinstance(states, list | tuple):
        return next((found for found in map(length_of_lists, states) if found is not None), None)
    if not _is_state(states) and not holds_states(states):
        return None
    own = [len(value) for key, value in states.items() if key in PER_GROUP and isinstance(value, list | tuple)]
    return own[0] if own else length_of_lists([*states.values()])


class Live:
    """The schedulers of one optimizer, and the lists they hold for its groups. Setup only."""

    def __init__(self, optimizer: torch.optim.Optimizer, given: Sequence[object], per_group: Collection[str] | None) -> None:
        self.optimizer = optimizer
        self.groups = optimizer.param_groups
        self.per_group = per_group
        self.names: list[str] = []
        self.lists: list[tuple[dict[str, Any], str, str]] = []  # attributes of the holder, key, how to call it
        self._seen: set[int] = set()
        self.schedulers: list[object] = []
        for scheduler in given:
            if not hasattr(scheduler, "optimizer") or not self._belongs(scheduler):
                raise InvalidArgument(
                    f"{type(scheduler).__name__} is no scheduler of this optimizer; give the schedulers that were made with it"
                )
        # Those not given would be left with lists for the old groups. One that nothing refers to any more is left out.
        for scheduler in [*given, *self._attached(bool(given))]:
            if id(scheduler) not in self._seen:
                self.names.append(type(scheduler).__name__)
            self._take(scheduler, type(scheduler).__name__)

    def _belongs(self, scheduler: Any) -> bool:
        return getattr(scheduler.optimizer, "param_groups", None) is self.groups

    def _attached(self, given: bool) -> list[Any]:
        def found() -> list[Any]:
            return [
                held
                for held in gc.get_objects()
                if issubclass(type(held), LRScheduler) and "optimizer" in vars(held) and self._belongs(held)
            ]

        if not given and gc.get_freeze_count() and "_wrapped_by_lr_sched" in vars(vars(self.optimizer).get("step", self)):
            raise InvalidArgument(
                "a scheduler was made for this optimizer, and gc.freeze() hides such: give merge_optimizer its schedulers"
            )
        if not found():
            return []
        gc.collect()
        schedulers = found()
        nested = {id(held) for scheduler in schedulers for _, held in _inside(scheduler)}
        return [scheduler for scheduler in schedulers if id(scheduler) not in nested]

    def _take(self, scheduler: Any, where: str) -> None:
        if id(scheduler) in self._seen:
            return
        self._seen.add(id(scheduler))
        self.schedulers.append(scheduler)
        attributes = vars(scheduler)
        for key, value in attributes.items():
            if key in PER_GROUP or key in (self.per_group or ()):
                if not isinstance(value, list | tuple):
                    if key in PER_GROUP and _length(value) is None:
                        continue
                    raise InvalidArgument(f"{where}.{key} is {type(value).__name__}; only lists and tuples can be merged: make it a list")
                if len(value) != len(self.groups):
                    raise InvalidArgument(
                        f"{where}.{key} has {len(value)} entries and the optimizer {len(self.groups)} parameter groups; "
                        "make the scheduler anew, or merge before making it"
                    )
                self.lists.append((attributes, key, f"{where}.{key}"))
            elif self.per_group is None and self._looks_per_group(scheduler, key, value):
                raise InvalidArgument(
                    f"{where}.{key} has {_length(value)} entries, as many as the optimizer has parameter groups; "
                    f"give per_group=('{key}',) if there is one for each group, else per_group=()"
                )
        for name, held in _inside(scheduler):
            self._take(held, f"{where}.{name}")

    def _looks_per_group(self, scheduler: object, key: str, value: object) -> bool:
        if type(scheduler).__module__.partition(".")[0] == "torch" or key in OTHER_LISTS:
            return False
        return _length(value) == len(self.groups) > 1 and not any(isinstance(held, LRScheduler) for held in value)  # type: ignore[attr-defined]

    def writes_at_once(self) -> bool:
        """Whether all of them work out the new rates of all groups before they set one, as torch's do but for one."""
        return all(type(held).__module__.startswith("torch.optim") and not isinstance(held, ReduceLROnPlateau) for held in self.schedulers)

    def settings(self) -> list[dict[str, Any]]:
        """By group, what the schedulers hold for it: groups that differ in this will differ later."""
        return [{path: attributes[key][index] for attributes, key, path in self.lists} for index in range(len(self.groups))]

    def kept(self, firsts: Sequence[int]) -> list[tuple[dict[str, Any], str, Any]]:
        """Each list with the values of these groups alone: attributes, key, new value."""
        return [
            (attributes, key, _like(attributes[key], [attributes[key][index] for index in firsts])) for attributes, key, _ in self.lists
        ]


def _length(value: object) -> int | None:
    """Of something that may hold a value for each group."""
    if isinstance(value, str | bytes) or not hasattr(value, "__len__"):
        return None
    try:
        return len(value)
    except TypeError:  # a tensor or array without a dimension
        return None


def _like(old: list[Any] | tuple[Any, ...], values: list[Any]) -> list[Any] | tuple[Any, ...]:
    return tuple(values) if isinstance(old, tuple) else values


def looks_per_group(holder: object, count: int, known: Collection[str]) -> str | None:
    """An attribute that has as many entries as there are groups."""
    own = {key: value for key, value in vars(holder).items() if key not in known and not key.startswith(("_optimizer_", "_hook"))}
    return next((key for key, value in own.items() if not isinstance(value, tuple) and _length(value) == count > 1), None)
