"""Options with an effect and without; ranks that are no longer the same."""

from __future__ import annotations

from typing import Any

import gradgate
import rows
import torch
import trainers as t
from rows import Says, row

AR, RS, AG = "all_reduce", "reduce_scatter", "all_gather"


# Options that have an effect, and those that have none.


def with_options(rank: int, model: Any, windows: int = 2, **options: Any) -> dict[str, Any]:
    optimizer = t.sgd(model)
    with gradgate.attach(model, optimizer, accumulate=4, **options) as sync, t.Watch(sync) as watch:
        found = t.drive(sync, watch, model, optimizer, t.data(rank) * windows)
        size = sync.stats()["bytes"]
    return watch.seen(gradients=[t.one(b) for b in found], bytes=size)


@row(gradients=[55.0] * 2, bytes=2 * 2 * 1024 * 2)
def wire_of_half_the_bytes(rank: int, world: int) -> dict[str, Any]:
    return with_options(rank, t.ddp(t.Units(2, size=1024, dtype=torch.float32)), wire="bf16")


@row(gradients=[55.0] * 2, bytes=2 * 2 * 1024 * 2)
def wire_of_half_the_bytes_unwrapped(rank: int, world: int) -> dict[str, Any]:
    return with_options(rank, t.Units(2, size=1024, dtype=torch.float32), wire="fp16")


@row(gradients=[55.0] * 3, gradient={AR: 1 + 4 + 4})
def buckets_of_a_given_size(rank: int, world: int) -> dict[str, Any]:
    """Of 8 KiB each, the size of one of four parameters; the first reduction uses what DDP begins with."""
    return with_options(rank, t.ddp(t.Units(4, size=1024)), windows=3, bucket_mb=8 / 1024)


@row(gradients=[55.0] * 2, told=Says("bucket_fsdp2"))
def bucket_size_without_effect(rank: int, world: int) -> dict[str, Any]:
    return with_options(rank, t.fsdp(), mode="window", bucket_mb=1)


@row(gradients=[55.0] * 2, told=Says("wire_fsdp2"))
def wire_without_effect(rank: int, world: int) -> dict[str, Any]:
    return with_options(rank, t.fsdp(), mode="window", wire="bf16")


@row(gradients=[55.0] * 2, gradient={AR: 8}, suppressed=0, reductions=8, windows_mismatched=0)
def every_micro_step_as_asked(rank: int, world: int) -> dict[str, Any]:
    return with_options(rank, t.ddp(), mode="every_micro_step")


# Ranks that are no longer the same.


def diverged(rank: int, **options: Any) -> dict[str, Any]:
    """Rank 1's weights move by themselves after the first window."""
    model = t.ddp()
    optimizer = t.sgd(model)
    with gradgate.attach(model, optimizer, accumulate=2, parity_every=1, **options) as sync, rows.refused(gradgate.Disagreement) as refusal:
        for i, c in enumerate(t.data(rank)):
            with sync.micro_step():
                model(c).backward()
            if sync.boundary:
                t.finish(optimizer, model)
                if i == 1 and rank == 1:
                    with torch.no_grad():
                        next(model.parameters()).add_(1.0)
        told = dict(sync.stats()["told"])
    return {"refusal": refusal[0], "told": told.get("parity", "") if not refusal[0] else ""}


@row(refusal="", told=Says("window 1", "no longer the same"))
def diverged_parameters_are_told(rank: int, world: int) -> dict[str, Any]:
    return diverged(rank)


@row(refusal=Says("Disagreement", "no longer the same"))
def diverged_parameters_raise_on_all_when_strict(rank: int, world: int) -> dict[str, Any]:
    return diverged(rank, strict=True)
