"""sync.step(): reduce, unscale, clip, step, schedule, zero, in the one order that is right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from .sync import Sync


def _clip(sync: Sync, max_norm: float) -> None:
    """By one norm over all that is attached; FSDP1's flat parameters need the wrapper's own."""
    job = sync._job
    for adapter in job.adapters:
        if (nothing := adapter.no_effect("max_norm", max_norm)) is not None:
            raise ValueError(f"sync.step(max_norm={max_norm}): {nothing.text}")
    flat = [a.module for a in job.adapters if a.kind == "fsdp1"]
    for module in flat:
        module.clip_grad_norm_(max_norm)  # type: ignore[operator]
    if not flat:
        torch.nn.utils.clip_grad_norm_(job.parameters, max_norm)


def step(
    sync: Sync,
    scaler: Any,
    scheduler: Any,
    max_norm: float | None,
    closure: Callable[[], Any] | None,
) -> bool:
    job = sync._job
    job.check_open("sync.step()")
    if not sync.boundary:
        return False
    if not job.optimizers:
        raise ValueError("sync.step() needs the optimizer: gradgate.attach(model, optimizer, …)")
    if scaler is not None and not scaler.is_enabled():
        scaler = None
    if scaler is not None and closure is not None:
        raise ValueError("sync.step(): torch's GradScaler does not support closures; give one or the other")
    if max_norm is not None:
        if scaler is not None:
            for optimizer in job.optimizers:
                scaler.unscale_(optimizer)
        _clip(sync, max_norm)
    stepped = True
    if scaler is None:
        for optimizer in job.optimizers:
            if closure is None:
                optimizer.step()
            else:
                optimizer.step(closure)
    else:
        before = scaler.get_scale()
        for optimizer in job.optimizers:
            scaler.step(optimizer)
        scaler.update()
        stepped = scaler.get_scale() >= before
    if scheduler is not None and stepped:
        for one in scheduler if isinstance(scheduler, list | tuple) else (scheduler,):
            one.step()
    for optimizer in job.optimizers:
        optimizer.zero_grad()
    return stepped
