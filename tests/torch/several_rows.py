"""Several models in one job, one process alone, GRADGATE for a whole job."""

from __future__ import annotations

from typing import Any

import gradgate
import rows
import trainers as t
from rows import row

AR, RS, AG = "all_reduce", "reduce_scatter", "all_gather"


# Several models in one job.


@row(first=[55.0] * 2, second=[16.5] * 4, counts=[{AR: 2}, {AR: 4}], ours=6, same=True, windows=[2, 4])
def two_attachments(rank: int, world: int) -> dict[str, Any]:
    a, b = t.ddp(), t.ddp(t.Units(2))
    oa, ob = t.sgd(a), t.sgd(b)
    first, second = [], []
    with gradgate.attach(a, oa, accumulate=4) as sa, gradgate.attach(b, ob, accumulate=2) as sb, t.Watch(sa, sb) as watch:
        for i, c in enumerate(t.data(rank) * 2):
            first += t.drive(sa, watch, a, oa, [c])
            second += t.drive(sb, watch, b, ob, [float((1, 2)[i % 2] * 10**rank)])
    seen = watch.seen()
    return {
        "first": [t.one(g) for g in first],
        "second": [t.one(g) for g in second],
        "counts": [change["gradient"] for change in watch.changes],
        "windows": [change["windows"] for change in watch.changes],
        "ours": seen["ours"][AR],
        "same": seen["profiler"] == seen["gradgate"] or (seen["profiler"], seen["gradgate"]),
    }


@row(late=[0, 1], gradients=[16.5, 5.5], counts=[{AR: 1}, {AR: 1}])
def two_attachments_the_second_flushed(rank: int, world: int) -> dict[str, Any]:
    """What is reduced outside a micro-step belongs to the one that is flushed."""
    a, b = t.ddp(), t.ddp()
    oa, ob = t.sgd(a), t.sgd(b)
    with gradgate.attach(a, oa, accumulate=2) as sa, gradgate.attach(b, ob, accumulate=4) as sb, t.Watch(sa, sb) as watch:
        found = t.drive(sa, watch, a, oa, t.data(rank, 2))
        t.drive(sb, watch, b, ob, t.data(rank, 1))
        assert sb.flush()
        found.append(t.gradients(b))
        t.finish(ob, b)
    changes = watch.changes
    return watch.seen(
        gradients=[t.one(g) for g in found], late=[c.get("late", 0) for c in changes], counts=[c["gradient"] for c in changes]
    )


@row(fine=True)
def two_attachments_in_one_backward(rank: int, world: int) -> dict[str, Any]:
    """Counted apart, or refused with the way out."""
    a, b = t.ddp(), t.ddp(t.Units(2))
    sa, sb = (gradgate.attach(model, t.sgd(model), accumulate=4) for model in (a, b))
    with sa, sb, t.Watch(sa, sb) as watch, rows.refused(gradgate.Refused) as refusal:
        for c in t.data(rank):
            with sa.micro_step(), sb.micro_step():
                (a(c) + b(c)).backward()
    values = [t.gradients(model)[0] for model in (a, b)]
    counts = [(change["gradient"], change.get("windows_late", 0), change.get("windows_mismatched", 0)) for change in watch.changes]
    fine = "attach([" in refusal[0] if refusal[0] else (values, counts) == ([55.0] * 2, [({AR: 1}, 0, 0)] * 2)
    return {"fine": fine or (values, counts, refusal)}


@row(gradients=[55.0, 55.0], gradient={AR: 2}, ours={AR: 1}, windows=1, steps=1)
def one_joint_window(rank: int, world: int) -> dict[str, Any]:
    a, b = t.ddp(), t.ddp(t.Units(2))
    oa, ob = t.sgd(a), t.sgd(b)
    with gradgate.attach([a, b], [oa, ob], accumulate=4) as sync, t.Watch(sync) as watch:
        for c in t.data(rank):
            with sync.micro_step():
                (a(c) + b(c)).backward()
        assert sync.boundary
        found = [t.one(t.gradients(m)) for m in (a, b)]
        assert sync.step()
    return watch.seen(gradients=found)


