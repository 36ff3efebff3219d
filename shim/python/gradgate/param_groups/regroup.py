"""Checkpoints of optimizers and schedulers, from one grouping of the parameters to another."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from ..errors import InvalidArgument
from . import layout, merging, schedulers, settings
from .layout import Layout

S = TypeVar("S")


def regroup_state_dict(
    optimizer_state: Any,
    scheduler_states: S = None,  # type: ignore[assignment]
    target: Any = None,
    *,
    order: Iterable[Any] | None = None,
    ignore: Collection[str] = (),
    per_group: Collection[str] = (),
) -> tuple[Any, S]:
    """A checkpoint as `target` can load it, whichever of the two has merged groups: the optimizer's state and its schedulers'.

    `optimizer_state`: an optimizer's state_dict(), or get_optimizer_state_dict() of torch.distributed.checkpoint. `scheduler_states`:
    None, one scheduler's state_dict(), or a list of them, and returned so. `target`: the optimizer that will load it, or a state dict of
    it, or None for the groups that merge() makes of the checkpoint's own. State follows its parameter, by name where both have names,
    else by where merge() saw it, else because both merge alike; `order` (parameters, names, or groups) tells what the checkpoint's
    optimizer was made with, where that is not enough. `ignore`: as merge() had it; these settings come from the target. `per_group`:
    further keys of schedulers with one value for each group.

    What fits already, or is not recognised, comes back as the same object. Inputs are not changed, and the result shares their tensors.
    Errors: InvalidArgument where parameters cannot be matched, and where groups that become one were saved with different settings.
    """
    merging.check_choices(ignore, "keep")
    saved = layout.of_state_dict(optimizer_state)
    wanted = _target(target, saved, ignore)
    if saved is None or wanted is None:
        return optimizer_state, scheduler_states
    if order is None and layout.fits(saved, wanted):
        return optimizer_state, _schedulers(scheduler_states, [[index] for index in range(len(saved.keys))], saved, wanted, per_group)
    found = layout.match(saved, wanted, order, ignore)
    layout.check_shapes(saved, wanted, found)
    of_key = {key: index for index, keys in enumerate(saved.keys) for key in keys}
    sources = [list(dict.fromkeys(of_key[key] for key in keys)) for keys in found]
    regrouped = _rebuilt(optimizer_state, saved, wanted, found, sources, ignore)
    return regrouped, _schedulers(scheduler_states, sources, saved, wanted, per_group)


def _target(target: Any, saved: Layout | None, ignore: Collection[str]) -> Layout | None:
    if target is None:
        return layout.merged(saved, ignore) if saved else None
    if hasattr(target, "param_groups"):
        return layout.of_optimizer(target)
    wanted = layout.of_state_dict(target)
    if wanted is None:
        raise InvalidArgument(f"target is {type(target).__name__}; give the optimizer that will load the checkpoint, or its state dict")
    return wanted


def _differ(what: str, saved: Layout, one: int, other: int, values: Sequence[Any], number: int) -> str:
    return (
        f"{what} was {settings.shown(values[0])} in the checkpoint's group {one} ({saved.called(one)}) and {settings.shown(values[1])} in "
        f"its group {other} ({saved.called(other)}), and group {number} of the optimizer has both"
    )


def _rebuilt(
    state: Mapping[str, Any], saved: Layout, wanted: Layout, found: list[list[Hashable]], sources: list[list[int]], ignore: Collection[str]
) -> dict[str, Any]:
    named = isinstance(saved.flat[0], str)
    renumbered = {key: key if named else place for place, key in enumerate(key for keys in found for key in keys)}
    known = set(saved.flat)
    names = {key: name for held, keys in zip(saved.names or [], saved.keys, strict=False) for name, key in zip(held, keys, strict=True)}
    handed: dict[tuple[int, str], Any] = {}
    groups = []
    for number, keys in enumerate(found):
        group: dict[str, Any] = {
            **_settings(saved, sources[number], number, ignore, handed, wanted),
            "params": [renumbered[key] for key in keys],
        }
        if names and not named:
            group["param_names"] = [names[key] for key in keys]
        groups.append(group)
    entries = {renumbered.get(key, key): held for key, held in state["state"].items() if key in renumbered or key not in known}
    return {**state, "state": entries, "param_groups": groups}


def _settings(
    saved: Layout, sources: list[int], number: int, ignore: Collection[str], handed: dict[tuple[int, str], Any], wanted: Layout
) -> dict[str, Any]:
    first = sources[0]
    for index in sources[1:]:
        ours, theirs = saved.settings[first], saved.settings[index]
        for key in settings.differing(ours, theirs, ignore):
            raise InvalidArgument(
                _differ(key, saved, first, index, (ours.get(key), theirs.get(key)), number)
                + f"; keep them apart in the optimizer, or take its own with ignore=('{key}',)"
            )
    # Tensors are written into: what the target does not share must not be shared by what it loads.
    held = {}
    for key, value in saved.settings[first].items():
        if key in ignore:
            continue
        own = wanted.settings[number].get(key)
        sharer = id(own) if isinstance(own, torch.Tensor) else -number - 1
        fresh = isinstance(value, torch.Tensor) and handed.get((first, key), sharer) != sharer
        handed.setdefault((first, key), sharer)
        held[key] = value.clone() if fresh else value
    return {**wanted.settings[number], **held}


def _schedulers(states: Any, sources: list[list[int]], saved: Layout, wanted: Layout, per_group: Collection[str]) -> Any:
    def pick(path: str, values: Sequence[Any]) -> list[Any]:
        used: set[int] = set()
        picked = []
        for number, members in enumerate(sources):
            refusal = lambda one, odd, number=number: _differ(  # noqa: E731
                f"the scheduler's {path}", saved, one, odd, (values[one], values[odd]), number
            )
            value = schedulers.agreed(values, members, refusal)
            picked.append(value.clone() if isinstance(value, torch.Tensor) and members[0] in used else value)
            used.add(members[0])
        return picked

    def regrouped(state: Any) -> Any:
        return schedulers.regroup_state(state, len(saved.keys), len(wanted.keys), pick, per_group)

    if isinstance(states, list | tuple):
        return type(states)(map(regrouped, states))
    return regrouped(states)
