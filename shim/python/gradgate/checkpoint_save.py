"""sync.state_dict(): where the run is; in the middle of a window all ranks meet, reduce what they have, and keep it aside."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from . import checkpoint_kept, checkpoint_names, division
from .adapters.base import Role, Unreduced
from .checkpoint_format import Saved
from .checkpoint_kept import Done, Kept, since_kept
from .checkpoint_meeting import Meeting
from .errors import Disagreement
from .ledger import Refused

if TYPE_CHECKING:
    from .agreement import Agreement
    from .job import Job
    from .window import Window

KINDS = ("ddp", "replicate", "fsdp2", "plain")  # whose reduced gradients are all in p.grad, shaped as parameters are
_MODES = ("every_micro_step", "window", "window_replica")
_AT_A_BOUNDARY = "save at a boundary, after the optimizer's step"


class Row(NamedTuple):
    """What a rank says when all meet: first what must be the same on all."""

    window: int
    mode: int
    tag: int  # of what it has aside already
    refuses: int
    discarding: int
    named: int  # whether sync.mean was called
    planned: int
    micro_steps: int
    skips: int
    items: int
    item_steps: int

    @property
    def done(self) -> Done:
        return Done(*self[-len(Done._fields) :])


def state_dict(job: Job) -> dict[str, Any]:
    """Collective inside a window, and with windows="variable" everywhere."""
    job.check_open("sync.state_dict()")
    window = idle_window(job, "sync.state_dict()")
    saved = Saved(windows=job.windows_before + job.ledger.window_index + window.closed, accumulate=job.accumulate, mode=job.mode)
    done = Done() if window.closed else Done.of(window)
    if not window.adapters:
        if done.micro_steps:
            why = "its wrappers are left alone" if job.left_alone else f"GRADGATE={job.enforcement} changes nothing"
            job.ledger.warn(
                "unsaved_window",
                f"{why}, so the open window's gradients are the script's own and not in sync.state_dict(): a run that loads it begins that "
                f"window anew. To lose nothing, {_AT_A_BOUNDARY}",
            )
        return saved.state()
    if not (done.micro_steps or job.variable):
        return saved.state()
    rows = _meet(job, window, done)
    if not any(row.micro_steps for row in rows):
        return saved.state()
    began = time.perf_counter_ns()
    discard = any(row.discarding for row in rows)
    kept = window.kept = _keep(job, window, rows, discard)
    window._wait_ns += time.perf_counter_ns() - began
    return saved._replace(
        ranks=tuple(kept.ranks),
        planned=tuple(kept.planned),
        discard=discard,
        means=dict(kept.means),
        gradients={name: gradient for name, (_, gradient) in kept.gradients.items()},
    ).state()


def idle_window(job: Job, what: str) -> Window:
    """The attachment's window, where nothing is in progress that would have to be finished first."""
    window = job.window
    assert window is not None
    window.settle()
    if window.inside:
        raise Refused(f"{what} inside a micro-step: its gradients are not complete. Leave the `with sync.micro_step():` block first")
    if any(other.inside for other in window._beside):
        raise Refused(f"{what} inside a micro-step of another attachment, on the same process group: leave it first")
    if window.closed and job.optimizers and not window.scaler_decided:
        raise Refused(f"{what} between a window's reduction and its step, whose gradients no checkpoint would hold: step first")
    return window


def _meet(job: Job, window: Window, done: Done) -> list[Row]:
    """What all ranks say. What one rank or all cannot do raises on all of them, and changes nothing."""
    why, kept, agreement = _why_not(job, window), window.kept, job.agreement
    if kept is not None:
        done = done.since(kept.base).plus(kept.ranks[job.rank])
    own = Row(
        *(job.ledger.window_index, _MODES.index(job.mode), kept.tag if kept is not None else 0, int(bool(why))),
        *(int(window.discarding), int(bool(window.scalars)), window.planned, *done),
    )
    rows = [own]
    if agreement is not None:
        for adapter in window.adapters:
            adapter.catch_up()
        meeting = _next_meeting(job, agreement, window)
        meeting.wait()
        rows = [Row(*row) for row in meeting.rows(list(own))]
    where = f"sync.state_dict() in window {job.ledger.window_index}"
    if len({row[:3] for row in rows}) > 1:
        told = "; ".join(f"rank {rank}: window {row.window}, mode {_MODES[row.mode]}, part {row.tag}" for rank, row in enumerate(rows))
        raise Disagreement(f"{where}: ranks differ: {told}. Call it at the same place on all ranks, and load the same state on all")
    refusing = [rank for rank, row in enumerate(rows) if row.refuses]
    if refusing:
        raise Unreduced(f"{where}: {why or f'ranks {refusing} cannot reduce now; their own message says why'}. Nothing was changed")
    counts = [row.micro_steps for row in rows]
    if len(set(counts)) > 1 and not job.variable:
        text = f"{where}: ranks have done different numbers of micro-steps: {', '.join(map(str, counts))}, by rank"
        if job.strict:
            raise Disagreement(text)
        job.ledger.warn("ranks_disagree", text)
    return rows


