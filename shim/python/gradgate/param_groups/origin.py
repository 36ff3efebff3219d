"""In which order, and in which groups, a merge was given its tensors: what a checkpoint from before it numbers them by.

Held as an attribute of the tensors, not in the groups, which go into checkpoints; and not by weak references, which would keep
torch.utils.swap_tensors, and with it `.to()` of sharded models, from working. Plain values, since parameters are pickled. Setup only.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

KEPT = 4  # merges of a tensor, the latest
_ATTRIBUTE = "_gradgate_origins"  # [(name of the merge, where it stood first, tensors of each old group), …]


@dataclass(frozen=True)
class Origin:
    """`order[i]`: where the i-th of the asked tensors stood. `sizes`: of each old group, frozen ones included, repeated ones once."""

    order: tuple[int, ...]
    sizes: tuple[int, ...]


def remember(tensors: Sequence[torch.Tensor], groups: Sequence[int]) -> None:
    """`groups[i]` is the old group of `tensors[i]`."""
    first: dict[int, tuple[torch.Tensor, int]] = {}
    for tensor, group in zip(tensors, groups, strict=True):
        first.setdefault(id(tensor), (tensor, group))
    counts = Counter(group for _, group in first.values())
    sizes = tuple(counts[group] for group in range(max(groups) + 1))
    name = uuid.uuid4().hex
    for place, (tensor, _) in enumerate(first.values()):
        setattr(tensor, _ATTRIBUTE, [*_known(tensor), (name, place, sizes)][-KEPT:])


def _known(tensor: torch.Tensor) -> list[tuple[str, int, tuple[int, ...]]]:
    return getattr(tensor, _ATTRIBUTE, [])


def of(groups: Sequence[Sequence[torch.Tensor]]) -> list[Origin]:
    """Of each merge that all tensors went through and that can have made these groups, the latest first; the same origin once.

    A merge leaves each group's tensors in the order in which it was given them, and the groups in that of their first ones.
    """
    tensors = [tensor for group in groups for tensor in group]
    places = [{name: place for name, place, _ in _known(tensor)} for tensor in tensors]
    if not places:
        return []
    common = [(name, sizes) for name, _, sizes in reversed(_known(tensors[0])) if all(name in known for known in places)]
    found = dict.fromkeys(Origin(tuple(known[name] for known in places), sizes) for name, sizes in common)
    return [one for one in found if _made_by(one.order, [len(group) for group in groups])]


def _made_by(order: Sequence[int], sizes: Sequence[int]) -> bool:
    places = iter(order)
    groups = [[next(places) for _ in range(size)] for size in sizes if size]
    return all(group == sorted(group) for group in groups) and groups == sorted(groups)
