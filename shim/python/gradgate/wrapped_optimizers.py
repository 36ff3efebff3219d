"""Optimizers that frameworks wrap: Lightning's, Fabric's and Accelerate's look like the optimizer itself, and are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


def innermost(optimizer: Any) -> Any:
    """What a framework has wrapped so that it looks like the optimizer itself: steps and their hooks are the inner one's.

    Lightning's wrappers have a zero_grad of their own, past the inner one's, and are made to use that one."""
    inner = optimizer
    while isinstance(held := _held(inner), torch.optim.Optimizer) and held.param_groups is inner.param_groups:
        if "_optimizer" in vars(inner):
            vars(inner)["zero_grad"] = _zero_grad_of(held)
        inner = held
    return inner


def _held(optimizer: Any) -> Any:
    own = getattr(optimizer, "__dict__", {})
    return own.get("_optimizer", own.get("optimizer"))


def _zero_grad_of(optimizer: torch.optim.Optimizer) -> Callable[..., None]:
    def zero_grad(*args: Any, **kwargs: Any) -> None:
        optimizer.zero_grad(*args, **kwargs)

    return zero_grad
