"""Rows of CASES.md about what a wrapper defers: N11 to N13."""

from __future__ import annotations

from typing import Any

import gradgate
import rows
import torch
import trainers as t
from rows import Says, row
from torch import nn

AR, RS, AG = "all_reduce", "reduce_scatter", "all_gather"


# N11: what was deferred before a discarded window does not come back.


@row(gradients=[11.0], boundary=False)
def n11_discarded_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return discarded(t.fsdp(t.Units(2)), rank, mode="window")


@row(gradients=[11.0], boundary=False)
def n11_discarded_fsdp2_parameters_stay(rank: int, world: int) -> dict[str, Any]:
    return discarded(t.fsdp(t.Units(2)), rank, mode="window", keep_params=True)


@row(world=4, gradients=[11.0], boundary=False)
def n11_discarded_hsdp(rank: int, world: int) -> dict[str, Any]:
    return discarded(t.fsdp(t.Units(2), (2, 2)), rank // 2, mode="window_replica")


@row(world=4, gradients=[11.0], boundary=False)
def n11_discarded_hsdp_all_deferred(rank: int, world: int) -> dict[str, Any]:
    return discarded(t.fsdp(t.Units(2), (2, 2)), rank // 2, mode="window")


@row(gradients=[11.0], boundary=False)
def n11_discarded_ddp(rank: int, world: int) -> dict[str, Any]:
    return discarded(t.ddp(), rank)


def discarded(model: nn.Module, rank: int, **options: Any) -> dict[str, Any]:
    """Two deferred micro-steps of a window of four are thrown away before the epoch's end; the next window is one micro-step of 2 / 20."""
    optimizer = t.sgd(model)
    with gradgate.attach(model, optimizer, accumulate=4, **options) as sync, t.Watch(sync) as watch:
        for c in t.data(rank, 2):
            with sync.micro_step():
                model(c).backward()
        sync.discard()
        stepping = sync.flush()
        optimizer.zero_grad()
        found = t.drive(sync, watch, model, optimizer, t.data(rank, 2)[1:], last=lambda i: True)
    return watch.seen(gradients=[t.one(b) for b in found], boundary=stepping)


# N12: one parameter group of two weights, each used in another micro-step.


class Two(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.zeros(s, dtype=torch.float64)) for s in (4, size))

    def forward(self, c: float, name: str) -> torch.Tensor:
        return torch.as_tensor(c * getattr(self, name).sum())


def each_in_turn(rank: int, shape: tuple[int, ...], size: int, **options: Any) -> dict[str, Any]:
    from torch.distributed.fsdp import fully_shard

    model: Any = fully_shard(Two(size), mesh=t.mesh(*shape))
    t.KEPT.append(model)
    optimizer = t.sgd(model)
    with gradgate.attach(model, optimizer, accumulate=2, **options) as sync, t.Watch(sync) as watch:
        found = t.drive(sync, watch, model, optimizer, t.data(rank, 2) * 2, forward=lambda i, c: model(c, "ab"[i % 2]))
    return watch.seen(gradients=found)


@row(world=4, gradients=[[5.5, 11.0]] * 2)
def n12_equal_sizes(rank: int, world: int) -> dict[str, Any]:
    return each_in_turn(rank // 2, (2, 2), 4, mode="window_replica")


@row(world=4, gradients=[[5.5, 11.0]] * 2)
def n12_other_sizes(rank: int, world: int) -> dict[str, Any]:
    return each_in_turn(rank // 2, (2, 2), 6, mode="window_replica")


@row(gradients=[[5.5, 11.0]] * 2)
def n12_one_dimension(rank: int, world: int) -> dict[str, Any]:
    return each_in_turn(rank, (2,), 4, mode="window")


@row(gradients=[[5.5, 11.0]] * 2)
def n12_one_dimension_reducing_each(rank: int, world: int) -> dict[str, Any]:
    return each_in_turn(rank, (2,), 4, mode="every_micro_step")


# N13: clip inside a deferred window.


def clip_inside(rank: int, model: nn.Module, **options: Any) -> dict[str, Any]:
    """The norm after two of four micro-steps is the true one; going on without a step would mix, and is refused."""
    optimizer = t.sgd(model)
    with gradgate.attach(model, optimizer, accumulate=4, **options) as sync:
        for c in t.data(rank, 2):
            with sync.micro_step():
                model(c).backward()
        norm: Any = nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        with rows.refused(gradgate.Refused) as refusal, sync.micro_step():
            pass
        late = sync.stats()["late"]
    return {"norm": float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm), "refusal": refusal[0], "late": late}


INSIDE: dict[str, Any] = {"norm": 16.5 * 8**0.5, "refusal": Says("Refused", "clip_grad_norm_", "micro-step 2 of 4")}


@row(**INSIDE, late=1)
def n13_clip_inside_a_deferred_window(rank: int, world: int) -> dict[str, Any]:
    return clip_inside(rank, t.fsdp(t.Units(2)), mode="window")


@row(**INSIDE, late=1)
def n13_clip_inside_a_window_ddp(rank: int, world: int) -> dict[str, Any]:
    return clip_inside(rank, t.ddp(t.Units(2)))


@row(norm=16.5 * 8**0.5, given=16.5, late=1)
def norm_of_given_gradients_inside_a_window(rank: int, world: int) -> dict[str, Any]:
    """As when clipping in two: get_total_norm, then clip_grads_with_norm_."""
    model = t.ddp(t.Units(2))
    with gradgate.attach(model, t.sgd(model), accumulate=4) as sync:
        for c in t.data(rank, 2):
            with sync.micro_step():
                model(c).backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        return {"norm": float(norm), "given": float(gradients[0].flatten()[0]), "late": sync.stats()["late"]}


@row(world=4, **INSIDE)
def n13_clip_inside_a_deferred_window_hsdp(rank: int, world: int) -> dict[str, Any]:
    return clip_inside(rank // 2, t.fsdp(t.Units(2), (2, 2)), mode="window_replica")


@row(gradients=[16.5], weights=-16.5, windows_late=1)
def n13_step_inside_a_deferred_window(rank: int, world: int) -> dict[str, Any]:
    model = t.fsdp(t.Units(2))
    optimizer, found = t.sgd(model, lr=1.0), []
    optimizer.register_step_post_hook(lambda *_: found.append(t.one(t.gradients(model))))
    with gradgate.attach(model, optimizer, accumulate=4, mode="window") as sync, t.Watch(sync) as watch:
        for c in t.data(rank, 2):
            with sync.micro_step():
                model(c).backward()
        optimizer.step()
    return watch.seen(gradients=found, weights=t.one(t.weights(model)))
