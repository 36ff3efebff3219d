"""Which parameter of a checkpoint is which of an optimizer, whose groups are others. What cannot be told for sure is refused."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Hashable, Iterable
from typing import Any

from ..errors import InvalidArgument
from . import merging, origin, settings
from .layout import Layout
from .report import listed

GIVE_ORDER = "give order=, the parameters as the checkpoint's optimizer had them"
Found = list[Hashable | None]


def _share_names(saved: Layout, target: Layout) -> bool:
    """Not where the one calls its parameters otherwise than the other, as wrappers do."""
    return not set(saved.flat_names or ()).isdisjoint(target.flat_names or ())


def fits(saved: Layout, target: Layout) -> bool:
    return saved.sizes == target.sizes and (saved.names == target.names or not _share_names(saved, target))


def match(saved: Layout, target: Layout, order: Iterable[Any] | None, ignore: Collection[str]) -> list[Found]:
    """For each group of `target`, the keys of its parameters in `saved`; None for one that is frozen and not there.

    Errors: InvalidArgument where that cannot be told, or where the saved state is of another shape.
    """
    if order is not None:
        found: Found | None = _by_order(saved, target, order)
    else:
        found = _by_name(saved, target) or _by_origin(saved, target) or _by_settings(saved, target, ignore)
    keys = iter(found or [])
    grouped = [[next(keys) for _ in group] for group in target.keys]
    _check_shapes(saved, target, grouped)
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
    if not saved.flat_names or not target.flat_names or not _share_names(saved, target):
        return None
    keys = dict(zip(saved.flat_names, saved.flat, strict=True))
    missing = [name for name, key in zip(target.flat_names, target.flat, strict=True) if name not in keys and key not in target.idle]
    if missing:
        raise InvalidArgument(f"the checkpoint has no parameter {listed(missing)}; load it into the model it was saved with")
    left = [name for name in keys.keys() - set(target.flat_names) if saved.state.get(keys[name])]
    if left:
        raise InvalidArgument(
            f"the checkpoint holds state for {listed(sorted(left))}, which the optimizer does not have: is it frozen now? "
            "Give the optimizer those parameters too, or drop their state from the checkpoint"
        )
    return [keys.get(name) for name in target.flat_names]


def _by_origin(saved: Layout, target: Layout) -> Found | None:
    known = origin.of(target.flat_tensors) if target.flat_tensors else None
    if known is None or list(known.sizes) != saved.sizes:
        return None
    return [saved.flat[place] for place in known.order]


def _by_settings(saved: Layout, target: Layout, ignore: Collection[str]) -> Found:
    """Both merged in the same way have their parameters in the same order."""
    pairs = itertools.product((saved, saved.without_idle()), (target, target.without_idle()))
    fitting = next(((ours, theirs) for ours, theirs in pairs if len(ours.flat) == len(theirs.flat)), None)
    if fitting is None:
        raise InvalidArgument(
            f"the checkpoint has {len(saved.flat)} parameters and the optimizer {len(target.flat)}; load it into the model it was saved "
            "with, or say with order= which parameters it was saved with"
        )
    saved, used = fitting
    ours, theirs = saved.merged(ignore), used.merged(ignore)
    if ours.sizes != theirs.sizes:  # what the target alone has, as names, cannot have kept the saved groups apart
        theirs = used.merged({*ignore, *_keys(used)} - _keys(saved))
    if ours.sizes != theirs.sizes:
        raise InvalidArgument(
            f"the checkpoint's groups merge into {len(ours.sizes)} of {listed([*map(str, ours.sizes)])} parameters, the optimizer's into "
            f"{len(theirs.sizes)} of {listed([*map(str, theirs.sizes)])}, so which is which cannot be told; {GIVE_ORDER}"
        )
    _check_same_order(ours, theirs, ignore)
    found = dict(zip(theirs.flat, ours.flat, strict=True))
    return [found.get(key) for key in target.flat]


def _keys(groups: Layout) -> set[str]:
    return {key for held in groups.settings for key in held}


def _check_same_order(saved: Layout, target: Layout, ignore: Collection[str]) -> None:
    """Settings may have changed since; that they changed places means that the groups did."""
    for key in _keys(saved) - set(ignore):
        ours, theirs = ([settings.fingerprint(group.get(key)) for group in side.settings] for side in (saved, target))
        if ours != theirs and set(ours) == set(theirs) and all(ours.count(value) == theirs.count(value) for value in set(ours)):
            place = next(index for index, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
            held, wanted = (settings.shown(side.settings[place].get(key)) for side in (saved, target))
            raise InvalidArgument(
                f"the checkpoint has the same values of {key} as the optimizer in another order (merged group {place}: {held}, not "
                f"{wanted}), so which is which cannot be told; {GIVE_ORDER}"
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
