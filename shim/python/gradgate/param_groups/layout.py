"""The parameter groups of a checkpoint and of an optimizer, and which parameter of the one is which of the other."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import InvalidArgument
from . import merging, origin, settings
from .report import listed

# State that torch's optimizers keep in the shape of the parameter.
ELEMENTWISE = frozenset(
    "exp_avg exp_avg_sq max_exp_avg_sq exp_inf momentum_buffer sum square_avg grad_avg acc_delta prev step_size ax".split()
)

GIVE_ORDER = "give order=, the parameters as the checkpoint's optimizer had them"


@dataclass(frozen=True)
class Layout:
    """Groups in order: their settings, and for each of their parameters its key in the state dict, and where there are any its name and
    tensor."""

    settings: list[dict[str, Any]]
    keys: list[list[Hashable]]
    names: list[list[str]] | None
    tensors: list[list[torch.Tensor]] | None
    state: Mapping[Hashable, Any]

    @property
    def sizes(self) -> list[int]:
        return [len(keys) for keys in self.keys]

    @property
    def flat(self) -> list[Hashable]:
        return [key for keys in self.keys for key in keys]

    def called(self, group: int, place: int = 0) -> str:
        return repr(self.names[group][place]) if self.names else f"its parameter {place}"

    def shape(self, key: Hashable, tensor: torch.Tensor | None = None) -> tuple[int, ...] | None:
        if tensor is not None:
            return tuple(tensor.shape)
        held = self.state.get(key)
        shapes = (
            [tuple(value.shape) for name, value in held.items() if name in ELEMENTWISE and isinstance(value, torch.Tensor)] if held else []
        )
        return shapes[0] if shapes else None


def of_state_dict(state: Any) -> Layout | None:
    """None where it is not an optimizer's state dict."""
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
    return Layout([settings.of_group(group) for group in groups], keys, names, None, state["state"])


def of_optimizer(optimizer: Any) -> Layout:
    groups = [merging.members_of(index, group) for index, group in enumerate(optimizer.param_groups)]
    numbers = iter(range(sum(map(len, groups))))
    names = [[member.name or "" for member in group] for group in groups]
    return Layout(
        [settings.of_group(group) for group in optimizer.param_groups],
        [[next(numbers) for _ in group] for group in groups],
        names if all(map(all, names)) else None,
        [[member.tensor for member in group] for group in groups],
        {},
    )


def merged(saved: Layout, ignore: Collection[str]) -> Layout:
    """As merge() would group it."""
    parts = settings.partition(saved.settings, ignore)
    return Layout(
        [saved.settings[part[0]] for part in parts],
        [[key for index in part for key in saved.keys[index]] for part in parts],
        [[name for index in part for name in saved.names[index]] for part in parts] if saved.names else None,
        None,
        saved.state,
    )


def _share_names(saved: Layout, target: Layout) -> bool:
    """Not where the one calls its parameters otherwise than the other, as wrappers do."""
    if saved.names is None or target.names is None:
        return False
    return not {name for names in saved.names for name in names}.isdisjoint(name for names in target.names for name in names)


def fits(saved: Layout, target: Layout) -> bool:
    return saved.sizes == target.sizes and (saved.names == target.names or not _share_names(saved, target))


def match(saved: Layout, target: Layout, order: Iterable[Any] | None, ignore: Collection[str]) -> list[list[Hashable]]:
    """For each group of `target`, the keys of its parameters in `saved`. Errors: InvalidArgument where that cannot be told for sure."""
    found = _by_order(saved, target, order) if order is not None else None
    found = found or _by_name(saved, target) or _by_origin(saved, target) or _by_settings(saved, target, ignore)
    keys = iter(found)
    return [[next(keys) for _ in group] for group in target.keys]


def _by_order(saved: Layout, target: Layout, order: Iterable[Any]) -> list[Hashable]:
    given = list(order)
    wanted: list[Hashable]
    if given and all(isinstance(held, str) for held in given):
        if target.names is None:
            raise InvalidArgument("order gives names and the optimizer's parameters have none; give the tensors")
        places = {name: place for place, name in enumerate(given)}
        wanted = [name for group in target.names for name in group]
    else:
        if target.tensors is None:
            raise InvalidArgument("order gives tensors and the target is a state dict; give the optimizer as target")
        places = {}
        for place, member in enumerate(merging.read(given, {})[1]):
            places.setdefault(id(member.tensor), place)
        wanted = [id(tensor) for group in target.tensors for tensor in group]
    flat = saved.flat
    if len(places) != len(flat):
        raise InvalidArgument(
            f"order has {len(places)} parameters and the checkpoint {len(flat)}; give those it was saved with, frozen ones too"
        )
    missing = sum(held not in places for held in wanted)
    if missing:
        raise InvalidArgument(f"order lacks {missing} of the {len(wanted)} parameters that the optimizer has")
    return [flat[places[held]] for held in wanted]