# One process.


@row(world=1, group=False, gradients=[2.5, 5.5], means=1.5, items=None, boundary=False, windows=2, profiler={})
def one_process_without_a_group(rank: int, world: int) -> dict[str, Any]:
    return alone()


@row(world=1, gradients=[2.5, 5.5], means=1.5, items=None, boundary=False, windows=2)
def one_process_with_a_group(rank: int, world: int) -> dict[str, Any]:
    return alone()


def alone() -> dict[str, Any]:
    """6 micro-steps in windows of four, divided by four: 10 / 4 and (5 + 6) / 4 * 4 / 2. Then items, means and a discarded window."""
    model = t.Units(2)
    optimizer = t.sgd(model)
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        found = t.drive(sync, watch, model, optimizer, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], divide=4)
        assert sync.flush(divisor=4)
        found.append(t.gradients(model))
        t.finish(optimizer, model)
        assert not sync.flush()
    with gradgate.attach(model, optimizer, accumulate=2) as sync:
        for items, c in ((1, 1.0), (3, 9.0)):
            with sync.micro_step(items=items):
                model(c).backward()
                sync.mean(loss=items * 0.75)
        assert t.one(t.gradients(model)) == 2.5
        means = sync.means["loss"]
        assert sync.step()
        for _ in range(2):
            with sync.micro_step():
                model(1.0).backward()
                sync.discard()
        return watch.seen(gradients=[t.one(b) for b in found], means=means, items=t.one(t.gradients(model)), boundary=sync.boundary)


# GRADGATE decides for the whole job.


def enforced(rank: int, model: Any = None) -> dict[str, Any]:
    model = model or t.ddp()
    optimizer = t.sgd(model)
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        found = t.drive(sync, watch, model, optimizer, t.data(rank, 6), divide=4)
        assert sync.flush(divisor=4)
        found.append(t.gradients(model))
        t.finish(optimizer, model)
        how = sync.stats()["enforcement"]
    return watch.seen(gradients=[t.one(b) for b in found], how=how)


@row(env={"GRADGATE": "off"}, gradients=[13.75, 30.25], gradient={AR: 6}, suppressed=0, how="off", windows=2, micro_steps=6)
def gradgate_off(rank: int, world: int) -> dict[str, Any]:
    return enforced(rank)


@row(env={"GRADGATE": "audit"}, gradients=[13.75, 30.25], gradient={AR: 6}, suppressed=0, how="audit", windows=2)
def gradgate_audit(rank: int, world: int) -> dict[str, Any]:
    return enforced(rank)


@row(env={"GRADGATE": "off"}, gradients=[13.75, 30.25], suppressed=0, how="off", windows=2)
def gradgate_off_unwrapped(rank: int, world: int) -> dict[str, Any]:
    """Nobody else reduces there."""
    return enforced(rank, t.Units())


@row(env={"GRADGATE": "audit"}, gradients=[13.75, 30.25], suppressed=0, how="audit", windows=2)
def gradgate_audit_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return enforced(rank, t.fsdp())


@row(env={"GRADGATE": "enforce"}, gradients=[13.75, 30.25], gradient={AR: 2}, suppressed=4 + 2 - 1, how="enforce", windows=2)
def gradgate_enforce(rank: int, world: int) -> dict[str, Any]:
    return enforced(rank)


@row(env={"GRADGATE_TAP": "python"}, gradients=[13.75, 30.25], gradient={AR: 2}, how="enforce", windows=2)
def tap_without_a_compiler(rank: int, world: int) -> dict[str, Any]:
    return enforced(rank)


@row(env={"GRADGATE_TAP": "off"}, gradients=[13.75, 30.25])
def no_tap_at_all(rank: int, world: int) -> dict[str, Any]:
    seen = enforced(rank)
    del seen["profiler"]
    return seen
