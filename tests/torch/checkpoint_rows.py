"""Rows about checkpoints in the middle of a window: the run that saved goes on, the one that loads, and one that was never saved."""

from __future__ import annotations

from typing import Any

import checkpointed as c
import torch
import trainers as t
from rows import row
from torch import nn

AR, RS = "all_reduce", "reduce_scatter"
NAMES = ["first", "units.0.w", "units.1.w"]
SAME: dict[str, Any] = {"resumed": True, "uninterrupted": True, "means": True, "keys": NAMES}


# Every wrapper.


@row(**SAME, micro_steps=2)
def ddp_window(rank: int, world: int) -> dict[str, Any]:
    return c.differences(lambda: c.Run(c.ddp()), rank, 2)


@row(**SAME)
def ddp_bucket_views(rank: int, world: int) -> dict[str, Any]:
    return c.differences(lambda: c.Run(c.ddp(gradient_as_bucket_view=True, bucket_cap_mb=1e-5)), rank, 3)


@row(**SAME)
def ddp_find_unused(rank: int, world: int) -> dict[str, Any]:
    return c.differences(lambda: c.Run(c.ddp(find_unused_parameters=True)), rank, 2)


@row(**SAME)
def ddp_static_graph(rank: int, world: int) -> dict[str, Any]:
    return c.differences(lambda: c.Run(c.ddp(static_graph=True)), rank, 2)


@row(**SAME)
def ddp_every_micro_step(rank: int, world: int) -> dict[str, Any]:
    return c.differences(lambda: c.Run(c.ddp(), {"mode": "every_micro_step"}), rank, 2)


@row(**SAME)
def fsdp_window(rank: int, world: int) -> dict[str, Any]:
    return c.differences(lambda: c.Run(c.sharded(t.mesh(world)), {"mode": "window"}), rank, 3)


@row(**SAME)
def fsdp_every_micro_step(rank: int, world: int) -> dict[str, Any]:
    return c.differences(lambda: c.Run(c.sharded(t.mesh(world)), {"mode": "every_micro_step"}), rank, 2)


@row(**SAME)
def fsdp_kept_parameters(rank: int, world: int) -> dict[str, Any]:
    return c.differences(lambda: c.Run(c.sharded(t.mesh(world)), {"mode": "window", "keep_params": True}), rank, 2)


@row(**SAME)
def unwrapped(rank: int, world: int) -> dict[str, Any]:
    return c.differences(lambda: c.Run(c.Model()), rank, 1)


@row(resumed=True, uninterrupted=False)
def gradients_that_round(rank: int, world: int) -> dict[str, Any]:
    """Another order of sums than without a checkpoint; the run that goes on and the one that loads have the same."""
    torch.manual_seed(rank)
    return c.differences(lambda: c.Run(c.ddp(dtype=torch.float32)), rank, 2, data=torch.randn(3 * c.N, dtype=torch.float64).exp().tolist())


class Two(nn.Module):
    """Two models of one attachment."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = c.ddp(), c.ddp()

    def forward(self, x: float) -> torch.Tensor:
        return torch.as_tensor(self.a(x) + 2 * self.b(x))


class Pair(c.Run):
    def parts(self) -> Any:
        return [self.model.a, self.model.b]


@row(resumed=True, uninterrupted=True, keys=[f"{i}.{name}" for i in range(2) for name in NAMES])
def two_models(rank: int, world: int) -> dict[str, Any]:
    return c.differences(lambda: Pair(Two()), rank, 2)


@row(saved=0, keys=[], resumed=True, uninterrupted=True)
def between_windows(rank: int, world: int) -> dict[str, Any]:
    """Tiny, and no collective: one rank alone may call it."""
    run = c.Run(c.ddp()).train(c.feed(rank, 0, 4))
    if rank == 0:
        assert run.sync.state_dict()["windows"] == 1
    run.close()
    found = c.differences(lambda: c.Run(c.ddp()), rank, 0)
    return {**found, "saved": found["micro_steps"]}


# Counts.


@row(
    gradient={AR: 1 + 1 + 1},
    reductions=3,
    extra=1,
    late=0,
    windows_mismatched=0,
    windows_full=2,
    suppressed=6,
    overrides=0,
    told=[],
    counts=True,
    again=0,
)
def counts_ddp(rank: int, world: int) -> dict[str, Any]:
    run = c.Run(c.ddp())
    with t.Watch(run.sync) as watch:
        run.train(c.feed(rank, 0, 4 + 2))
        run.sync.state_dict()
        between = run.sync.stats()["gradient_collectives"]
        run.sync.state_dict()  # nothing is left to reduce
        again = run.sync.stats()["gradient_collectives"] - between
        run.train(c.feed(rank, 6, 2))
    return seen(watch, run, again=again)


@row(gradient={RS: 3 * 3}, reductions=3, extra=1, late=0, windows_mismatched=0, overrides=0, told=[], counts=True)
def counts_fsdp(rank: int, world: int) -> dict[str, Any]:
    run = c.Run(c.sharded(t.mesh(world)), {"mode": "window"})
    with t.Watch(run.sync) as watch:
        run.train(c.feed(rank, 0, 4 + 2))
        run.sync.state_dict()
        run.train(c.feed(rank, 6, 2))
    return seen(watch, run)


def seen(watch: t.Watch, run: c.Run, **more: Any) -> dict[str, Any]:
    after = run.sync.stats()
    extra = sum(role["declared_extra"] for role in after["roles"].values())
    run.close()
    found = watch.seen(extra=extra, overrides=after["overrides"], **more)
    return {**found, "counts": found["profiler"] == found["gradgate"] or (found["profiler"], found["gradgate"])}
