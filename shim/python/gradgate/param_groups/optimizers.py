"""Merging the groups of an optimizer that exists, with its state and its schedulers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from ..errors import InvalidArgument, Refused
from . import merging, origin, schedulers, settings
from .report import Report

# These keep flat buffers by group besides, and have groups that are not the user's.
_OWN_GROUPS = ("deepspeed", "megatron", "colossalai")


def _check(optimizer: Any, per_group: Collection[str] | None) -> None:
    kind = type(optimizer).__name__
    if not isinstance(getattr(optimizer, "param_groups", None), list) or not hasattr(optimizer, "state"):
        raise InvalidArgument(f"{kind} is no torch optimizer; for groups that are not yet in one there is merge()")
    if type(optimizer).__module__.partition(".")[0] in _OWN_GROUPS:
        raise Refused(f"{kind} keeps its own buffers for each group; give merge()'s groups to the optimizer it is made from")
    for name, held in vars(optimizer).items():
        if isinstance(held, torch.optim.Optimizer) and held.param_groups is not optimizer.param_groups:
            raise Refused(f"{kind} keeps other groups in its {name}; give merge()'s groups when making it")
    if per_group is None and not type(optimizer).__module__.startswith("torch.optim"):
        held = schedulers.looks_per_group(optimizer, len(optimizer.param_groups), {"param_groups", "state", "defaults"})
        if held is not None:
            raise Refused(
                f"{kind}.{held} has as many entries as there are parameter groups: give merge()'s groups when making the optimizer, or "
                "per_group=() if it has nothing to do with them"
            )


def _check_shared_tensors(groups: list[dict[str, Any]], live: schedulers.Live) -> None:
    """A scheduler writes into such a tensor once for each group that has it: all the same, or the last one stays."""
    owner: dict[int, int] = {}
    held = live.settings()
    harmless = live.writes_at_once()
    for index, group in enumerate(groups):
        for key, value in settings.of_group(group).items():
            if not isinstance(value, torch.Tensor) or owner.setdefault(id(value), index) == index:
                continue
            if not harmless or settings.differing(held[owner[id(value)]], held[index], ()):
                raise InvalidArgument(
                    f"groups {owner[id(value)]} and {index} share one tensor as {key}, into which the scheduler writes once for each: "
                    f"merging would change what it becomes; give each group its own ({key}.clone()) before the scheduler is made"
                )


def _begun(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> dict[str, Any]:
    """torch's fused SGD fails where some tensors of a group have their momentum and others have not."""
    if not (isinstance(optimizer, torch.optim.SGD) and group.get("fused") and group.get("momentum")):
        return {}
    return {"(momentum begun)": all(optimizer.state.get(tensor, {}).get("momentum_buffer") is not None for tensor in group["params"])}


def merge_optimizer(
    optimizer: torch.optim.Optimizer,
    *given: Any,
    ignore: Collection[str] = (),
    frozen: merging.Frozen = "exclude",
    per_group: Collection[str] | None = None,
) -> Report:
    """Merges the optimizer's groups in place, and the per-group lists of its schedulers with them.

    `optimizer.param_groups` stays the same list, and a merged group the dict of its first; state stays as it is. torch's schedulers are
    found by themselves, others are `given`. Groups that are alike now and whose schedulers will treat them differently stay apart. A
    frozen tensor that has state stays in; the other frozen ones leave unless `frozen="keep"`, and would have to be added again to be
    trained. `ignore`: as merge() has it. `per_group`: attributes of other people's schedulers that hold one value for each group; () says
    that there are none.

    Call it between steps. Errors, with nothing changed: InvalidArgument for bad arguments and for schedulers that do not fit; Refused for
    optimizers that keep groups of their own.
    """
    merging.check_choices(ignore, frozen)
    _check(optimizer, per_group)
    groups = optimizer.param_groups
    live = schedulers.Live(optimizer, given, per_group)
    if live.names:
        _check_shared_tensors(groups, live)
    members = [member for index, group in enumerate(groups) for member in merging.members_of(index, group)]
    out = {
        id(held.tensor) for held in members if frozen == "exclude" and not held.tensor.requires_grad and held.tensor not in optimizer.state
    }
    old = [settings.of_group(group) for group in groups]
    later = [{**held, **_begun(optimizer, group)} for held, group in zip(live.settings(), groups, strict=True)]
    merged = merging.combine(old, members, ignore, out, later)
    notes = [f"schedulers merged with it: {', '.join(live.names)}"] if live.names else []
    report = merged.report(tuple(notes))

    kept_lists = live.kept([part[0] for part in merged.partition])
    origin.remember([member.tensor for member in members], [member.group for member in members])
    new = []
    for part, held, group in zip(merged.partition, merged.settings, merged.members, strict=True):
        kept = groups[part[0]]
        kept["params"] = [member.tensor for member in group]
        if "param_names" in kept:
            kept["param_names"] = [member.name for member in group]
        for key in settings.of_group(kept).keys() - held.keys():
            del kept[key]
        new.append(kept)
    groups[:] = new
    for attributes, key, value in kept_lists:
        attributes[key] = value
    return report