def _next_meeting(job: Job, agreement: Agreement, window: Window) -> Meeting:
    """The first in this window that has not failed without this rank, which is told so once: then it catches up with the others."""
    while True:
        meeting = Meeting(agreement, f"{job.ledger.window_index}.{window.saves}", job.options.deadline_s)
        window.saves += 1
        failed, told = meeting.failed(), window.told_of_save
        window.told_of_save |= failed
        if not failed or not told:
            return meeting


def _why_not(job: Job, window: Window) -> str:
    """Why this rank cannot reduce in the middle of a window, or cannot keep what that gives."""
    kept = window.kept
    if kept is not None and kept.active_share is not None:
        return f'divide="active", and this window was begun on another number of ranks: {_AT_A_BOUNDARY}'
    for adapter in window.adapters:
        if adapter.kind not in KINDS:
            return f"{adapter.kind} keeps gradients in a form that another number of ranks cannot load: {_AT_A_BOUNDARY}"
        if since_kept(window).active and not job.reduced(adapter, False):
            try:
                adapter.check_late()
            except Unreduced as unreduced:
                return f"{unreduced}. Until all of it has been used, {_AT_A_BOUNDARY}"
    return ""


def _keep(job: Job, window: Window, rows: list[Row], discard: bool) -> Kept:
    """All of the window so far, reduced and aside."""
    before, ranks = window.kept, [row.done for row in rows]
    former = before.ranks if before is not None else [Done()] * len(ranks)
    gradients = dict(before.gradients) if before is not None else {}
    means = dict(before.means) if before is not None else {}
    if not discard and any(now.since(then).active for now, then in zip(ranks, former, strict=True)):
        _reduce(job, window)
        gradients = checkpoint_kept.take(checkpoint_names.parameters(job), before)
    if any(row.named for row in rows):
        told = _means(job, window)
        means = {name: division.added(told.get(name), means.get(name)) for name in told | means} if told else means
    return Kept(
        gradients=gradients,
        ranks=ranks,
        planned=[row.planned for row in rows],
        means=means,
        base=Done.of(window),
        active_here=ranks[job.rank].active,
        tag=checkpoint_kept.tag_of(ranks),
        unseen=before.unseen if before is not None else 0,
        unseen_skips=before.unseen_skips if before is not None else 0,
        active_share=before.active_share if before is not None else None,
    )


def _means(job: Job, window: Window) -> dict[str, tuple[float, float]] | None:
    """Of all ranks, on all: those that gave none learn the names of the others."""
    names, names_store = sorted(window.scalars), None
    if job.agreement is not None:
        names_store = job.agreement.store(f"means/{job.ledger.window_index}.{window.saves}")
        if names:
            names_store.set("names", json.dumps(names))
    told, out = division.gather_scalars(job, window, [0.0] * division.FACTS)
    if told == {} and names_store is not None:
        told = division.by_name(json.loads(names_store.get("names")), out)
    return told


def _reduce(job: Job, window: Window) -> None:
    """What the wrappers would issue at the boundary, once more in this window; what the tap sees of it is declared."""
    waiting = [adapter for adapter in window.adapters if not job.reduced(adapter, False)]
    job.learn_sizes()
    before = {role: job.ledger.issued(role) for role in Role}
    job.tap.active(job.ledger)
    job.tap.late(True)
    try:
        for adapter in waiting:
            adapter.late()
    except Unreduced as unreduced:
        job.ledger.fail(str(unreduced))
        raise
    finally:
        job.tap.late(False)
        job.tap.active(None)
    for role, count in before.items():
        if job.ledger.issued(role) > count:
            job.ledger.declare_extra(role, 1)
