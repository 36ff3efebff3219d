"""Parameter groups for building an optimizer: one for each set of settings.

An optimizer works through its groups one after the other, and its foreach and fused implementations handle one group at a time: with a
group for each tensor they handle one tensor at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ..errors import InvalidArgument
from . import origin, settings
from .report import Report

Frozen = Literal["exclude", "keep"]
Parameter = torch.Tensor | tuple[str, torch.Tensor]


class Groups(list[dict[str, Any]]):
    """Parameter groups as any torch optimizer takes them, and what was done to make them."""

    report: Report


@dataclass
class Member:
    """One tensor of one old group."""

    tensor: torch.Tensor
    name: str | None
    group: int
    place: int

    def __str__(self) -> str:
        return self.name or f"parameter {self.place} of group {self.group}, {tuple(self.tensor.shape)}"


def check_choices(ignore: Collection[str], frozen: str) -> None:
    if isinstance(ignore, str):
        raise InvalidArgument(f"ignore is the string {ignore!r}; give a collection of keys, as ({ignore!r},)")
    if own := settings.OWN_KEYS.intersection(ignore):
        raise InvalidArgument(f"ignore names {', '.join(sorted(own))}, which is what is merged; give keys of settings, as 'name'")
    if frozen not in ("exclude", "keep"):
        raise InvalidArgument(f"frozen={frozen!r}; it is 'exclude' or 'keep'")


def _members(group: int, params: object) -> list[Member]:
    if isinstance(params, torch.Tensor):
        params = [params]
    if isinstance(params, set | frozenset):
        raise InvalidArgument(f"the parameters of group {group} are a set, whose order changes between runs; give a list")
    if isinstance(params, str | Mapping) or not isinstance(params, Iterable):
        raise InvalidArgument(f"the parameters of group {group} are {type(params).__name__}; give tensors, or (name, tensor) pairs")
    members = []
    for place, held in enumerate(params):
        named = isinstance(held, tuple) and len(held) == 2 and isinstance(held[0], str)
        name, tensor = held if named else (None, held)
        if not isinstance(tensor, torch.Tensor):
            raise InvalidArgument(f"parameter {place} of group {group} is {type(held).__name__}; give a tensor, or a (name, tensor) pair")
        members.append(Member(tensor, name, group, place))
    return members


def members_of(index: int, group: Mapping[str, Any]) -> list[Member]:
    held = _members(index, group["params"])
    if (names := group.get("param_names")) is not None:  # as an optimizer holds them
        if len(names) != len(held):
            raise InvalidArgument(f"group {index} has {len(held)} parameters and {len(names)} param_names; give a name for each")
        for member, name in zip(held, names, strict=True):
            member.name = name
    return held


def read(params_or_groups: object, defaults: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[Member]]:
    """The settings of each old group, and all their tensors in order."""
    if isinstance(params_or_groups, torch.nn.ParameterList):
        params_or_groups = list(params_or_groups)
    if isinstance(params_or_groups, torch.nn.Module):
        raise InvalidArgument(
            f"{type(params_or_groups).__name__} is a module; give its parameters(), named_parameters(), or parameter groups"
        )
    if isinstance(params_or_groups, torch.Tensor):
        params_or_groups = [params_or_groups]
    if isinstance(params_or_groups, set | frozenset | str | Mapping) or not isinstance(params_or_groups, Iterable):
        kind = type(params_or_groups).__name__
        raise InvalidArgument(f"{kind} is not a list of parameters or parameter groups; give model.parameters(), or a list of group dicts")
    given = list(params_or_groups)
    if not given:
        raise InvalidArgument("no parameters: the list is empty, or an iterator that was used up; give it anew")
    if not isinstance(given[0], Mapping):
        return [dict(defaults)], _members(0, given)
    groups, members = [], []
    for index, group in enumerate(given):
        if not isinstance(group, Mapping) or "params" not in group:
            raise InvalidArgument(f"group {index} is not a dict with 'params'; give group dicts alone, or parameters alone")
        held = members_of(index, group)
        groups.append({**defaults, **settings.of_group(group)})
        members += held
    return groups, members


def _without_repeats(members: list[Member], old: list[dict[str, Any]], ignore: Collection[str]) -> tuple[list[Member], list[str]]:
    kept: dict[int, Member] = {}
    repeated = []
    for member in members:
        first = kept.setdefault(id(member.tensor), member)
        if first is member:
            continue
        repeated.append(str(member))
        differ = settings.differing(old[first.group], old[member.group], ignore)
        if differ:
            said = ", ".join(f"{key} {theirs} ≠ {ours}" for key, (theirs, ours) in differ.items())
            raise InvalidArgument(
                f"{member} is the same tensor as {first}, with other settings ({said}); a tensor has one set of settings: leave one out"
            )
    return list(kept.values()), repeated


@dataclass
class Merged:
    """The new groups' members and settings, not yet in the form of anything."""

    members: list[list[Member]]
    settings: list[dict[str, Any]]
    kept: list[Member]
    old: list[dict[str, Any]]
    compared: list[dict[str, Any]]
    partition: list[list[int]]
    frozen: list[str]
    repeated: list[str]

    def report(self, notes: tuple[str, ...] = ()) -> Report:
        return Report(
            before=len(self.old),
            members=tuple(map(tuple, self.partition)),
            parameters=sum(map(len, self.members)),
            elements=sum(member.tensor.numel() for group in self.members for member in group),
            sizes=tuple(map(len, self.members)),
            settings=tuple(self.settings),
            frozen=tuple(self.frozen),
            repeated=tuple(self.repeated),
            notes=notes,
            _compared=tuple(self.compared),
        )


