"""What happens in and around micro-steps of real loops: failures, other tools, other orders. State is restored and counts are right."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gradgate
import rows
import torch
import torch.distributed as dist
import trainers as t
from rows import Each, Says, row
from torch import nn
from torch.utils.checkpoint import checkpoint

AR, RS = "all_reduce", "reduce_scatter"


class Oops(Exception):
    pass


# Exceptions inside a micro-step, caught by the loop, which tries again.


class Fragile(t.Units):
    """Fails on demand: before the forward, after it, or in the backward before any gradient."""

    fail = ""

    def forward(self, c: float, use: Any = None) -> torch.Tensor:
        where, self.fail = self.fail, ""
        if where == "forward":
            raise Oops(where)
        if where == "memory":
            raise torch.OutOfMemoryError("out of memory, as the allocator says it")
        out = super().forward(c, use)
        if where == "backward":
            out.register_hook(fail_in_backward)
        return out


def fail_in_backward(gradient: torch.Tensor) -> None:
    raise Oops("backward")


def retried(rank: int, wrap: Callable[[nn.Module], Any], where: str, at: int, who: int = -1, **options: Any) -> dict[str, Any]:
    """Micro-step `at` of the second window fails once on rank `who`, or on all, and is run again."""
    inner = Fragile(2)
    model = wrap(inner)
    optimizer, found, failures = t.sgd(model), [], 0
    with gradgate.attach(model, optimizer, accumulate=4, **options) as sync, t.Watch(sync) as watch:
        for i, c in enumerate(t.data(rank) * 3):
            if i == 4 + at and who in (-1, rank):
                inner.fail = where
            for _ in range(2):
                try:
                    with sync.micro_step():
                        model(c).backward()
                    break
                except (Oops, torch.OutOfMemoryError):
                    failures += 1
            if sync.boundary:
                found.append(t.gradients(model))
                t.finish(optimizer, model)
    return watch.seen(gradients=[t.one(b) for b in found], failures=failures, flags=getattr(model, "require_backward_grad_sync", True))


AGAIN: dict[str, Any] = {"gradients": [55.0] * 3, "windows_full": 3, "micro_steps": 12, "flags": True, "windows_mismatched": 0}


@row(**AGAIN, failures=1, gradient={AR: 3}, suppressed=9)
def exception_in_the_forward(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.ddp, "forward", 1)


@row(**AGAIN, failures=1, gradient={AR: 3}, ours={AR: 3})
def exception_in_the_boundary_forward(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.ddp, "forward", 3)


@row(**AGAIN, failures=1, gradient={AR: 3})
def exception_in_the_backward(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.ddp, "backward", 2)


@row(**AGAIN, failures=Each(1, 0), gradient={AR: 3})
def exception_on_one_rank(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.ddp, "forward", 2, who=0)


@row(**AGAIN, failures=Each(1, 0), gradient={AR: 3})
def exception_on_one_rank_in_the_boundary_forward(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.ddp, "forward", 3, who=0)


@row(**AGAIN, failures=Each(0, 1), gradient={AR: 3})
def out_of_memory_on_one_rank(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.ddp, "memory", 3, who=1)


@row(**AGAIN, failures=1, gradient={RS: 6})
def out_of_memory_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.fsdp, "memory", 2, mode="window")


@row(**AGAIN, failures=1, gradient={RS: 6})
def exception_in_the_boundary_forward_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.fsdp, "forward", 3, mode="window", keep_params=True)


@row(**AGAIN, failures=1, gradient={RS: 6})
def exception_in_the_backward_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, t.fsdp, "backward", 2, mode="window")


@row(**AGAIN, failures=1, gradient={AR: 3})
def exception_in_the_boundary_unwrapped(rank: int, world: int) -> dict[str, Any]:
    return retried(rank, lambda model: model, "backward", 3)


# Contexts inside one another, and left early.


@row(refusal=Says("Refused", "micro"), gradients=[3.2])
def nested_contexts(rank: int, world: int) -> dict[str, Any]:
    """The outer one goes on unharmed, with its own items."""
    model = t.ddp()
    counts, sums = ((1, 3), (1.0, 9.0)) if rank == 0 else ((2, 4), (2.0, 20.0))
    with gradgate.attach(model, t.sgd(model), accumulate=2) as sync:
        for items, c in zip(counts, sums, strict=True):
            with sync.micro_step(items=items):
                model(c).backward()
                with rows.refused(gradgate.Refused) as refusal, sync.micro_step(items=1000, last=True):
                    pass
        assert sync.boundary
    return {"refusal": refusal[0], "gradients": [t.one(t.gradients(model))]}


@row(gradients=[16.5, 55.0], gradient={AR: 2}, windows_partial=1, windows_full=1, micro_steps=6)
def break_out_of_a_window(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp()
    optimizer, found = t.sgd(model), []
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        for c in t.data(rank):
            with sync.micro_step():
                model(c).backward()
                if c in (2.0, 20.0):
                    break
        assert sync.flush()
        found.append(t.gradients(model))
        t.finish(optimizer, model)
        found += t.drive(sync, watch, model, optimizer, t.data(rank))
    return watch.seen(gradients=[t.one(b) for b in found])


@row(gradients=[16.5, 55.0], gradient={AR: 2}, windows_partial=1, windows_full=1)
def break_out_of_micro_batches(rank: int, world: int) -> dict[str, Any]:
    """In the first epoch the optimizer steps after two of four, and the window ends there."""
    model = t.ddp()
    optimizer, found = t.sgd(model), []
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        for epoch in range(2):
            for i, micro in enumerate(sync.micro_batches(t.data(rank))):
                with micro:
                    model(micro.data).backward()
                if micro.boundary or (epoch == 0 and i == 1):
                    optimizer.step()
                    found.append(t.gradients(model))
                    optimizer.zero_grad()
                    break
    return watch.seen(gradients=[t.one(b) for b in found])


# Data loaders that fork.


class Numbers(torch.utils.data.Dataset[float]):
    def __init__(self, rank: int) -> None:
        self.values = t.data(rank) * 2

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> float:
        return self.values[index]


@row(gradients=[55.0] * 4, gradient={AR: 4}, micro_steps=16, linked=False)
def forked_data_loaders(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp()
    optimizer, found = t.sgd(model), []
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        for _ in range(2):
            loader = torch.utils.data.DataLoader(Numbers(rank), batch_size=None, num_workers=2, multiprocessing_context="fork")
            found += t.drive(sync, watch, model, optimizer, [float(c) for c in loader])
        linked = sync.stats()["linked"]
    return watch.seen(gradients=[t.one(b) for b in found], linked=linked)


# Compiled models.


class Small(nn.Module):
    """A real one, whose gradients depend on its weights; float64 and the same start on all ranks."""

    def __init__(self, recompute: str = "") -> None:
        super().__init__()
        torch.manual_seed(7)
        self.units = nn.ModuleList([nn.Linear(4, 8, dtype=torch.float64), nn.Linear(8, 4, dtype=torch.float64)])
        self.recompute = recompute

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.units[1](torch.tanh(self.units[0](x))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.recompute:
            return torch.as_tensor(checkpoint(self.body, x, use_reentrant=self.recompute == "reentrant"))
        return self.body(x)


def batches(rank: int, count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + rank)
    return [torch.randn(3, 4, dtype=torch.float64, generator=generator) for _ in range(count)]


def reference(world: int, count: int, n: int = 4, lr: float = 0.1) -> list[torch.Tensor]:
    """One process that sees all ranks' data: what every rank's weights are after count / n steps."""
    model = Small()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    data = [batches(rank, count) for rank in range(world)]
    for i in range(count):
        for rank in range(world):
            (model(data[rank][i]).square().mean() / n / world).backward()
        if (i + 1) % n == 0:
            optimizer.step()
            optimizer.zero_grad()
    return [p.detach() for p in model.parameters()]


def like_one_process(rank: int, world: int, wrap: Callable[[nn.Module], Any], model: nn.Module | None = None, **options: Any) -> dict[str, Any]:
    """Two windows of four; the largest difference of any weight from one process's."""
    wrapped = wrap(model or Small())
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    with gradgate.attach(wrapped, optimizer, accumulate=4, **options) as sync, t.Watch(sync) as watch:
        for x in batches(rank, 8):
            with sync.micro_step():
                (wrapped(x).square().mean() / 4).backward()
            sync.step()
    difference = max(
        float(((p.full_tensor() if hasattr(p, "full_tensor") else p.detach()) - wanted).abs().max())
        for p, wanted in zip(wrapped.parameters(), reference(world, 8), strict=True)
    )
    return watch.seen(close=difference < 1e-12 or difference)


