"""Checkpoints of optimizers and schedulers, from one grouping of the parameters to another."""

from __future__ import annotations

import logging
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, TypeVar

from ..errors import InvalidArgument
from . import flattened, layout, matching, merging
from .grouping import Grouping
from .layout import Layout
from .matching import Found
from .report import listed

S = TypeVar("S")
_LOGGER = logging.getLogger("gradgate")


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
    optimizer was made with, where that is not enough. Frozen parameters may be missing on either side. `ignore`: as merge() had it; these
    settings come from the target. `per_group`: further keys of schedulers with one value for each group.

    What fits already, or is not recognised, comes back as the same object. Inputs are not changed, and the result shares their tensors.
    Errors: InvalidArgument where parameters cannot be matched, and where groups that become one were saved with different settings.
    """
    merging.check_choices(ignore, "keep")
    if flattened.is_flattened(target):
        flattened.refuse_as_target(scheduler_states)
        return optimizer_state, scheduler_states
    wanted = _target(target)
    if flattened.is_flattened(optimizer_state):
        return optimizer_state, flattened.regroup(optimizer_state, scheduler_states, wanted, ignore, per_group)
    saved = layout.of_state_dict(optimizer_state)
    if saved is None:
        _LOGGER.warning(
            "param_groups: %s is no optimizer's state dict, with 'state' and 'param_groups'; it is passed on as it is",
            f"a dict with {listed([*map(repr, optimizer_state)])}"
            if isinstance(optimizer_state, Mapping)
            else type(optimizer_state).__name__,
            extra={"reason": "not_recognised"},
        )
        return optimizer_state, scheduler_states
    wanted = wanted or saved.merged(ignore)
    if order is None and matching.fits(saved, wanted):
        matching.check_fits(saved, wanted, ignore)
        same = Grouping(saved, wanted, [[index] for index in range(len(saved.keys))])
        return optimizer_state, same.schedulers(scheduler_states, per_group)
    found = matching.match(saved, wanted, order, ignore)
    grouping = Grouping.of(saved, wanted, found)
    return _rebuilt(optimizer_state, grouping, found, ignore), grouping.schedulers(scheduler_states, per_group)


def _target(target: Any) -> Layout | None:
    if target is None:
        return None
    if hasattr(target, "param_groups"):
        return layout.of_optimizer(target)
    wanted = layout.of_state_dict(target)
    if wanted is None:
        raise InvalidArgument(f"target is {type(target).__name__}; give the optimizer that will load the checkpoint, or its state dict")
    return wanted


def _rebuilt(state: Mapping[str, Any], grouping: Grouping, found: list[Found], ignore: Collection[str]) -> dict[str, Any]:
    saved, target = grouping.saved, grouping.target
    by_name = isinstance(saved.flat[0], str)
    names = dict(zip(saved.flat, saved.flat_names or [], strict=False))
    all_named = not by_name and saved.names is not None and (target.names is not None or all(None not in keys for keys in found))
    new_key: dict[Hashable, Hashable] = {}
    groups = []
    place = 0
    for number, (keys, held) in enumerate(zip(found, grouping.settings(ignore), strict=True)):
        params: list[Hashable] = []
        for within, key in enumerate(keys):
            own = target.names[number][within] if target.names else str(place)
            params.append((own if key is None else key) if by_name else place)
            new_key[key] = params[-1]
            place += 1
        group = {**held, "params": params}
        if all_named:
            group["param_names"] = [names[key] if key is not None else (target.names or [])[number][at] for at, key in enumerate(keys)]
        groups.append(group)
    known = set(saved.flat)
    entries = {new_key.get(key, key): held for key, held in state["state"].items() if key in new_key or key not in known}
    return {**state, "state": entries, "param_groups": groups}
