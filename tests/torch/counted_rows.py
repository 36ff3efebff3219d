"""Rows of CASES.md about what is counted, and as what: N3, N8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradgate
import torch
import torch.distributed as dist
import trainers as t
from rows import row
from torch import nn
from torch.utils.checkpoint import checkpoint

AR, RS, AG = "all_reduce", "reduce_scatter", "all_gather"


# N3: whatever goes through c10d is counted.


def everything(rank: int, model: nn.Module) -> dict[str, Callable[[], object]]:
    import torch.distributed._functional_collectives as functional
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    world = dist.get_world_size()
    group: Any = dist.group.WORLD
    x = torch.ones(4)
    parts = [torch.empty(4) for _ in range(world)]

    def spread(mesh: Any) -> Any:
        return distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])

    def reduced(v: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(functional.all_reduce(v * 2, "sum", group) + 1)

    def coalesced() -> None:
        with dist._coalescing_manager(group):
            dist.all_reduce(x.clone())
            dist.all_reduce(x.clone())

    def inference() -> None:
        with torch.inference_mode():
            dist.all_reduce(torch.ones(4))
            functional.all_reduce(torch.ones(4), "sum", group)

    def recomputed() -> None:
        leaf = torch.ones(4, requires_grad=True)

        def inner(v: torch.Tensor) -> torch.Tensor:
            dist.all_reduce(v.detach().clone())
            return v.sin()

        checkpoint(inner, leaf, use_reentrant=False).sum().backward()

    def swapped() -> None:
        if rank % 2 == 0:
            dist.send(x, rank + 1)
            dist.recv(torch.empty(4), rank + 1)
        else:
            dist.recv(torch.empty(4), rank - 1)
            dist.send(x, rank - 1)

    return {
        "plain": lambda: (dist.all_reduce(x), dist.broadcast(x, 0), dist.reduce(x, 0), dist.all_gather(parts, x), dist.barrier()),
        "to and from one": lambda: (
            dist.gather(x, parts if rank == 0 else None, 0),
            dist.scatter(x, parts if rank == 0 else None, 0),
        ),
        "asynchronous": lambda: dist.all_reduce(x, async_op=True).wait(),
        "shards": lambda: (
            dist.reduce_scatter_tensor(torch.empty(4), torch.ones(4 * world)),
            dist.all_gather_into_tensor(torch.empty(4 * world), x),
            dist.all_to_all_single(torch.empty(4), x),
        ),
        "swapped": swapped,
        "coalesced": coalesced,
        "functional": lambda: functional.all_reduce(x, "sum", group) + functional.all_gather_tensor(x, 0, group)[:4],
        "DTensor": lambda: (
            spread(t.mesh(world)).redistribute(placements=[Replicate()]),
            spread(t.mesh(world)).sum().full_tensor(),
        ),
        "inference": inference,
        "compiled": lambda: torch.compile(reduced, backend="aot_eager")(x),
        "recomputed": recomputed,
        "objects": lambda: dist.all_gather_object([None] * world, rank),
    }


@row(same=True, none=[])
def n3_counted_as_torchs_profiler_does(rank: int, world: int) -> dict[str, Any]:
    """None of them is of the gradients' size, so that none is taken for one."""
    model = t.ddp(t.Units(2, size=7))
    optimizer, differing, none = t.sgd(model), {}, []
    with gradgate.attach(model, optimizer, accumulate=4) as sync:
        for c in t.data(rank) * 2:  # buckets are what they will be after the first window
            with sync.micro_step():
                model(c).backward()
            sync.step()
        for name, action in everything(rank, model).items():
            with t.Watch(sync) as watch:
                action()
            seen = watch.seen()
            if seen["profiler"] != seen["gradgate"] or seen["gradient"]:
                differing[name] = (seen["profiler"], seen["gradgate"], seen["gradient"])
            if not seen["profiler"]:
                none.append(name)
    return {"same": differing == {} or differing, "none": none}


# N8: logging on the wrapper's own group.


@row(gradient={AR: 1}, ours={AR: 1}, profiler={AR: 1 + 1 + 4}, gradients=[55.0], mean=27.5 / 2, others=4)
def n8_loss_logged_in_every_micro_step(rank: int, world: int) -> dict[str, Any]:
    return logging(rank, inside_backward=False)


@row(gradient={AR: 1}, profiler={AR: 1 + 1 + 4}, gradients=[55.0], others=4)
def n8_logged_inside_the_backward(rank: int, world: int) -> dict[str, Any]:
    return logging(rank, inside_backward=True)


def logging(rank: int, *, inside_backward: bool) -> dict[str, Any]:
    model = t.ddp()
    optimizer, means = t.sgd(model), []

    def log(value: torch.Tensor) -> None:
        value = value.detach().clone()
        dist.all_reduce(value, op=dist.ReduceOp.SUM)
        means.append(float(value) / 2)

    def forward(i: int, c: float) -> torch.Tensor:
        loss = torch.as_tensor(model(c) + c)
        if inside_backward:
            loss.register_hook(log)
        else:
            log(loss)
        return loss

    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        found = t.drive(sync, watch, model, optimizer, t.data(rank), forward=forward)
    seen = watch.seen(gradients=[t.one(b) for b in found], mean=sum(means) / 4)
    return seen | {"others": seen["gradgate"][AR] - seen["gradient"].get(AR, 0) - seen["ours"][AR]}


@row(gradient={AR: 1}, ours={AR: 2}, profiler={AR: 3}, mean={"loss": 27.5 / 2}, at=[0, 0, 0, 3])
def n8_mean_rides_beside_the_ballot(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp()
    with gradgate.attach(model, t.sgd(model), accumulate=4) as sync, t.Watch(sync) as watch:
        for c in t.data(rank):
            with watch.place(), sync.micro_step():
                loss = model(c) + c
                loss.backward()
                sync.mean(loss=loss)
        means = sync.means
    return watch.seen(mean=means)
