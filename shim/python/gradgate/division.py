"""What gradients are divided by, beyond the mean over ranks that the wrappers leave; and the sums that this needs.

Every refusal here comes from values that all ranks share, so that all refuse.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import torch

from .ledger import Refused

if TYPE_CHECKING:
    from .job import Job
    from .ledger import Verdict
    from .window import Window

MAX_SCALARS = 16
_ITEMS, _ACTIVE, _WITHOUT_ITEMS, _DIGEST, _NAMED, _FIRST = range(6)


def sums(job: Job, window: Window) -> list[float]:
    """[items, active ranks, …] over all ranks; sets the means of the window's scalars. A collective."""
    names = sorted(window.scalars)
    digest = float(zlib.crc32("\n".join(names).encode())) if names else 0.0
    totals = [float(window.scalars[name][0]) for name in names]
    counts = [float(window.scalars[name][1]) for name in names]
    pad = [0.0] * (MAX_SCALARS - len(names))
    active = window.micro_steps > window.skips
    facts = [
        float(window.items),
        float(active),
        float(active and window.item_steps < window.micro_steps - window.skips),
        digest,
        float(bool(names)),
    ]
    own = [*facts, *totals, *pad, *counts, *pad]
    window.scalars.clear()
    out = own if job.agreement is None else job.agreement.sum(own)
    if names and out[_DIGEST] != digest * out[_NAMED]:
        job.means = {}
        job.ledger.warn("means_differ", f"sync.mean: the ranks gave different names; this rank gave {', '.join(names)}. There are no means")
    elif out[_NAMED] > 0:  # empty where this rank gave no names
        job.means = {n: out[_FIRST + i] / c for i, n in enumerate(names) if (c := out[_FIRST + MAX_SCALARS + i])}
    return out


def _scales_own(job: Job, verdict: Verdict) -> bool:
    """Whether each rank scales what it brings by its own number of micro-steps: they differ, and nothing has been reduced before."""
    unequal = verdict.min_micro_steps != verdict.max_micro_steps
    return unequal and job.mode == "window" and all(adapter.late_alone for adapter in job.driven)


def scale_own(job: Job, window: Window, verdict: Verdict, divisor: int) -> None:
    """Before a late reduction. A rank that has reduced in its backward had a full window, whose factor is 1."""
    if divisor and window.micro_steps and _scales_own(job, verdict):
        multiply(job, divisor / window.micro_steps)


def scale(job: Job, verdict: Verdict, totals: list[float] | None, divisor: int, any_items: bool) -> None:
    """Multiplies gradients, once."""
    world = float(job.agreement.world if job.agreement is not None else 1)
    factor = _flush_factor(job, verdict, divisor)
    if totals is not None and (any_items or totals[_ITEMS] > 0):
        if totals[_ITEMS] <= 0:
            where = f"window {job.ledger.window_index} has no items on any rank"
            raise Refused(f"{where}; give items= with each micro-step, and do not step")
        if totals[_WITHOUT_ITEMS] > 0:
            where = (
                f"window {job.ledger.window_index}: {totals[_WITHOUT_ITEMS]:.0f} of {totals[_ACTIVE]:.0f} ranks have micro-steps without"
            )
            raise Refused(f"{where} items beside some with: their losses are not of one kind; give items= with each, or with none")
        factor *= world / totals[_ITEMS]
    elif totals is not None and job.options.divide == "active":
        factor *= world / max(totals[_ACTIVE], 1.0)
    multiply(job, factor)


def multiply(job: Job, factor: float) -> None:
    gradients: list[Any] = [p.grad for p in job.parameters if p.grad is not None]
    local = [g.to_local() if hasattr(g, "to_local") else g for g in gradients]  # DTensors beside tensors: no one operator takes both
    if factor != 1.0 and local:
        torch._foreach_mul_(local, factor)


def flush_mended(job: Job, verdict: Verdict, divisor: int) -> None:
    """A flush of a window that a guard has ended: nothing is left to agree on but what all ranks know."""
    if divisor and verdict.min_micro_steps == verdict.max_micro_steps:
        multiply(job, divisor / verdict.max_micro_steps)


def _flush_factor(job: Job, verdict: Verdict, divisor: int) -> float:
    """A flush's divisor is part of the ballot: all ranks rescale by the same factor."""
    largest, brought = max(divisor, verdict.max_divisor), verdict.max_micro_steps
    if largest == 0 or brought in (0, largest) or _scales_own(job, verdict):
        return 1.0
    if verdict.min_micro_steps != brought or verdict.min_divisor != largest:
        raise Refused(
            f"window {job.ledger.window_index}: flush(divisor={largest}) needs the same call and as many micro-steps on all ranks; "
            f"they brought {verdict.min_micro_steps} to {brought}, with divisors {verdict.min_divisor} to {largest} (0: a step, no flush). "
            "Scale the losses by the window's size (sync.micro_batches), or use items="
        )
    return largest / brought
