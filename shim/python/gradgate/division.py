"""What gradients are divided by, beyond the mean over ranks that the wrappers leave; and the sums that this needs.

Every refusal here comes from values that all ranks share, so that all refuse.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from . import checkpoint_kept
from .ledger import Refused

if TYPE_CHECKING:
    from .checkpoint_kept import Kept
    from .job import Job
    from .ledger import Verdict
    from .window import Window

MAX_SCALARS = 16
_ITEMS, _ACTIVE, _WITHOUT_ITEMS, _DIGEST, _NAMED, _FIRST = range(6)
FACTS = _DIGEST  # that stand before what sync.mean was given


def sums(job: Job, window: Window) -> list[float]:
    """[items, active ranks, …] over all ranks; sets the means of the window's scalars. A collective."""
    kept = window.kept
    done = checkpoint_kept.since_kept(window)
    active = done.active or (kept is not None and kept.active_here)
    means, out = gather_scalars(job, window, [float(done.items), float(active), float(done.without_items)])
    if kept is not None:
        out[_ITEMS] += kept.items
        out[_WITHOUT_ITEMS] += kept.without_items
        if means is not None:
            means = means or by_name(sorted(kept.means), out)
            means = {n: added(means.get(n), kept.means.get(n)) for n in means | kept.means}
    if means is None:
        job.means = {}
    elif out[_NAMED] > 0 or means:  # empty where this rank gave no names
        job.means = {name: total / count for name, (total, count) in means.items() if count}
    return out


def gather_scalars(job: Job, window: Window, facts: list[float]) -> tuple[dict[str, tuple[float, float]] | None, list[float]]:
    """What sync.mean was given, as (total, count) over all ranks, None where ranks gave different names; and the sums of [facts, …]. The
    window's own are taken. A collective."""
    names = sorted(window.scalars)
    digest = _digest(names)
    totals = [float(window.scalars[name][0]) for name in names]
    counts = [float(window.scalars[name][1]) for name in names]
    pad = [0.0] * (MAX_SCALARS - len(names))
    own = [*facts, digest, float(bool(names)), *totals, *pad, *counts, *pad]
    window.scalars.clear()
    out = own if job.agreement is None else job.agreement.sum(own)
    if names and out[_DIGEST] != digest * out[_NAMED]:
        job.ledger.warn("means_differ", f"sync.mean: the ranks gave different names; this rank gave {', '.join(names)}. There are no means")
        return None, out
    return by_name(names, out), out


def _digest(names: list[str]) -> float:
    return float(zlib.crc32("\n".join(names).encode())) if names else 0.0


def by_name(names: list[str], out: list[float]) -> dict[str, tuple[float, float]]:
    """(total, count) of these names, sorted; {} if they are not what ranks gave."""
    if out[_NAMED] == 0 or out[_DIGEST] != _digest(names) * out[_NAMED]:
        return {}
    return {name: (out[_FIRST + i], out[_FIRST + MAX_SCALARS + i]) for i, name in enumerate(names)}


def added(one: tuple[float, float] | None, other: tuple[float, float] | None) -> tuple[float, float]:
    (a, n), (b, m) = one or (0.0, 0.0), other or (0.0, 0.0)
    return a + b, n + m


def _scales_own(job: Job, verdict: Verdict) -> bool:
    """Whether each rank scales what it brings by its own number of micro-steps: they differ, and nothing has been reduced before."""
    unequal = verdict.min_micro_steps != verdict.max_micro_steps
    return unequal and job.mode == "window" and all(adapter.late_alone for adapter in job.driven)


def scale_own(job: Job, window: Window, verdict: Verdict, divisor: int) -> None:
    """Before a late reduction. A rank that has reduced in its backward had a full window, whose factor is 1."""
    if divisor and window.micro_steps and _scales_own(job, verdict):
        multiply(job, divisor / window.micro_steps)


def refuse_unknown_shares(window: Window, verdict: Verdict) -> None:
    """Of a flush with a divisor, whose factor is each rank's own where they brought different numbers."""
    job, kept = window.job, window.kept
    alike = verdict.min_micro_steps == verdict.max_micro_steps
    if kept is not None and verdict.max_divisor and not (kept.equal and alike):
        raise Refused(
            f"window {job.ledger.window_index}: flush(divisor={verdict.max_divisor}) where ranks brought different numbers of micro-steps, "
            "and sync.state_dict() has summed a part of them: each rank's share cannot be scaled by its own number any more. Call flush() "
            "without divisor, and scale the losses by the window's size (sync.micro_batches), or use items="
        )


def scale(window: Window, verdict: Verdict, totals: list[float] | None, divisor: int) -> None:
    """Multiplies gradients, once, and adds what a checkpoint has kept aside."""
    job, kept = window.job, window.kept
    world = float(job.agreement.world if job.agreement is not None else 1)
    factor = own = _flush_factor(job, verdict, divisor, kept)
    if totals is not None and (window.any_items or totals[_ITEMS] > 0):
        if totals[_ITEMS] <= 0:
            where = f"window {job.ledger.window_index} has no items on any rank"
            raise Refused(f"{where}; give items= with each micro-step, and do not step")
        if totals[_WITHOUT_ITEMS] > 0:
            where = (
                f"window {job.ledger.window_index}: {totals[_WITHOUT_ITEMS]:.0f} of {totals[_ACTIVE]:.0f} ranks have micro-steps without"
            )
            raise Refused(f"{where} items beside some with: their losses are not of one kind; give items= with each, or with none")
        factor *= world / totals[_ITEMS]
        own = factor
    elif totals is not None and job.options.divide == "active":
        active = world / max(totals[_ACTIVE], 1.0)
        factor *= active
        own *= active if kept is None or kept.active_share is None else kept.active_share
    if kept is None:
        multiply(job, factor)
    else:
        kept.finish(job, factor, own)


def multiply(job: Job, factor: float) -> None:
    checkpoint_kept.multiply(job.parameters, factor)
    for adapter in job.adapters if factor != 1.0 else ():
        for gradient in adapter.held():
            gradient.mul_(factor)


def flush_mended(window: Window, divisor: int) -> None:
    """A flush of a window that a guard has ended: nothing is left to agree on but what all ranks know."""
    verdict, kept = window.verdict, window.kept
    if divisor and verdict.min_micro_steps == verdict.max_micro_steps and (kept is None or kept.equal):
        multiply(window.job, divisor / (verdict.max_micro_steps + (kept.unseen if kept is not None else 0)))


def _flush_factor(job: Job, verdict: Verdict, divisor: int, kept: Kept | None) -> float:
    """A flush's divisor is part of the ballot: all ranks rescale by the same factor."""
    unseen = kept.unseen if kept is not None else 0
    largest, brought, fewest = max(divisor, verdict.max_divisor), verdict.max_micro_steps + unseen, verdict.min_micro_steps + unseen
    if largest == 0 or brought in (0, largest) or (not unseen and _scales_own(job, verdict)):
        return 1.0
    if fewest != brought or verdict.min_divisor != largest:
        raise Refused(
            f"window {job.ledger.window_index}: flush(divisor={largest}) needs the same call and as many micro-steps on all ranks; "
            f"they brought {fewest} to {brought}, with divisors {verdict.min_divisor} to {largest} (0: a step, no flush). "
            "Scale the losses by the window's size (sync.micro_batches), or use items="
        )
    return largest / brought