@row(close=True, gradient={AR: 2}, windows_mismatched=0, told=[])
def compiled_inside_ddp(rank: int, world: int) -> dict[str, Any]:
    return like_one_process(rank, world, lambda model: t.ddp(torch.compile(model, backend="eager")))


@row(close=True, gradient={AR: 2}, windows_mismatched=0, told=[])
def compiled_around_ddp(rank: int, world: int) -> dict[str, Any]:
    return like_one_process(rank, world, lambda model: torch.compile(t.ddp(model), backend="aot_eager"))


@row(close=True, gradient={RS: 4}, windows_mismatched=0, told=[])
def compiled_around_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return like_one_process(rank, world, lambda model: torch.compile(t.fsdp(model), backend="aot_eager"), mode="window")


# Recomputed activations.


@row(close=True, gradient={AR: 2})
def recomputed(rank: int, world: int) -> dict[str, Any]:
    return like_one_process(rank, world, t.ddp, Small("yes"))


@row(close=True, gradient={RS: 4})
def recomputed_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return like_one_process(rank, world, t.fsdp, Small("yes"), mode="window")


@row(close=True)
def recomputed_reentrant(rank: int, world: int) -> dict[str, Any]:
    """Reentrant backwards are engine passes of their own inside the micro-step's."""

    def wrap(model: nn.Module) -> Any:
        return t.ddp(model, static_graph=True)

    class Driven(Small):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.requires_grad_())

    return like_one_process(rank, world, wrap, Driven("reentrant"))


