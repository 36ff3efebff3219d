"""Rows of CASES.md about what is seen and what memory it takes: T44 to T47, T49; N5's kind."""

from __future__ import annotations

from typing import Any

import gradgate
import torch
import torch.distributed as dist
import trainers as t
from rows import Says, row
from torch import nn

AR, RS, AG = "all_reduce", "reduce_scatter", "all_gather"


# T44, T46: three windows of four, two buckets. Patching Python's all_reduce counts nothing of the reducer.


def visible(rank: int, model: nn.Module, windows: int = 3) -> dict[str, Any]:
    optimizer, patched, original = t.sgd(model), [], dist.all_reduce

    def counted(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if tensor.is_floating_point():  # a ballot is not
            patched.append(1)
        return original(tensor, *args, **kwargs)

    with gradgate.attach(model, optimizer, accumulate=4) as sync:
        dist.all_reduce = counted
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
        future = dist.all_reduce(bucket.buffer(), group=group, async_op=True).get_future()
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
