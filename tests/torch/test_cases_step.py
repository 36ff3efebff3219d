"""Rows of CASES.md about the optimizer, scaler, clipping and scheduler, and about what is seen and what memory it takes.

Elsewhere: T40 and T41 (parameter groups), T48 (DeepSpeed).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gradgate
import rows
import torch
import torch.distributed as dist
import trainers as t
from rows import Near, Says, row
from torch import nn

AR, RS = "all_reduce", "reduce_scatter"

# T36: gradients (3, 0) and (0, 4), clip norm 1. Torch adds 1e-6 to the norm.


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.units = nn.ModuleList([Two()])

    def forward(self, c: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.units[0](c))


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(2, dtype=torch.float64))

    def forward(self, c: torch.Tensor) -> torch.Tensor:
        return (c * self.w).sum()


def clipped(rank: int, wrap: Callable[[nn.Module], nn.Module], clip: Callable[..., Any] | None = None, **options: Any) -> dict[str, Any]:
    """Two micro-steps that sum to (3, 0) and (0, 4); SGD with lr 1 leaves minus the clipped gradient in the weights."""
    model: Any = wrap(Pair())
    optimizer, norms = t.sgd(model, lr=1.0), []
    c = torch.tensor([1.5, 0.0] if rank == 0 else [0.0, 2.0], dtype=torch.float64)
    with gradgate.attach(model, optimizer, accumulate=2, **options) as sync:
        for _ in range(2):
            with sync.micro_step():
                model(c).backward()
            if clip is None:
                sync.step(max_norm=1.0)
            elif sync.boundary:
                norm = clip(model.parameters(), 1.0)
                norms.append(float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm))
                optimizer.step()
    weight = next(iter(model.parameters())).detach()
    whole = weight.full_tensor() if hasattr(weight, "full_tensor") else weight
    return {"weights": [-w for w in whole.tolist()], "norm": norms}


CLIPPED = {"weights": [Near(0.6), Near(0.8)]}


@row(**CLIPPED, norm=[])
def t36_guarded_step(rank: int, world: int) -> dict[str, Any]:
    return clipped(rank, t.ddp)


@row(**CLIPPED, norm=[2.5])
def t36_clip_at_the_boundary(rank: int, world: int) -> dict[str, Any]:
    return clipped(rank, t.ddp, nn.utils.clip_grad_norm_)


@row(**CLIPPED, norm=[])
def t36_guarded_step_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return clipped(rank, t.fsdp, mode="window")


@row(**CLIPPED, norm=[2.5])
def t36_clip_at_the_boundary_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return clipped(rank, t.fsdp, nn.utils.clip_grad_norm_, mode="window", keep_params=True)


@row(**CLIPPED, norm=[])
def t36_guarded_step_unwrapped(rank: int, world: int) -> dict[str, Any]:
    return clipped(rank, lambda model: model)


@row(**CLIPPED, norm=[])
def t36_guarded_step_fsdp1(rank: int, world: int) -> dict[str, Any]:
    from torch.distributed.fsdp import FullyShardedDataParallel

    def wrap(model: nn.Module) -> nn.Module:
        t.KEPT.append(FullyShardedDataParallel(model.float(), device_id=torch.device("cpu")))  # its own clipping needs single precision
        return t.KEPT[-1]

    seen = clipped(rank, wrap, mode="window")
    return seen | {"weights": whole(seen["weights"], world)}


def whole(shard: list[float], world: int) -> list[float]:
    """FSDP1's parameters are flat shards."""
    shards: list[Any] = [None] * world
    dist.all_gather_object(shards, shard)
    return [value for part in shards for value in part]


# T37: inf on rank 1 in micro-step 2, scale 65536.


def overflowing(rank: int, model: nn.Module, at: int = 1, **options: Any) -> dict[str, Any]:
    optimizer = t.sgd(model, lr=0.001)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    stepped, scales, scheduled, after = [], [], [], []
    with gradgate.attach(model, optimizer, accumulate=4, **options) as sync, t.Watch(sync) as watch:
        for i, c in enumerate(t.data(rank) * 2):
            with sync.micro_step():
                scaler.scale(model(math.inf if rank == 1 and i == at else c)).backward()
            if sync.boundary:
                stepped.append(sync.step(scaler=scaler, scheduler=scheduler))
                scales.append(scaler.get_scale())
                scheduled.append(scheduler.last_epoch)
                after.append(t.one(t.weights(model)))
    return watch.seen(stepped=stepped, scales=scales, scheduled=scheduled, weights=after)