def _by_name(saved: Layout, target: Layout) -> list[Hashable] | None:
    if saved.names is None or target.names is None or not _share_names(saved, target):
        return None
    keys = {name: key for names, held in zip(saved.names, saved.keys, strict=True) for name, key in zip(names, held, strict=True)}
    wanted = [name for group in target.names for name in group]
    missing = [name for name in wanted if name not in keys]
    if missing:
        raise InvalidArgument(f"the checkpoint has no parameter {listed(missing)}; load it into the model it was saved with")
    left = [name for name in keys.keys() - set(wanted) if saved.state.get(keys[name])]
    if left:
        raise InvalidArgument(
            f"the checkpoint holds state for {listed(sorted(left))}, which the optimizer does not have: is it frozen now? "
            "Give the optimizer those parameters too, or drop their state from the checkpoint"
        )
    return [keys[name] for name in wanted]


def _by_origin(saved: Layout, target: Layout) -> list[Hashable] | None:
    known = origin.of([tensor for group in target.tensors for tensor in group]) if target.tensors else None
    if known is None or list(known.sizes) != saved.sizes:
        return None
    flat = saved.flat
    return [flat[place] for place in known.order]


def _without_stateless(saved: Layout) -> Layout:
    kept = [[bool(saved.state.get(key)) for key in keys] for keys in saved.keys]
    used = [index for index, flags in enumerate(kept) if any(flags)]
    keys = [[*itertools.compress(saved.keys[index], kept[index])] for index in used]
    names = [[*itertools.compress(saved.names[index], kept[index])] for index in used] if saved.names else None
    return Layout([saved.settings[index] for index in used], keys, names, None, saved.state)


def _by_settings(saved: Layout, target: Layout, ignore: Collection[str]) -> list[Hashable]:
    """Both merged in the same way have their parameters in the same order."""
    if sum(saved.sizes) != sum(target.sizes) and any(saved.state.values()):
        saved = _without_stateless(saved)  # frozen ones were never stepped
    if sum(saved.sizes) != sum(target.sizes):
        raise InvalidArgument(
            f"the checkpoint has {sum(saved.sizes)} parameters and the optimizer {sum(target.sizes)}; load it into the model it was saved "
            "with, or say with order= which parameters it was saved with"
        )
    keys = [{key for group in groups for key in group} for groups in (saved.settings, target.settings)]
    # What one side alone has, as a scheduler's initial_lr or a name, may or may not be what kept its groups apart.
    for in_saved, in_target in itertools.product((set[str](), keys[0] - keys[1]), (set[str](), keys[1] - keys[0])):
        ours, theirs = merged(saved, {*ignore, *in_saved}), settings.partition(target.settings, {*ignore, *in_target})
        sizes = [sum(target.sizes[index] for index in part) for part in theirs]
        if ours.sizes == sizes:
            break
    else:
        raise InvalidArgument(
            f"the checkpoint's groups merge into {len(ours.sizes)} of {listed([*map(str, ours.sizes)])} parameters, the optimizer's into "
            f"{len(sizes)} of {listed([*map(str, sizes)])}, so which is which cannot be told; {GIVE_ORDER}"
        )
    _check_same_order(ours, target, theirs, {*ignore, *in_saved, *in_target})
    begins = [0, *itertools.accumulate(target.sizes)]
    places = [place for part in theirs for index in part for place in range(begins[index], begins[index + 1])]
    found = dict(zip(places, ours.flat, strict=True))
    return [found[place] for place in range(len(places))]


def _check_same_order(ours: Layout, target: Layout, theirs: list[list[int]], ignore: Collection[str]) -> None:
    """Settings may have changed since; that they changed places means that the groups did."""
    for key in {key for group in ours.settings for key in group} - set(ignore):
        one = [settings.fingerprint(group.get(key)) for group in ours.settings]
        other = [settings.fingerprint(target.settings[part[0]].get(key)) for part in theirs]
        if one != other and set(one) == set(other) and all(one.count(value) == other.count(value) for value in set(one)):
            place = next(index for index, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
            saved, wanted = (settings.shown(held.get(key)) for held in (ours.settings[place], target.settings[theirs[place][0]]))
            raise InvalidArgument(
                f"the checkpoint has the same values of {key} as the optimizer in another order (merged group {place}: {saved}, not "
                f"{wanted}), so which is which cannot be told; {GIVE_ORDER}"
            )


def check_shapes(saved: Layout, target: Layout, found: list[list[Hashable]]) -> None:
    for number, keys in enumerate(found):
        for place, key in enumerate(keys):
            has = saved.shape(key)
            wants = target.shape(target.keys[number][place], target.tensors[number][place] if target.tensors else None)
            if has is not None and wants is not None and has != wants:
                raise InvalidArgument(
                    f"the state saved for parameter {key!r} is of shape {has}, and would go to {target.called(number, place)} of the "
                    f"optimizer's group {number}, of shape {wants}; {GIVE_ORDER}"
                )
