"""Rows of CASES.md that were found while trying the design. Elsewhere: N5 (observed windows; its kind is in test_cases_step, T45), N6 and
what else ends a job (test_refusals), N9 and N10 (test_daemon)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradgate
import rows
import torch
import torch.distributed as dist
import trainers as t
from rows import Each, Says, row
from torch import nn

AR, RS, AG = "all_reduce", "reduce_scatter", "all_gather"

# N1: one rank reduces in its backward, the other one late.


def one_late(rank: int, model: nn.Module) -> dict[str, Any]:
    optimizer = t.sgd(model, lr=1.0)
    with gradgate.attach(model, optimizer, accumulate=4, windows="variable") as sync, t.Watch(sync) as watch:
        found = t.drive(sync, watch, model, optimizer, t.data(rank, 4 - rank))
        if rank == 1:
            assert sync.flush()
            found.append(t.gradients(model))
            t.finish(optimizer, model)
        found += t.drive(sync, watch, model, optimizer, t.data(rank))
    return watch.seen(gradients=[t.one(b) for b in found], weights=t.one(t.weights(model)))


LATE: dict[str, Any] = {"gradients": [35.0, 55.0], "weights": -90.0, "late": Each(0, 1), "windows_late": Each(0, 1), "steps": 2}


@row(**LATE, gradient={AR: 2}, ours={AR: 2}, profiler={AR: 4, "broadcast": 2})
def n1_one_bucket(rank: int, world: int) -> dict[str, Any]:
    return one_late(rank, t.ddp())


@row(**LATE, gradient={AR: 1 + 3})
def n1_three_buckets(rank: int, world: int) -> dict[str, Any]:
    return one_late(rank, t.ddp(t.Units(3), buckets=True))


@row(**LATE, gradient={AR: 2})
def n1_bucket_views(rank: int, world: int) -> dict[str, Any]:
    return one_late(rank, t.ddp(t.Units(3), gradient_as_bucket_view=True))


@row(**LATE, gradient={AR: 2}, profiler={AR: 2 + 2 + 2})
def n1_find_unused(rank: int, world: int) -> dict[str, Any]:
    return one_late(rank, t.ddp(t.Units(3), find_unused_parameters=True))


@row(**LATE)
def n1_unwrapped(rank: int, world: int) -> dict[str, Any]:
    return one_late(rank, t.Units(3))


# N2: parameters kept inside the window, and a step in the middle of it.


@row(norm=16.5 * 8**0.5, after=-16.5 * 8, gradients=[16.5, 38.5], weights=-55.0)
def n2_step_inside_a_window_of_kept_parameters(rank: int, world: int) -> dict[str, Any]:
    model = t.fsdp(t.Units(2))
    optimizer = t.sgd(model, lr=1.0)
    with gradgate.attach(model, optimizer, accumulate=4, mode="window", keep_params=True) as sync, t.Watch(sync) as watch:
        found = t.drive(sync, watch, model, optimizer, t.data(rank, 2))
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        found.append(t.gradients(model))
        t.finish(optimizer, model)
        with torch.no_grad():
            after = float(model(1.0))
        for c in t.data(rank, 4)[2:]:
            with sync.micro_step():
                model(c).backward()
        assert sync.flush()
        found.append(t.gradients(model))
        t.finish(optimizer, model)
    return watch.seen(gradients=[t.one(b) for b in found], norm=float(norm.full_tensor()), after=after, weights=t.one(t.weights(model)))  # type: ignore[attr-defined]


# N3: whatever goes through c10d is counted.


def everything(rank: int, model: nn.Module) -> dict[str, Callable[[], object]]:
    import torch.distributed._functional_collectives as functional
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.utils.checkpoint import checkpoint

    world, group = dist.get_world_size(), dist.group.WORLD
    x = torch.ones(4)
    parts = [torch.empty(4) for _ in range(world)]

    def reduced(v: torch.Tensor) -> torch.Tensor:
        return functional.all_reduce(v * 2, "sum", group) + 1

    def coalesced() -> None:
        with dist._coalescing_manager(group):  # type: ignore[attr-defined]
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
        "asynchronous": lambda: dist.all_reduce(x, async_op=True).wait(),  # type: ignore[union-attr]
        "shards": lambda: (
            dist.reduce_scatter_tensor(torch.empty(4), torch.ones(4 * world)),
            dist.all_gather_into_tensor(torch.empty(4 * world), x),
            dist.all_to_all_single(torch.empty(4), x),
        ),
        "swapped": swapped,
        "coalesced": coalesced,
        "functional": lambda: functional.all_reduce(x, "sum", group) + functional.all_gather_tensor(x, 0, group)[:4],
        "DTensor": lambda: (
            distribute_tensor(torch.ones(4, 4), t.mesh(world), [Shard(0)]).redistribute(placements=[Replicate()]),
            distribute_tensor(torch.ones(4, 4), t.mesh(world), [Shard(0)]).sum().full_tensor(),
        ),
        "inference": inference,
        "compiled": lambda: torch.compile(reduced, backend="aot_eager")(x),
        "recomputed": recomputed,
        "objects": lambda: dist.all_gather_object([None] * world, rank),
    }


@row(same=True, none=[])
def n3_counted_as_torchs_profiler_does(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp()
    optimizer, differing, none = t.sgd(model), {}, []
    with gradgate.attach(model, optimizer, accumulate=4) as sync:
        for name, action in everything(rank, model).items():
            with t.Watch(sync) as watch:
                action()
            seen = watch.seen()
            if seen["profiler"] != seen["gradgate"] or seen["gradient"]:
                differing[name] = (seen["profiler"], seen["gradgate"], seen["gradient"])
            if not seen["profiler"]:
                none.append(name)
    return {"same": differing == {} or differing, "none": none}


# N4: buffers are broadcast in the first forward after a reduction, a late one too.


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.units, self.norm = t.Units(), nn.BatchNorm1d(2, dtype=torch.float64)

    def forward(self, c: float) -> torch.Tensor:
        with torch.no_grad():
            features = torch.full((3, 2), c, dtype=torch.float64)
        return torch.as_tensor(self.units(c) + 0.0 * self.norm(features).sum())


@row(gradients=[16.5, 55.0, 5.5, 55.0], running=True, late=2, gradient={AR: 4})
def n4_batch_norm_after_a_late_reduction(rank: int, world: int) -> dict[str, Any]:
    model = t.ddp(Normed())
    optimizer, found = t.sgd(model), []
    with gradgate.attach(model, optimizer, accumulate=4) as sync, t.Watch(sync) as watch:
        for size in (2, 4, 1, 4):
            found += t.drive(sync, watch, model, optimizer, t.data(rank, size))
            if sync.flush():
                found.append(t.gradients(model))
                t.finish(optimizer, model)
        model(0.0)
    mean = model.module.norm.running_mean
    told: list[Any] = [None] * world
    dist.all_gather_object(told, mean.tolist())
    return watch.seen(gradients=[b[0] for b in found], running=told[0] == told[1])


# N7: None stays None.


@row(unused=[1.0, None], used=0.89, gradient={RS: 2 - 1})
def n7_unused_parameters_of_a_late_window(rank: int, world: int) -> dict[str, Any]:
    return decaying(t.fsdp(t.Units(2)), rank, mode="window")


@row(unused=[1.0, None], used=0.89)
def n7_unused_parameters_of_a_late_window_ddp(rank: int, world: int) -> dict[str, Any]:
    return decaying(t.ddp(t.Units(2), find_unused_parameters=True), rank)


@row(unused=[1.0, None], used=0.89)
def n7_unused_parameters_of_a_late_window_unwrapped(rank: int, world: int) -> dict[str, Any]:
    return decaying(t.Units(2), rank)


@row(world=4, unused=[1.0, None], used=0.89)
def n7_unused_parameters_of_a_late_window_hsdp(rank: int, world: int) -> dict[str, Any]:
    return decaying(t.fsdp(t.Units(2), (2, 2)), rank, mode="window_replica")


def decaying(model: Any, rank: int, **options: Any) -> dict[str, Any]:
    """AdamW with lr 0.1 and weight decay 0.1: a weight of 1 with a gradient becomes 0.99 - 0.1, one without stays."""
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(1.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1, eps=0.0)
    with gradgate.attach(model, optimizer, accumulate=4, **options) as sync, t.Watch(sync) as watch:
        for c in t.data(rank, 2):
            with sync.micro_step():
                model(c, (0,)).backward()
        assert sync.flush()
        gradient = t.gradients(model)[1]
        optimizer.step()
    used, unused = t.weights(model)
    assert used is not None
    return watch.seen(unused=[unused, gradient], used=round(used, 9))


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
        return c * getattr(self, name).sum()


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


test_row = rows.tests(__file__, __name__)
