"""How a window ends on this rank, once its ballot is read: late reduction, who differs, gradients thrown away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .adapters.base import Unreduced
from .ledger import Disagreement, GradgateError, Refused, Vote

if TYPE_CHECKING:
    from .adapters.base import Adapter
    from .ledger import Verdict
    from .window import Window

UNEVEN = (
    "gradgate: every micro-step reduces in this job, so a rank that brings fewer of them leaves the others waiting in a backward; where "
    "windows may differ use mode window: attach(mode=…), or gradgatectl policy set JOB mode=window"
)
_TAG_SHIFT = 32  # of what a checkpoint has summed, in a ballot's `staged`; below it: windows discarded after their boundary


def probes(window: Window) -> list[tuple[int, int]]:
    """Of a few gradients: which tensor, how often written."""
    return [(id(p.grad), p.grad._version if p.grad is not None else 0) for p in window.job.probes]


def refuse_without_backward(window: Window) -> None:
    """A boundary that nothing was reduced in, and that nobody skipped: its backward will run outside, on gradients already reduced."""
    job = window.job
    if window.agreement is None or not job.enforcing or not job.tap.seeing or window.voted or window.discarding:
        return
    if any(adapter.flag_read == "backward" and adapter.kind != "plain" for adapter in window.adapters):
        return  # FSDP reduces outside, too
    if probes(window) != window.probes_before:
        return  # the script's own no_sync
    if window.skips == window.skips_before and not any(job.reduced(adapter, True) or adapter.began() for adapter in window.adapters):
        why = (
            "the boundary micro-step ended and no backward has run in it: put the backward inside `with sync.micro_step():`, "
            "or say sync.skip() where there is none"
        )
        window.ledger.fail(why)
        raise Refused(f"window {window.ledger.window_index}: {why}")


def prepare_to_be_late(window: Window, in_time: bool) -> None:
    """Before this rank's ballot: whatever would make it refuse afterwards, it refuses now, while others wait where they have a deadline."""
    for adapter in window.adapters:
        adapter.catch_up()
    try:
        for adapter in window.adapters if window.micro_steps and not window.discarding else ():
            if not window.job.reduced(adapter, in_time):
                adapter.check_late()
    except Unreduced as unreduced:
        window.ledger.fail(str(unreduced))
        raise


def reduce_the_rest(window: Window, verdict: Verdict, in_time: bool) -> None:
    """Issues what the wrappers would have issued, where they have not. Raises Unreduced, after telling the other ranks."""
    if window.discarded and not verdict.any_contribute:
        return
    waiting = [a for a in window.adapters if not window.job.reduced(a, in_time)]
    if not waiting:
        return
    _warn_without_backward(window, waiting)
    tap = window.job.tap
    window.ledger.late_begin()
    tap.active(window.ledger)  # several attachments may share a group
    tap.late(True)
    try:
        for adapter in waiting:
            _check_together(adapter, verdict)
            adapter.late()
    except Unreduced as unreduced:
        window.ledger.fail(str(unreduced))
        raise
    finally:
        tap.late(False)
        tap.active(None)


def _check_together(adapter: Adapter, verdict: Verdict) -> None:
    if not adapter.late_alone and verdict.any_contribute and not verdict.all_contribute:
        raise Unreduced(
            f"{adapter.kind}: this rank has not reduced, and others have, in the backward of their boundary micro-step; all ranks "
            "must bring the same micro-steps, and run a backward in the last one"
        )


def _warn_without_backward(window: Window, waiting: list[Adapter]) -> None:
    if window.leave is not None or window.micro_steps <= window.skips or any(adapter.pending() for adapter in waiting):
        return
    if all(p.grad is None for adapter in waiting for p in adapter.parameters()):
        window.ledger.warn(
            "no_backward",
            f"window {window.ledger.window_index}: {window.micro_steps} micro-steps left no gradient; is the backward inside "
            "`with sync.micro_step():`? A micro-step without one calls sync.skip()",
        )


def vote(window: Window, *, contributes: bool, divisor: int = 0) -> Vote:
    """What this rank says of its window."""
    job, kept = window.job, window.kept
    return Vote(
        contributes=contributes,
        skipped=window.skips,
        discard=window.discarding,
        sums=job.always_sums or window.any_items or bool(window.scalars) or (kept is not None and bool(kept.means)),
        divisor=divisor,
        parity=job.parity(),
        headroom_bytes=job.headroom(),
        staged=job.discards + (kept.tag << _TAG_SHIFT if kept is not None else 0),
    )


def name_missing(window: Window, error: BaseException) -> None:
    """A collective has failed, it seems: who did not come, and why where that is known."""
    others = window.ledger.missing() if window.agreement is not None else ""
    if others:
        error.add_note(f"gradgate: window {window.ledger.window_index}: {others}")


def tell_failure(window: Window, error: BaseException) -> None:
    """The boundary cannot be tried again: its collectives have begun. Says who is missing, and tells the others why this rank is."""
    if not isinstance(error, GradgateError | Unreduced):
        name_missing(window, error)
    window.ledger.fail(f"{type(error).__name__} in the boundary micro-step: {error}")


def tell_differences(window: Window, verdict: Verdict) -> None:
    """Ranks that differ are named on all of them; strict raises Disagreement on all."""
    replicas = window.job.differing_replicas()
    unlike = verdict.incompatible or not verdict.staged_equal
    if window.agreement is None or not (verdict.differs or unlike or replicas):
        return
    unequal = verdict.unequal and not window.job.variable
    parity = verdict.parity_differs or bool(replicas)
    what = [window.agreement.describe()] if verdict.differs or unlike else []
    what += [replicas] if replicas else []
    text = f"window {window.ledger.window_index}: ranks differ: {'; '.join(what)}"
    if parity:
        text += ". Their parameters are no longer the same: a step used gradients that were not reduced, or they never were equal"
    if not verdict.staged_equal and verdict.staged >> _TAG_SHIFT:
        text += ". Some ranks hold a part of this window that a checkpoint has summed, and others another one or none: "
        text += "load it, and call zero_grad(), on all ranks alike"
    elif not verdict.staged_equal:
        text += ". Some ranks discarded a window after it was reduced, and others stepped on it (staged: how many)"
    if unlike or (window.job.strict and (unequal or parity)):
        window.ledger.fail(text)
        raise Disagreement(text)
    window.ledger.warn("parity" if parity else "ranks_disagree" if unequal else "ranks_skipped", text)


def throw_away(window: Window) -> None:
    """Discards the closed window, on this rank. The next ballot tells if others did not."""
    window.discarded, window.at_boundary = True, False
    window.job.discards += 1
    drop(window)
    window.publish()


def drop(window: Window) -> None:
    """Throws the window's gradients away, deferred ones included."""
    if window.kept is not None:
        window.kept.drop()
    for adapter in window.adapters:
        adapter.discard()
    for parameter in window.job.parameters:
        parameter.grad = None