OVERFLOW: dict[str, Any] = {
    "stepped": [False, True],
    "scales": [32768.0, 32768.0],
    "scheduled": [0, 1],
    "weights": [0.0, Near(-0.055)],
}


@row(**OVERFLOW, gradient={AR: 2}, windows=2)
def t37_ddp(rank: int, world: int) -> dict[str, Any]:
    return overflowing(rank, t.ddp())


@row(**OVERFLOW)
def t37_ddp_at_the_boundary(rank: int, world: int) -> dict[str, Any]:
    return overflowing(rank, t.ddp(), at=3)


@row(**OVERFLOW, gradient={RS: 2})
def t37_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return overflowing(rank, t.fsdp(), mode="window")


@row(**OVERFLOW)
def t37_unwrapped(rank: int, world: int) -> dict[str, Any]:
    return overflowing(rank, t.Units())


@row(**OVERFLOW)
def t37_fsdp1(rank: int, world: int) -> dict[str, Any]:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(t.Units(), device_id=torch.device("cpu"))
    t.KEPT.append(model)
    return overflowing(rank, model, mode="window")


@row(world=4, **OVERFLOW)
def t37_hsdp(rank: int, world: int) -> dict[str, Any]:
    return overflowing(rank // 2, t.fsdp(shape=(2, 2)), mode="window_replica")


@row(**OVERFLOW)
def t37_the_scripts_own_scaler_calls(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp()
    optimizer = t.sgd(model, lr=0.001)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    seen: dict[str, list[Any]] = {"stepped": [], "scales": [], "scheduled": [], "weights": []}
    with gradgate.attach(model, optimizer, accumulate=4) as sync:
        for i, c in enumerate(t.data(rank) * 2):
            with sync.micro_step():
                scaler.scale(model(math.inf if rank == 1 and i == 1 else c)).backward()
            if sync.boundary:
                before = scaler.get_scale()
                scaler.unscale_(optimizer)
                scaler.step(optimizer)
                scaler.update()
                seen["stepped"].append(scaler.get_scale() >= before)
                if seen["stepped"][-1]:
                    scheduler.step()
                optimizer.zero_grad()
                seen["scales"].append(scaler.get_scale())
                seen["scheduled"].append(scheduler.last_epoch)
                seen["weights"].append(t.one(t.weights(model)))
    return seen


# T38: unscale_ in every micro-step.


@row(weights=Near(-55.0), unscaled=1)
def t38_once_at_the_boundary(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp()
    optimizer = t.sgd(model, lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    calls: list[int] = []
    scaler.unscale_ = lambda optimizer, own=scaler.unscale_: (calls.append(1), own(optimizer))  # type: ignore[method-assign]
    with gradgate.attach(model, optimizer, accumulate=4) as sync:
        for c in t.data(rank):
            with sync.micro_step():
                scaler.scale(model(c)).backward()
            sync.step(scaler=scaler, max_norm=1e9)
    return {"weights": t.one(t.weights(model)), "unscaled": len(calls)}


@row(gradient=5.5, refusal=Says("Refused", "GradScaler.unscale_", "micro-step 1 of 4"))
def t38_inside_the_window_is_refused_by_name(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp()
    optimizer = t.sgd(model, lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    with gradgate.attach(model, optimizer, accumulate=4) as sync:
        with rows.refused(gradgate.Refused) as refusal:
            for c in t.data(rank):
                with sync.micro_step():
                    scaler.scale(model(c)).backward()
                scaler.unscale_(optimizer)
        return {"refusal": refusal[0], "gradient": t.one(t.gradients(model))}


# T39: the scheduler moves with the optimizer.


@row(scheduled=2, lr=Near(0.01), returned=[False, False, False, True] * 2)
def t39_step_called_after_every_micro_step(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp()
    optimizer = t.sgd(model, lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.1)
    returned = []
    with gradgate.attach(model, optimizer, accumulate=4) as sync:
        for c in t.data(rank) * 2:
            with sync.micro_step():
                model(c).backward()
            returned.append(sync.step(scheduler=scheduler))
    return {"scheduled": scheduler.last_epoch, "lr": optimizer.param_groups[0]["lr"], "returned": returned}


# T44, T46: three windows of four, two buckets. Patching Python's all_reduce counts nothing of the reducer.


def visible(rank: int, model: nn.Module, windows: int = 3) -> dict[str, Any]:
    optimizer, patched, original = t.sgd(model), [], dist.all_reduce
    with gradgate.attach(model, optimizer, accumulate=4) as sync:
        ballot = sync._job.agreement.name  # type: ignore[union-attr]
        dist.all_reduce = lambda *args, **kwargs: (  # type: ignore[assignment]
            kwargs["group"].group_name == ballot or patched.append(1),
            original(*args, **kwargs),
        )[1]
        try:
            with t.Watch(sync) as watch:
                found = t.drive(sync, watch, model, optimizer, t.data(rank) * windows)
        finally:
            dist.all_reduce = original
    return watch.seen(gradients=[t.one(b) for b in found], patched=len(patched))


@row(gradients=[55.0] * 3, gradient={AR: 5}, profiler={AR: 5 + 3, "broadcast": 2}, suppressed=9, reductions=3, patched=0)
def t44_t46_two_buckets(rank: int, world: int) -> dict[str, Any]:
    return visible(rank, t.ddp(t.Units(2), buckets=True))


@row(gradients=[55.0] * 3, gradient={AR: 6}, profiler={AR: 9 + 3}, suppressed=9, reductions=3, patched=0)
def t44_find_unused(rank: int, world: int) -> dict[str, Any]:
    return visible(rank, t.ddp(t.Units(2), buckets=True, find_unused_parameters=True))


class Buffered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.units = t.Units()
        self.register_buffer("of_four_bytes", torch.zeros(1))
        self.register_buffer("of_eight_bytes", torch.zeros(1, dtype=torch.float64))

    def forward(self, c: float) -> torch.Tensor:
        return torch.as_tensor(self.units(c))


@row(gradients=[55.0] * 3, gradient={AR: 3}, profiler={AR: 3 + 3, "broadcast": 2 + 3 * 2}, suppressed=9)
def t44_buffers_of_two_types(rank: int, world: int) -> dict[str, Any]:
    """Each window's first forward after a reduction broadcasts them, once for each type."""
    return visible(rank, t.ddp(Buffered()))


class TwoTypes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.units = nn.ModuleList([t.Unit(), t.Unit(dtype=torch.float32)])

    def forward(self, c: float) -> torch.Tensor:
        return torch.as_tensor(self.units[0](c) + self.units[1](c))


@row(gradients=[55.0] * 3, gradient={AR: 6}, profiler={AR: 6 + 3, "broadcast": 2}, reductions=3)
def t44_parameters_of_two_types(rank: int, world: int) -> dict[str, Any]:
    return visible(rank, t.ddp(TwoTypes()))


# T45: the script's own comm hook.


def hooked(rank: int, hook_first: bool, factor: float, flush: bool = False, **options: Any) -> dict[str, Any]:
    """A hook that averages and multiplies by `factor`; three windows of four, or four windows where the last is a partial one."""
    model = t.ddp(t.Units(2), buckets=True)
    optimizer, calls = t.sgd(model), []

    def hook(group: Any, bucket: Any) -> Any:
        calls.append((bucket.index(), bucket.is_last()))
        future = dist.all_reduce(bucket.buffer(), group=group, async_op=True).get_future()  # type: ignore[union-attr]
        return future.then(lambda done: done.value()[0].div_(2 / factor))

    hook.__annotations__.clear()  # which are texts here, and torch compares them with types

    if hook_first:
        model.register_comm_hook(dist.group.WORLD, hook)
    with gradgate.attach(model, optimizer, accumulate=4, **options) as sync, t.Watch(sync) as watch:
        if not hook_first:
            model.register_comm_hook(dist.group.WORLD, hook)
        found = t.drive(sync, watch, model, optimizer, t.data(rank) * 3 + (t.data(rank, 2) if flush else []))
        if flush:
            assert sync.flush()
            found.append(t.gradients(model))
    return watch.seen(gradients=[t.one(b) for b in found], calls=calls)


CALLS = [(0, True), *[(0, False), (1, True)] * 2]


@row(gradients=[55.0] * 3, gradient={AR: 5}, calls=CALLS, profiler={AR: 8, "broadcast": 2})
def t45_hook_before_attaching(rank: int, world: int) -> dict[str, Any]:
    return hooked(rank, hook_first=True, factor=1.0)


@row(gradients=[55.0] * 3, gradient={AR: 5}, calls=CALLS)
def t45_hook_after_attaching(rank: int, world: int) -> dict[str, Any]:
    return hooked(rank, hook_first=False, factor=1.0)


@row(gradients=[55.0] * 3, gradient={AR: 5}, calls=CALLS, told=Says("hook"))
def t45_wire_has_no_effect_beside_a_hook(rank: int, world: int) -> dict[str, Any]:
    return hooked(rank, hook_first=True, factor=1.0, wire="bf16")


@row(gradients=[110.0] * 3 + [33.0], calls=[*CALLS, (0, False), (1, True)])
def t45_hook_that_sums_reduced_late(rank: int, world: int) -> dict[str, Any]:
    """N5's kind: what the hook does with the sum is its own affair, in a late reduction too."""
    return hooked(rank, hook_first=True, factor=2.0, flush=True)


# T47: memory is looked at before a window defers anything.


def climbing(rank: int, limits: tuple[int, int], **options: Any) -> dict[str, Any]:
    """Rank r has `limits[r]` bytes left; by window: reduce-scatters, mode."""
    from gradgate import auto

    model = t.fsdp(t.Units(2, size=1024))
    optimizer, modes = t.sgd(model), []
    original, auto.memory = auto.memory, lambda device: (limits[rank], 10)
    try:
        with gradgate.attach(model, optimizer, accumulate=2, **{"mode": "auto", **options}) as sync, t.Watch(sync) as watch:
            for _ in range(9):
                found = t.drive(sync, watch, model, optimizer, t.data(rank, 2))
                modes.append(sync.stats()["mode"])
    finally:
        auto.memory = original
    return watch.seen(gradients=[t.one(b) for b in found], modes=modes)


@row(gradients=[16.5], gradient={RS: 36}, modes=["every_micro_step"] * 9)
def t47_one_rank_without_room_keeps_all_reducing(rank: int, world: int) -> dict[str, Any]:
    return climbing(rank, (1 << 40, 100))


@row(gradients=[16.5], gradient={RS: 3 * 4 + 6 * 2}, modes=["every_micro_step"] * 3 + ["window"] * 6)
def t47_room_for_gradients_on_all(rank: int, world: int) -> dict[str, Any]:
    return climbing(rank, (1 << 40, 1 << 40), keep_params=False)


@row(gradients=[16.5], gradient={RS: 3 * 4 + 6 * 2}, profiler={RS: 24, "all_gather": 6 * 8 + 3 * 2, AR: 9})
def t47_room_for_parameters_too(rank: int, world: int) -> dict[str, Any]:
    return climbing(rank, (1 << 40, 1 << 40))


@row(gradients=[16.5], gradient={RS: 36}, modes=["every_micro_step"] * 9)
def t47_never_up_where_it_would_not_fit(rank: int, world: int) -> dict[str, Any]:
    """Deferring holds the half of 2 x 1024 float64 that the other rank has otherwise: 8192 bytes on each of two ranks."""
    return climbing(rank, (8000, 8000))


# T49: Gloo's reduce-scatter averages.


@row(gradients=[55.0] * 2, gradient={RS: 2}, told=[])
def t49_single_precision(rank: int, world: int) -> dict[str, Any]:
    return averaging(rank, torch.float32, mode="window")


@row(gradients=[55.0] * 2, gradient={RS: 8})
def t49_single_precision_reducing_each(rank: int, world: int) -> dict[str, Any]:
    return averaging(rank, torch.float32, mode="every_micro_step")


@row(gradients=[55.0] * 2, gradient={RS: 2})
def t49_bfloat16(rank: int, world: int) -> dict[str, Any]:
    return averaging(rank, torch.bfloat16, mode="window")


def averaging(rank: int, dtype: torch.dtype, **options: Any) -> dict[str, Any]:
    model = t.fsdp(t.Units(dtype=dtype))
    optimizer = t.sgd(model)
    with gradgate.attach(model, optimizer, accumulate=4, **options) as sync, t.Watch(sync) as watch:
        found = t.drive(sync, watch, model, optimizer, t.data(rank) * 2)
    return watch.seen(gradients=[t.one(b) for b in found])


test_row = rows.tests(__file__, __name__)
