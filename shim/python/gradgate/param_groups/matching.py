"""Which parameter of a checkpoint is which of an optimizer, whose groups are others. What cannot be told for sure is refused."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Hashable, Iterable
from typing import Any

from ..errors import InvalidArgument
from . import merging, origin, settings
from .layout import Layout
from .report import listed

_LOGGER = logging.getLogger("gradgate")
GIVE_ORDER = "give order=, the parameters as the checkpoint's optimizer had them"
Found = list[Hashable | None]


def check_fits(saved: Layout, target: Layout, ignore: Collection[str]) -> None:
    """What fits by numbers alone. Errors: InvalidArgument where it is of other shapes, or its groups come in another order."""
    _check_shapes(saved, target, saved.keys)
    if not _share_names(saved, target):
        _check_same_order(saved, target, ignore)


def _share_names(saved: Layout, target: Layout) -> bool:
    """Not where the one calls its parameters otherwise than the other, as wrappers do, nor where a name is that of two."""
    ours, theirs = saved.flat_names or [], target.flat_names or []
    if len(set(ours)) < len(ours) or len(set(theirs)) < len(theirs):
        return False
    return not set(ours).isdisjoint(theirs)


def fits(saved: Layout, target: Layout) -> bool:
    return saved.sizes == target.sizes and (saved.names == target.names or not _share_names(saved, target))


def match(saved: Layout, target: Layout, order: Iterable[Any] | None, ignore: Collection[str]) -> list[Found]:
    """For each group of `target`, the keys of its parameters in `saved`; None for one that is frozen and not there.

    Errors: InvalidArgument where that cannot be told, or where the saved state is of another shape.
    """
    if order is not None:
        found = _by_order(saved, target, order)
    elif saved.state and target.state is saved.state:  # the checkpoint itself, grouped anew
        found = [*target.flat]
    else:
        found = _by_name(saved, target) or _by_origin(saved, target) or _by_settings(saved, target, ignore)
    _check_nothing_is_lost(saved, found)
    keys = iter(found)
    grouped = [[next(keys) for _ in group] for group in target.keys]
    _check_shapes(saved, target, grouped)
    if order is not None:
        _check_settings_fit(saved, target, found, ignore)
    return grouped


def _by_order(saved: Layout, target: Layout, order: Iterable[Any]) -> Found:
    given = list(order)
    places: dict[Hashable, int] = {}
    wanted: list[Hashable]
    if given and all(isinstance(held, str) for held in given):
        if target.flat_names is None:
            raise InvalidArgument("order gives names and the optimizer's parameters have none; give the tensors")
        places = {name: place for place, name in enumerate(given)}
        wanted = [*target.flat_names]
    else:
        if target.flat_tensors is None:
            raise InvalidArgument("order gives tensors and the target is a state dict; give the optimizer as target")
        for member in merging.read(given, {})[1]:
            places.setdefault(id(member.tensor), len(places))
        wanted = [id(tensor) for tensor in target.flat_tensors]
    flat = saved.flat
    if len(places) != len(flat):
        raise InvalidArgument(
            f"order has {len(places)} parameters and the checkpoint {len(flat)}; give those it was saved with, frozen ones too"
        )
    missing = [held for held, key in zip(wanted, target.flat, strict=True) if held not in places and key not in target.idle]
    if missing:
        raise InvalidArgument(f"order lacks {len(missing)} of the {len(wanted)} parameters that the optimizer has")
    return [flat[places[held]] if held in places else None for held in wanted]


def _by_name(saved: Layout, target: Layout) -> Found | None:
    if not saved.flat_names or not target.flat_names:
        return None
    if not _share_names(saved, target):
        _LOGGER.warning(
            "param_groups: the checkpoint's names (%s, …) and the optimizer's (%s, …) have none in common, or not each its own: "
            "parameters are matched by their order instead",
            *(saved.flat_names[0], target.flat_names[0]),
            extra={"reason": "names_differ"},
        )
        return None
    keys = dict(zip(saved.flat_names, saved.flat, strict=True))
    missing = [name for name, key in zip(target.flat_names, target.flat, strict=True) if name not in keys and key not in target.idle]
    if missing:
        raise InvalidArgument(
            f"the checkpoint has no parameter {listed(missing)}; load it into the model it was saved with. If it was frozen then, and left "
            "out: merge(…, frozen='keep') keeps such ones"
        )
    return [keys.get(name) for name in target.flat_names]


def _by_origin(saved: Layout, target: Layout) -> Found | None:
    fitting = {known.order for known in _origins(target) if list(known.sizes) == saved.sizes}
    if len(fitting) != 1:
        return None
    return [saved.flat[place] for place in fitting.pop()]


def _origins(target: Layout) -> list[origin.Origin]:
    return origin.of(target.tensors) if target.tensors else []


def _as_given(target: Layout) -> tuple[Layout, bool]:
    """A group for each parameter, in the order before merge(), and whether that is known; else as it stands."""
    orders = {known.order for known in _origins(target) if set(known.sizes) == {1}}
    if len(orders) != 1:
        return target, False
    places = sorted(range(len(target.flat)), key=orders.pop().__getitem__)
    return target.singles(places), True


def _by_settings(saved: Layout, target: Layout, ignore: Collection[str]) -> Found:
    """What merge() makes of groups that it has not seen is in a known order; of what it has made, not."""
    pairs = itertools.product((saved, saved.without_idle()), (target, target.without_idle()))
    fitting = next(((ours, theirs) for ours, theirs in pairs if len(ours.flat) == len(theirs.flat)), None)
    if fitting is None:
        raise InvalidArgument(
            f"the checkpoint has {len(saved.flat)} parameters and the optimizer {len(target.flat)}; load it into the model it was saved "
            "with, say with order= which parameters that had, or, from torch.distributed.checkpoint, load it by dcp_layout()"
        )
    for side, used, what in zip((saved, target), fitting, ("the checkpoint's", "the optimizer's"), strict=True):
        if used is not side:
            _LOGGER.warning(
                "param_groups: %d of %s parameters are taken for frozen ones that the other has not; name them to be sure",
                *(len(side.flat) - len(used.flat), what),
                extra={"reason": "frozen_assumed"},
            )
    saved, (used, known) = fitting[0], _as_given(fitting[1])
    in_target = ignore
    ours, theirs = saved.merged(ignore), used.merged(ignore)
    if ours.sizes != theirs.sizes:  # what the target alone has, as names, cannot have kept the saved groups apart
        in_target = {*ignore, *_keys(used)} - _keys(saved)
        theirs = used.merged(in_target)
    if ours.sizes != theirs.sizes:
        raise InvalidArgument(
            f"the checkpoint's groups merge into {len(ours.sizes)} of {listed([*map(str, ours.sizes)])} parameters, the optimizer's into "
            f"{len(theirs.sizes)} of {listed([*map(str, theirs.sizes)])}, so which is which cannot be told; {GIVE_ORDER}"
        )
    for side, ignored, what in ((saved, ignore, "the checkpoint's"), (used, in_target, "the optimizer's")):
        parts = settings.partition(side.settings, ignored) if side is saved or not known else []
        joined = next((part for part in parts if len(part) > 1 and any(side.sizes[index] > 1 for index in part)), None)
        if joined is not None:
            raise InvalidArgument(
                f"{what} groups {listed([*map(str, joined)])}, of {listed([str(side.sizes[index]) for index in joined])} parameters, have "
                f"the same settings and may have been merged before, so which parameter is which cannot be told; {GIVE_ORDER}"
            )
    _check_same_order(ours, theirs, ignore)
    found = dict(zip(theirs.flat, ours.flat, strict=True))
    return [found.get(key) for key in target.flat]


def _keys(groups: Layout) -> set[str]:
    return {key for held in groups.settings for key in held}


def _check_settings_fit(saved: Layout, target: Layout, found: Found, ignore: Collection[str]) -> None:
    """That nobody gave the order of the other side: settings of single parameters would have changed places."""
    own = [group for group, keys in zip(target.settings, target.keys, strict=True) for _ in keys]
    pairs = [(saved.settings[saved.group_of[key]], held) for key, held in zip(found, own, strict=True) if key is not None]
    ours, theirs = (Layout([pair[side] for pair in pairs], [], None, None, {}) for side in (0, 1))
    _check_same_order(ours, theirs, ignore)


def _check_same_order(saved: Layout, target: Layout, ignore: Collection[str]) -> None:
    """Settings may have changed since; that they changed places means that the groups did."""
    for key in _keys(saved) - set(ignore):
        ours, theirs = ([settings.fingerprint(group.get(key)) for group in side.settings] for side in (saved, target))
        if ours != theirs and set(ours) == set(theirs) and all(ours.count(value) == theirs.count(value) for value in set(ours)):
            place = next(index for index, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
            held, wanted = (settings.shown(side.settings[place].get(key)) for side in (saved, target))
            raise InvalidArgument(
                f"the checkpoint has the same values of {key} as the optimizer in another order (at place {place}: {held}, not "
                f"{wanted}), so which is which cannot be told; {GIVE_ORDER}"
            )


def _check_nothing_is_lost(saved: Layout, found: Found) -> None:
    kept = set(found)
    names = dict(zip(saved.flat, saved.flat_names or [], strict=False))
    left = [str(names.get(key, f"parameter {key}")) for key in saved.flat if key not in kept and saved.stepped(key)]
    if left:
        raise InvalidArgument(
            f"the checkpoint holds state for {listed(left)}, which the optimizer does not have: is it frozen now? "
            "Give the optimizer those parameters too, or drop their state from the checkpoint"
        )


def _check_shapes(saved: Layout, target: Layout, found: list[Found]) -> None:
    for number, keys in enumerate(found):
        for place, key in enumerate(keys):
            has, wants = saved.shape_in_state(key), target.shape(number, place)
            if has is not None and wants is not None and has != wants:
                raise InvalidArgument(
                    f"the state saved for parameter {key!r} is of shape {has}, and would go to {target.called(number, place)} of the "
                    f"optimizer's group {number}, of shape {wants}; {GIVE_ORDER}"
                )
