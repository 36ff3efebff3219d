"""Fabric: gradgate.attach on what fabric.setup returned."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import exact
import gradgate
import torch
import trainers as t
from rows import row

AR, RS = "all_reduce", "reduce_scatter"
N, BATCHES = 4, 10


def fabric_of(strategy: Any) -> Any:
    from lightning import fabric

    warnings.filterwarnings("ignore")
    made = fabric.Fabric(accelerator="cpu", devices=torch.distributed.get_world_size(), strategy=strategy)
    made.launch()
    return made


def loop(strategy: Callable[[], Any], gate: bool, *, own: bool = False, options: Any = None) -> dict[str, Any]:
    """`own`: fabric.no_backward_sync is there as well, for what it can do."""
    fabric = fabric_of(strategy())
    torch.manual_seed(3)
    net = torch.nn.Linear(4, 2, dtype=torch.float64)
    with torch.no_grad():
        net.weight.copy_(torch.arange(8, dtype=torch.float64).reshape(2, 4) - 2)
        net.bias.zero_()
    model = fabric.setup_module(net)
    optimizer: Any = fabric.setup_optimizers(torch.optim.SGD(model.parameters(), lr=2.0**-8))
    t.KEPT.append(model)
    sync = gradgate.attach(model, optimizer, accumulate=N, **(options or {})) if gate else None
    generator = torch.Generator().manual_seed(5 + fabric.global_rank)
    norms, micro = [], torch.randint(-3, 4, (BATCHES, 1, 4), generator=generator).to(torch.float64)
    watch = t.Watch(*([sync] if sync else []))
    with watch:
        for number, x in enumerate(micro):
            last = (number + 1) % N == 0 or number + 1 == BATCHES
            quiet: Any = fabric.no_backward_sync(model, enabled=not last) if own else contextlib.nullcontext()
            micro_step: Any = sync.micro_step() if sync else contextlib.nullcontext()
            with quiet, micro_step:
                fabric.backward(model(x).sum() / N)
            if last:
                norms.append(float(fabric.clip_gradients(model, optimizer, max_norm=2.0**20)))
                optimizer.step()
                optimizer.zero_grad()
    seen = watch.seen()
    if sync:
        sync.close()
    return seen | {"hash": exact.parameter_hash(model.parameters()), "norms": norms}


def both(strategy: Callable[[], Any], **how: Any) -> dict[str, Any]:
    plain, gated = loop(strategy, False, own=how.get("own", False)), loop(strategy, True, **how)
    same = plain["hash"] == gated["hash"] and plain["norms"] == gated["norms"]
    return gated | {"same": same, "before": plain["profiler"]}


@row(same=True, gradient={AR: 3}, suppressed=8, late=1, windows=3, steps=3, told=[])
def fabric_ddp(rank: int, world: int) -> dict[str, Any]:
    return both(lambda: "ddp")


@row(same=True, gradient={AR: 3}, suppressed=8, late=1, windows=3, steps=3, told=[])
def fabric_ddp_with_its_own_context(rank: int, world: int) -> dict[str, Any]:
    return both(lambda: "ddp", own=True)


def model_parallel() -> Any:
    from lightning.fabric.strategies.model_parallel import ModelParallelStrategy

    def parallelize(module: Any, mesh: Any) -> Any:
        return torch.distributed.fsdp.fully_shard(module, mesh=mesh["data_parallel"])

    return ModelParallelStrategy(parallelize, data_parallel_size=2, tensor_parallel_size=1)


@row(same=True, gradient={RS: 3}, suppressed=8, late=1, windows=3, steps=3, told=[])
def fabric_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return both(model_parallel, options={"mode": "window"})


@row(same=True, gradient={RS: 3}, windows=3, steps=3, told=["override"])
def fabric_fsdp2_with_its_own_context(rank: int, world: int) -> dict[str, Any]:
    return both(model_parallel, own=True, options={"mode": "window"})


@row(grads=[None, 11.0], zeroed=True)
def fabric_fsdp2_zero_grad_drops_what_is_deferred(rank: int, world: int) -> dict[str, Any]:
    """Fabric's optimizer has a zero_grad of its own."""
    fabric = fabric_of(model_parallel())
    model = fabric.setup_module(t.Units())
    optimizer: Any = fabric.setup_optimizers(t.sgd(model))
    t.KEPT.append(model)
    grads: list[Any] = []
    with gradgate.attach(model, optimizer, accumulate=2, mode="window") as sync:
        with sync.micro_step():
            fabric.backward(model(1.0))
        optimizer.zero_grad()
        grads.append(t.one(t.gradients(model)))
        with sync.micro_step(last=True):
            fabric.backward(model(2.0 * 10**rank))
        grads.append(t.one(t.gradients(model)))
        optimizer.step()
    return {"grads": grads, "zeroed": "zero_grad" in vars(optimizer)}