# Mixed precision.


def mixed(rank: int, wrap: Callable[[nn.Module], Any], dtype: torch.dtype, **options: Any) -> dict[str, Any]:
    """Half precision in the forward; integers stay exact in it."""
    model: Any = wrap(Product())
    optimizer = t.sgd(model, lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=dtype is torch.float16)
    with gradgate.attach(model, optimizer, accumulate=4, **options) as sync, t.Watch(sync) as watch:
        for c in t.data(rank):
            with sync.micro_step():
                with torch.autocast("cpu", dtype):
                    loss = model(c)
                    assert loss.dtype is dtype, loss.dtype
                scaler.scale(loss).backward()
            sync.step(scaler=scaler)
    return watch.seen(weights=t.one(t.weights(model)), scale=scaler.get_scale())


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.units = nn.ModuleList([nn.Linear(2, 1, bias=False)])
        nn.init.zeros_(self.units[0].weight)  # type: ignore[arg-type]

    def forward(self, c: float) -> torch.Tensor:
        return torch.as_tensor(self.units[0](torch.full((1, 2), c)).squeeze())


@row(weights=-55.0, scale=1024.0, gradient={AR: 1})
def half_precision_with_a_scaler(rank: int, world: int) -> dict[str, Any]:
    return mixed(rank, t.ddp, torch.float16)


@row(weights=-55.0, gradient={AR: 1})
def bfloat16(rank: int, world: int) -> dict[str, Any]:
    return mixed(rank, t.ddp, torch.bfloat16)


@row(weights=-55.0, gradient={RS: 1})
def half_precision_with_a_scaler_fsdp2(rank: int, world: int) -> dict[str, Any]:
    def wrap(model: Any) -> Any:
        with torch.no_grad():
            model.units[0].weight = nn.Parameter(model.units[0].weight.T.contiguous())  # so that each rank has an element
        model.units[0].forward = lambda x: x @ model.units[0].weight
        return t.fsdp(model)

    return mixed(rank, wrap, torch.float16, mode="window")


# Evaluation between and inside windows.


def evaluated(rank: int, model: nn.Module, **options: Any) -> dict[str, Any]:
    """After each micro-step a forward without gradients, whose value shows the weights that the optimizer left."""
    optimizer, found, values = t.sgd(model, lr=1.0), [], []
    with gradgate.attach(model, optimizer, accumulate=2, **options) as sync, t.Watch(sync) as watch:
        for c in t.data(rank):
            with sync.micro_step():
                model(c).backward()
            if sync.boundary:
                found.append(t.one(t.gradients(model)))
                t.finish(optimizer, model)
            model.eval()
            with torch.no_grad():
                values.append(float(model(1.0)) / 8)
            model.train()
    return watch.seen(gradients=found, values=values)


