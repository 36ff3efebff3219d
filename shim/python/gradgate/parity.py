"""A cheap hash of what replicas must hold equal: parameters, sampled by tensor and by element.

Parameters rather than gradients: they carry every difference that any earlier step left, and are at rest while a window runs.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import torch

from .adapters.base import Role

if TYPE_CHECKING:
    from .adapters.base import Adapter

_TENSORS = 8  # at most, spread over the model
_ELEMENTS = 4096  # of each, at most, spread over it


def sample(parameters: list[torch.nn.Parameter]) -> int:
    """A positive hash of the bytes of a sample of elements; synchronises with the device."""
    digest = 1
    step = max(1, len(parameters) // _TENSORS)
    with torch.no_grad():
        for parameter in parameters[::step]:
            flat = parameter.detach()
            flat = flat.to_local() if hasattr(flat, "to_local") else flat
            flat = flat.reshape(-1)
            stride = max(1, flat.numel() // _ELEMENTS)
            chosen = flat[::stride].contiguous().cpu()
            digest = zlib.crc32(chosen.view(torch.uint8).numpy().tobytes() if chosen.numel() else b"", digest)
    return digest + 1


def of_replicas(adapters: list[tuple[Adapter, list[torch.nn.Parameter]]], world: int) -> int:
    """Of parameters that every rank of the job holds; 0 where there are none (sharded ones differ by design)."""
    digest = 0
    for adapter, parameters in adapters:
        groups = adapter.groups()
        if len(groups) == 1 and groups[0].role == Role.DP and groups[0].process_group.size() == world:
            digest = (digest * 31 + sample(parameters)) % (1 << 62)
    return digest


_COLUMN_BITS = 24


def of_shards(adapters: list[tuple[Adapter, list[torch.nn.Parameter]]]) -> int:
    """Of parameters whose shard other ranks hold as well, with the lowest of those ranks; 0 where there are none."""
    for adapter, parameters in adapters:
        for group in adapter.groups():
            if group.role == Role.REPLICATE:
                ranks = torch.distributed.get_process_group_ranks(group.process_group)
                return sample(parameters) << _COLUMN_BITS | min(ranks)
    return 0


def odd_ranks(told: list[int]) -> str:
    """Of every rank's of_shards: who differs from most of those that hold the same shard; empty if nobody does."""
    columns: dict[int, dict[int, list[int]]] = {}
    for rank, value in enumerate(told):
        columns.setdefault(value % (1 << _COLUMN_BITS), {}).setdefault(value >> _COLUMN_BITS, []).append(rank)
    parts = []
    for by_digest in columns.values():
        if len(by_digest) > 1:
            groups = sorted(by_digest.values(), key=len, reverse=True)
            parts.append("; ".join(f"ranks {ranks}" for ranks in groups))
    return " and ".join(f"the same shard differs between {part}" for part in parts)
