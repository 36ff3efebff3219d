"""In which order, and in which groups, a merge was given its tensors: what a checkpoint from before it numbers them by.

Held beside the tensors, not in the groups, which go into checkpoints. It ends with the tensors.
"""

from __future__ import annotations

import itertools
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
    """`order[i]` is where the tensor i of the asked ones stood, `sizes` the tensors of each old group, frozen and repeated ones
    included."""

    order: list[int]
    sizes: tuple[int, ...]


def remember(tensors: Sequence[torch.Tensor], groups: Sequence[int]) -> None:
    """`groups[i]` is the old group of `tensors[i]`."""
    token = next(_tokens)
    counts = [0] * (max(groups) + 1)
    for group in groups:
        counts[group] += 1
    sizes = tuple(counts)
    for place, tensor in enumerate(tensors):
        known = _origins.get(tensor)
        if known is None or known[0] != token:
            _origins[tensor] = (token, place, sizes)


def of(tensors: Sequence[torch.Tensor]) -> Origin | None:
    """None where not all of them went through one merge."""
    known = [_origins.get(tensor) for tensor in tensors]
    if not known or any(entry is None or entry[0] != known[0][0] for entry in known):
        return None
    return Origin([entry[1] for entry in known], known[0][2])
