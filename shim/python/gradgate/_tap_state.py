"""What the Python tap knows of ledgers and of collectives in flight."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch

from ._tap_operators import Op, Traffic
from .adapters.base import Role

if TYPE_CHECKING:
    from .tap import LedgerLike


class How(Enum):
    """How the end of a collective is learned; see shim/torch/completions.h."""

    FUTURE = 0  # its future calls back, when it completes
    POLL = 1  # by asking the Work; it is held until then
    UNKNOWN = 2


@dataclass(slots=True)
class Binding:
    ledger: LedgerLike
    handle: int
    roles: dict[str, list[Role]] = field(default_factory=dict)  # by group; one group may have several
    sizes: frozenset[int] | None = None
    armed: bool = False  # a callback waits for the next gradient collective


@dataclass(slots=True)
class Issue:
    """A collective that was counted as issued."""

    binding: Binding
    role: Role
    op: Op
    traffic: Traffic
    time_ns: int
    how: How


class Thread(threading.local):
    late = False
    inside = False  # a collective that is being dispatched


def tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for inner in value for tensor in tensors_in(inner)] if isinstance(value, list | tuple) else []


def bytes_of(tensor: torch.Tensor) -> int:
    if tensor.layout is torch.sparse_coo:
        return bytes_of(tensor._indices()) + bytes_of(tensor._values())
    return tensor.numel() * tensor.element_size()
