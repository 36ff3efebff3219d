"""Finds DistributedDataParallel and the older replicate in a model."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

from .base import Adapter
from .ddp import Ddp
from .replicate import Replicate, state_of


def find(model: torch.nn.Module) -> list[Adapter]:
    """Outer ones first, as modules() walks. A compiled module shows what it wraps."""
    found: list[Adapter] = []
    for module in model.modules():
        if isinstance(module, DistributedDataParallel):
            found.append(Ddp(module))
        elif (state := state_of(module)) is not None:
            found.append(Replicate(module, state))
    return found
