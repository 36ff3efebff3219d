"""In which order, and in which groups, a merge was given its tensors: what a checkpoint from before it numbers them by.

Held beside the tensors, not in the groups, which go into checkpoints. It ends with the tensors.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.utils.weak import WeakTensorKeyDictionary

_tokens = itertools.count()
_origins = (
    WeakTensorKeyDictionary()
)  # tensor: (the merge, where it stood first, sizes of the old groups); setup only, under the interpreter's lock


@dataclass(frozen=True)
class Origin:
    """`order[i]` is where the tensor i of the asked ones stood, `sizes` the tensors of each old group, frozen ones included, repeated ones
    once."""

    order: list[int]
    sizes: tuple[int, ...]


def remember(tensors: Sequence[torch.Tensor], groups: Sequence[int]) -> None:
    """`groups[i]` is the old group of `tensors[i]`."""
    token = next(_tokens)
    first: dict[int, tuple[torch.Tensor, int]] = {}
    for tensor, group in zip(tensors, groups, strict=True):
        first.setdefault(id(tensor), (tensor, group))
    counts = Counter(group for _, group in first.values())
    sizes = tuple(counts[group] for group in range(max(groups) + 1))
    for place, (tensor, _) in enumerate(first.values()):
        _origins[tensor] = (token, place, sizes)


def of(tensors: Sequence[torch.Tensor]) -> Origin | None:
    """None where not all of them went through one merge."""
    known = [_origins.get(tensor) for tensor in tensors]
    if not known or any(entry is None or entry[0] != known[0][0] for entry in known):
        return None
    return Origin([entry[1] for entry in known], known[0][2])
