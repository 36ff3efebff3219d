"""Optimizer states that torch.distributed.checkpoint flattened: "param_groups.<parameter>.<setting>", and no groups.

Such a state fits any groups, and torch gives each group the settings of its first parameter, whatever those of the others are.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Any

from ..errors import InvalidArgument
from . import matching, schedulers, settings
from .grouping import Grouping
from .layout import Layout

GROUPS, STATE = "param_groups.", "state."


def is_flattened(state: Any) -> bool:
    if not isinstance(state, Mapping) or "param_groups" in state:
        return False
    return any(isinstance(key, str) and key.startswith(GROUPS) for key in state)


def _parts(key: Any, prefix: str) -> tuple[str, str]:
    name, _, last = key.removeprefix(prefix).rpartition(".") if isinstance(key, str) and key.startswith(prefix) else ("", "", "")
    return name, last


def _single(state: Mapping[str, Any]) -> Layout:
    """A group for each parameter."""
    held: dict[str, dict[str, Any]] = {}
    kept: dict[Hashable, dict[str, Any]] = {}
    for key, value in state.items():
        name, setting = _parts(key, GROUPS)
        if name and setting not in settings.OWN_KEYS:
            held.setdefault(name, {})[setting] = value
        name, entry = _parts(key, STATE)
        if name:
            kept.setdefault(name, {})[entry] = value
    names = [[name] for name in held]
    return Layout([*held.values()], [list[Hashable](name) for name in names], names, None, kept)


def regroup(
    state: Mapping[str, Any], scheduler_states: Any, target: Layout | None, ignore: Collection[str], per_group: Collection[str]
) -> Any:
    """The schedulers' states for the target's groups; None as target stands for those that merge() makes.

    Errors: InvalidArgument where parameters of one group were saved with different settings, and where lists of schedulers fit neither a
    group for each parameter nor merged groups.
    """
    saved = _single(state)
    merged = saved.merged(ignore)
    wanted = target or merged
    length = schedulers.length_of_lists(scheduler_states)
    if wanted.names is None:
        if length is None:
            return scheduler_states
        raise InvalidArgument(
            "the checkpoint's optimizer is flattened, and the target's parameters have no names: give "
            "get_optimizer_state_dict(model, optimizer) as target"
        )
    found = matching.match(saved, wanted, None, ignore)
    Grouping.of(saved, wanted, found).settings(ignore)
    if length in (None, len(wanted.keys)):
        return scheduler_states
    old = next((groups for groups in (saved, merged) if len(groups.keys) == length), None)
    if old is None:
        raise InvalidArgument(
            f"the scheduler has lists of {length} values; the flattened checkpoint has {len(saved.keys)} parameters of {len(merged.keys)} "
            "different settings, and does not tell its groups: save it with flatten_optimizer_state_dict=False"
        )
    return Grouping.of(old, wanted, found).schedulers(scheduler_states, per_group)


def refuse_as_target(scheduler_states: Any) -> None:
    if schedulers.length_of_lists(scheduler_states) is not None:
        raise InvalidArgument(
            "target is in the flattened form, which says nothing of groups; give get_optimizer_state_dict(model, optimizer) without "
            "flatten_optimizer_state_dict as target"
        )