EVALUATED: dict[str, Any] = {"gradients": [16.5, 38.5], "values": [0.0, -16.5, -16.5, -55.0], "windows_mismatched": 0}


@row(**EVALUATED, gradient={AR: 2})
def evaluation_ddp(rank: int, world: int) -> dict[str, Any]:
    return evaluated(rank, t.ddp(t.Units(2)))


@row(**EVALUATED, gradient={RS: 4})
def evaluation_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return evaluated(rank, t.fsdp(t.Units(2)), mode="window")


@row(**EVALUATED, gradient={RS: 4})
def evaluation_fsdp2_parameters_stay(rank: int, world: int) -> dict[str, Any]:
    return evaluated(rank, t.fsdp(t.Units(2)), mode="window", keep_params=True)


@row(world=4, **EVALUATED)
def evaluation_hsdp(rank: int, world: int) -> dict[str, Any]:
    return evaluated(rank // 2, t.fsdp(t.Units(2), (2, 2)), mode="window_replica")


@row(gradients=[16.5], values=[0.0, -16.5])
def state_dict_inside_a_window_of_kept_parameters(rank: int, world: int) -> dict[str, Any]:
    """What is saved after a step are the new weights, whole windows and broken ones alike."""
    model = t.fsdp(t.Units(2))
    optimizer, found, saved = t.sgd(model, lr=1.0), [], []

    def save() -> None:
        saved.append(t.one(t.values(model.state_dict().values())))

    with gradgate.attach(model, optimizer, accumulate=4, mode="window", keep_params=True) as sync:
        for c in t.data(rank, 2):
            with sync.micro_step():
                model(c).backward()
        save()
        optimizer.step()
        found.append(t.one(t.gradients(model)))
        optimizer.zero_grad()
        save()
    return {"gradients": found, "values": saved}


# Models moved before, copied after.


@row(gradients=[55.0], gradient={AR: 1}, dtype="torch.float32")
def moved_before_attaching(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp(t.Units(2).to(torch.float32))
    optimizer = t.sgd(model)
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        found = t.drive(sync, watch, model, optimizer, t.data(rank))
    return watch.seen(gradients=[t.one(b) for b in found], dtype=str(next(model.parameters()).dtype))


def averaged(rank: int, model: nn.Module, inner: nn.Module) -> dict[str, Any]:
    """A moving average, copied after attaching and updated after each step; it is evaluated, and trained by itself once."""
    optimizer = t.sgd(model, lr=1.0)
    with gradgate.attach(model, optimizer, accumulate=2) as sync, t.Watch(sync) as watch:
        average = torch.optim.swa_utils.AveragedModel(inner)
        found = []
        for c in t.data(rank):
            with sync.micro_step():
                model(c).backward()
            if sync.boundary:
                found.append(t.one(t.gradients(model)))
                t.finish(optimizer, model)
                average.update_parameters(inner)
            with torch.no_grad():
                average(1.0)
        twin = copy.deepcopy(inner)
        twin(7.0).backward()
    return watch.seen(gradients=found, average=t.one(t.weights(average)), twin=t.one(t.gradients(twin)))


@row(gradients=[16.5, 38.5], average=-(16.5 + 55) / 2, twin=7.0, gradient={AR: 2}, profiler={AR: 4, "broadcast": 2})
def moving_average_ddp(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp(t.Units(2))
    return averaged(rank, model, model.module)


@row(gradients=[16.5, 38.5], average=-(16.5 + 55) / 2, twin=7.0, gradient={AR: 2})
def moving_average_unwrapped(rank: int, world: int) -> dict[str, Any]:
    model = t.Units(2)
    return averaged(rank, model, model)


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
    return watch.seen(gradients=[t.one(g) for g in found], late=[c.get("late", 0) for c in changes], counts=[c["gradient"] for c in changes])


@row(fine=True)
def two_attachments_in_one_backward(rank: int, world: int) -> dict[str, Any]:
    """Counted apart, or refused with the way out."""
    a, b = t.ddp(), t.ddp(t.Units(2))
    refusal = [""]
    with gradgate.attach(a, t.sgd(a), accumulate=4) as sa, gradgate.attach(b, t.sgd(b), accumulate=4) as sb, t.Watch(sa, sb) as watch:
        with rows.refused(gradgate.Refused) as refusal:
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


def enforced(rank: int) -> dict[str, Any]:
    model = t.ddp()
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


test_row = rows.tests(__file__, __name__)
