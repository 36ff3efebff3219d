"""When two parameter groups have the same settings.

A group's settings are all its keys but the parameters and their names, whichever the optimizer, its scheduler or the user put there.
Numbers are compared by value (1 is 1.0, 0.0 is not -0.0, NaN is NaN, True is not 1), tensors by value, type and device, functions by code
and what they captured, whatever else by its own equality, or by identity where it cannot be hashed.

A tensor is more than its value: schedulers write into it, so groups that hold one tensor together change together. Two groups with equal
but different tensors are alike only where both tensors belong to the groups that become one.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

import torch

from ..errors import InvalidArgument

OWN_KEYS = frozenset({"params", "param_names"})


def of_group(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in OWN_KEYS}


def tensor_fingerprint(value: torch.Tensor) -> Hashable:
    if value.requires_grad:  # its value is about to be learnt
        return ("tensor", id(value))
    try:
        held = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    except (RuntimeError, NotImplementedError):  # sparse, meta, quantized: not bytes in a row
        return ("tensor", id(value))
    return ("tensor", str(value.dtype), str(value.device), tuple(value.shape), held.numpy().tobytes())


def _function_fingerprint(value: types.FunctionType, inside: frozenset[int]) -> Hashable:
    captured: list[Hashable] = []
    for cell in value.__closure__ or ():
        try:
            captured.append(fingerprint(cell.cell_contents, inside))
        except ValueError:  # not assigned yet
            captured.append(("empty",))
    defaults = (fingerprint(value.__defaults__ or (), inside), fingerprint(value.__kwdefaults__ or {}, inside))
    return ("function", value.__code__, id(value.__globals__), tuple(captured), defaults, fingerprint(vars(value), inside))


def fingerprint(value: object, inside: frozenset[int] = frozenset()) -> Hashable:
    """Equal for values that mean the same to an optimizer or scheduler. `inside`: what this value is a part of."""
    if isinstance(value, torch.Tensor):
        return tensor_fingerprint(value)
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, float):
        return ("number", "nan") if math.isnan(value) else ("number", value, math.copysign(1.0, value))
    if isinstance(value, int):
        return ("number", value, 1.0 if value >= 0 else -1.0)
    if isinstance(value, Mapping | list | tuple | functools.partial | types.FunctionType):
        if id(value) in inside:  # it holds itself
            return ("itself", id(value))
        return _compound(value, inside | {id(value)})
    try:
        hash(value)
    except TypeError:
        return ("object", id(value))
    return (type(value), value)


def _compound(value: object, inside: frozenset[int]) -> Hashable:
    if isinstance(value, Mapping):
        return ("mapping", frozenset((fingerprint(key, inside), fingerprint(held, inside)) for key, held in value.items()))
    if isinstance(value, list | tuple):
        return ("sequence", tuple(fingerprint(held, inside) for held in value))
    if isinstance(value, functools.partial):
        return ("partial", fingerprint(value.func, inside), fingerprint(value.args, inside), fingerprint(value.keywords, inside))
    assert isinstance(value, types.FunctionType)
    return _function_fingerprint(value, inside)


def _tensors(value: object) -> list[torch.Tensor]:
    """A setting that is one, or that has some, as betas."""
    held = value if isinstance(value, list | tuple) else [value]
    return [one for one in held if isinstance(one, torch.Tensor)]


def partition(groups: Sequence[Mapping[str, Any]], ignore: Collection[str] = ()) -> list[list[int]]:
    """Indices of `groups` (settings, see of_group) that have the same settings, in order of first appearance."""
    kept = [{key: value for key, value in group.items() if key not in ignore} for group in groups]
    printed = [{key: fingerprint(value) for key, value in group.items()} for group in kept]
    entangled: set[int] = set()
    while True:
        classes: dict[Hashable, list[int]] = {}
        for index, group in enumerate(kept):
            bound = tuple(sorted((key, id(held)) for key, value in group.items() for held in _tensors(value) if id(held) in entangled))
            classes.setdefault((frozenset(printed[index].items()), bound), []).append(index)
        owners: dict[int, set[int]] = {}
        for number, members in enumerate(classes.values()):
            for held in (held for index in members for value in kept[index].values() for held in _tensors(value)):
                owners.setdefault(id(held), set()).add(number)
        found = {held for held, numbers_ in owners.items() if len(numbers_) > 1}
        if found <= entangled:
            return list(classes.values())
        entangled |= found


def differing(one: Mapping[str, Any], other: Mapping[str, Any], ignore: Collection[str]) -> dict[str, tuple[str, str]]:
    """The keys in which two groups' settings differ, with both values to read, "-" for none."""
    found = {}
    for key in {**one, **other}:
        if key in ignore or (key in one and key in other and fingerprint(one[key]) == fingerprint(other[key])):
            continue
        said = [shown(side[key]) if key in side else "-" for side in (one, other)]
        if said[0] == said[1]:  # they differ in what was cut off
            said = [repr(side[key]) if key in side else "-" for side in (one, other)]
        found[key] = (said[0], said[1])
    return found


def agreed(values: Sequence[Any], members: Sequence[int], refusal: Callable[[int, int], str]) -> Any:
    """The one value that all `members` have; else InvalidArgument with `refusal(first, odd)`."""
    first = fingerprint(values[members[0]])
    for index in members[1:]:
        if fingerprint(values[index]) != first:
            raise InvalidArgument(refusal(members[0], index))
    return values[members[0]]


def shown(value: object, limit: int = 40) -> str:
    """A setting as one reads it in a table or an error."""
    if isinstance(value, torch.Tensor):
        text = f"tensor({value.item():g})" if value.numel() == 1 else f"tensor of {tuple(value.shape)}"
    elif isinstance(value, float):
        text = f"{value:.6g}"
    elif isinstance(value, types.FunctionType):
        text = f"{value.__qualname__}()"
    else:
        text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