def combine(
    old: list[dict[str, Any]],
    members: list[Member],
    ignore: Collection[str],
    leave_out: Collection[int],
    later: list[dict[str, Any]] | None = None,
) -> Merged:
    """`leave_out`: ids of tensors. `later`: further settings by old group that keep groups apart and are not theirs, as a scheduler's."""
    unique, repeated = _without_repeats(members, old, ignore)
    frozen = [str(member) for member in unique if id(member.tensor) in leave_out]
    kept = [member for member in unique if id(member.tensor) not in leave_out]
    if not kept:
        raise InvalidArgument(f"none of the {len(unique)} parameters asks for a gradient; unfreeze some, or give frozen='keep'")
    own: dict[int, list[Member]] = {}
    for member in kept:
        own.setdefault(member.group, []).append(member)
    in_use = sorted(own)
    compared = [{**group, **held} for group, held in zip(old, later or [{}] * len(old), strict=True)]
    kinds = {index: frozenset(_kind(member.tensor) for member in own[index]) for index in in_use}
    if len(set(kinds.values())) > 1:
        for index, kind in kinds.items():
            compared[index]["(tensors)"] = " and ".join(sorted(kind))
    parts = [[in_use[place] for place in part] for part in settings.partition([compared[index] for index in in_use], ignore)]
    held = []
    for part in parts:
        lost = {key for index in part for key in settings.differing(old[part[0]], old[index], ())}
        held.append({key: value for key, value in old[part[0]].items() if key not in lost})
    joined = [_joined([own[index] for index in part]) for part in parts]
    merged = Merged(joined, held, kept, old, compared, parts, frozen, repeated)
    _check_unchanged(merged, ignore)
    return merged


def _joined(groups: list[list[Member]]) -> list[Member]:
    """In their order; of merged groups, in the order that merging them at once would have given."""
    members = [member for group in groups for member in group]
    known = origin.of([[member.tensor for member in group] for group in groups]) if len(groups) > 1 else []
    orders = {one.order for one in known if set(one.sizes) == {1}}
    if len(orders) != 1 or all(len(group) == 1 for group in groups):
        return members
    return [member for _, member in sorted(zip(orders.pop(), members, strict=True), key=lambda pair: pair[0])]


def _kind(tensor: torch.Tensor) -> str:
    """torch's foreach and fused implementations take no DTensors beside others, and leave a group with a tensor of the CPU beside a GPU's
    to the for-loop."""
    mesh = getattr(tensor, "device_mesh", None)
    return str(tensor.device) if mesh is None else f"{tensor.device}, sharded over {mesh}"


def _check_unchanged(merged: Merged, ignore: Collection[str]) -> None:
    """Each tensor is in one new group, whose settings are those it had."""
    placed = [(member, number) for number, group in enumerate(merged.members) for member in group]
    assert sorted(id(member.tensor) for member, _ in placed) == sorted(id(member.tensor) for member in merged.kept)
    for member, number in placed:
        assert not settings.differing(merged.old[member.group], merged.settings[number], ignore), str(member)


def merge(
    params_or_groups: Iterable[Parameter] | Iterable[dict[str, Any]],
    *,
    defaults: Mapping[str, Any] | None = None,
    ignore: Collection[str] = (),
    frozen: Frozen = "exclude",
) -> Groups:
    """Groups with the same settings as one, in order of first appearance: `AdamW(merge(groups), …)`.

    Takes what a torch optimizer takes: tensors, (name, tensor) pairs, or dicts with "params"; they are not changed. Every key counts as a
    setting, also the user's own: those in `ignore` do not keep groups apart, and a merged group loses such a key where its groups differ
    in it. A key that one group has and another has not is a difference, unless `defaults` (the optimizer's arguments) says what stands
    for it. Frozen tensors (requires_grad is False) are left out unless `frozen="keep"`, and a tensor given twice is kept once. `.report`
    says what was done.

    Errors: InvalidArgument where the input is nothing an optimizer could take, or gives one tensor two sets of settings.
    """
    check_choices(ignore, frozen)
    old, members = read(params_or_groups, defaults or {})
    names = [member for member in members if member.name is not None]
    if names and len(names) != len(members):
        bare = next(member for member in members if member.name is None)
        raise InvalidArgument(f"{bare} has no name, {names[0].name} has one; give (name, tensor) pairs for all, or for none")
    leave_out = {id(member.tensor) for member in members if frozen == "exclude" and not member.tensor.requires_grad}
    merged = combine(old, members, ignore, leave_out)
    origin.remember([member.tensor for member in members], [member.group for member in members])
    groups = Groups(
        {"params": [(member.name, member.tensor) if names else member.tensor for member in group], **held}
        for group, held in zip(merged.members, merged.settings, strict=True)
    )
    groups.report = merged.report()
    return groups
