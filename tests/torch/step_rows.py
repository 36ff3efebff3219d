"""Rows of CASES.md about the optimizer, scaler, clipping and scheduler: T36 to T39."""

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

AR, RS, AG = "all_reduce", "reduce_scatter", "all_gather"


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


CLIPPED: dict[str, Any] = {"weights": [Near(0.6), Near(0.8)]}


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

    def wrap(model: nn.Module) -> Any:
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
    calls, unscale = [], scaler.unscale_

    def counted(optimizer: torch.optim.Optimizer) -> None:
        calls.append(1)
        unscale(optimizer)

    scaler.unscale_ = counted  # type: ignore[method-assign]
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
