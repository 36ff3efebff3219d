"""What a script does by itself is told once, counted, and left as it is: the bytes are those without gradgate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradgate
import rows
import torch
import torch.distributed as dist
import trainers as t
from counting import profiled
from exact import parameter_hash
from forwarding_group import Forwarding
from rows import Says, row
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 3
AR, RS = "all_reduce", "reduce_scatter"


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).double()


def sharded(model: nn.Sequential) -> Any:
    from torch.distributed.fsdp import fully_shard

    for layer in model:
        fully_shard(layer, mesh=t.mesh(dist.get_world_size()))
    fully_shard(model, mesh=t.mesh(dist.get_world_size()))
    t.KEPT.append(model)
    return model


def replicated(model: nn.Module, **options: Any) -> Any:
    t.KEPT.append(DistributedDataParallel(model, **options))
    return t.KEPT[-1]


def batch(step: int) -> torch.Tensor:
    return torch.full((8, 4), float(1 + step + 4 * dist.get_rank()), dtype=torch.float64) / 8


def plain_step(model: nn.Module, step: int) -> None:
    model(batch(step)).pow(2).mean().backward()


def compared(make: Callable[[], tuple[nn.Module, Any, Callable[[int], None]]], **options: Any) -> dict[str, Any]:
    """The same without gradgate and with it; one window of one micro-step after the other. `make`: the model, what steps on it after the
    backward or None, and a micro-step."""
    told: dict[str, Any] = {}
    hashes = []
    for attaching in (False, True):
        model, optimizer, micro_step = make()
        sync = None
        if attaching:
            given = optimizer if isinstance(optimizer, torch.optim.Optimizer) else None
            sync = gradgate.attach(model, given, **{"accumulate": 1, "deadline_s": 20, "handshake_deadline_s": 20, **options})
            ours = sync.stats()["ours"].get(AR, 0)
        with profiled() as seen:
            for step in range(STEPS):
                if sync is None:
                    micro_step(step)
                else:
                    with sync.micro_step():
                        micro_step(step)
                if optimizer is not None:
                    optimizer.step()
                    optimizer.zero_grad()
        hashes.append(parameter_hash(model.parameters()))
        if sync is not None:
            stats = sync.stats()
            op = RS if RS in stats["gradient"] else AR
            beside = stats["ours"].get(AR, 0) - ours if op == AR else 0
            told = {
                "gradgate": stats["gradient"],
                "profiler": {op: seen[op] - beside},
                "reductions": stats["reductions"],
                "mode": stats["mode"],
            }
            told |= {"told": sorted(stats["told"]), "text": list(sync.window.ledger.told.values())}
            sync.close()
    return {**told, "same": hashes[0] == hashes[1], "hash": hashes[0]}


# --- optimizers in the backward -------------------------------------------------------------------------------------------------


def hooked(model: nn.Module) -> None:
    optimizers = {parameter: torch.optim.SGD([parameter], lr=2**-6) for parameter in model.parameters()}

    def hook(parameter: Any) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)


def through_a_method(model: nn.Module) -> None:
    class Steps:
        def __init__(self) -> None:
            self.optimizers = {parameter: torch.optim.AdamW([parameter]) for parameter in model.parameters()}

        def hook(self, parameter: Any) -> None:
            self.optimizers[parameter].step()
            parameter.grad = None

    steps = Steps()
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(steps.hook)


def hooked_shards(register: Callable[[nn.Module], None]) -> Callable[[], Any]:
    def make() -> Any:
        model = sharded(layers())
        register(model)
        return model, None, lambda step: plain_step(model, step)

    return make


IN_BACKWARD: dict[str, Any] = {
    "same": True,
    "told": ["optimizer_in_backward"],
    "mode": "every_micro_step",
    "reductions": STEPS,
    "gradgate": {RS: 2 * STEPS},
}


@row(**IN_BACKWARD, text=Says("SGD steps inside the backward"))
def fsdp2_steps_in_hooks(rank: int, world: int) -> dict[str, Any]:
    return compared(hooked_shards(hooked), accumulate=1)


@row(**IN_BACKWARD, text=Says("AdamW steps inside the backward"))
def fsdp2_steps_in_methods(rank: int, world: int) -> dict[str, Any]:
    return compared(hooked_shards(through_a_method))


@row(**IN_BACKWARD)
def asked_to_defer_it_does_not(rank: int, world: int) -> dict[str, Any]:
    return compared(hooked_shards(hooked), accumulate=STEPS, mode="window")


@row(applied=["optimizer_in_backward"], harmless=[])
def hooks_that_step_and_others(rank: int, world: int) -> dict[str, Any]:
    from torch.distributed.optim import _apply_optimizer_in_backward

    model, other = sharded(layers()), sharded(layers())
    _apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.1})
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    seen = []
    for parameter in other.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: seen.append(optimizer.param_groups[0]["lr"]))
    out = {}
    for name, one, held in (("applied", model, None), ("harmless", other, optimizer)):
        with gradgate.attach(one, held, accumulate=2, handshake_deadline_s=20) as sync:
            out[name] = sorted(sync.stats()["told"])
    return out


REFUSED = Says("Unreduced", "SGD steps in hooks on gradients that are not reduced yet", "fully_shard")


@row(ddp=REFUSED, unwrapped=REFUSED)
def hooks_before_the_reduction(rank: int, world: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, model in (("ddp", replicated(layers())), ("unwrapped", layers())):
        hooked(model)
        with rows.refused(gradgate.Unreduced) as refused:
            gradgate.attach(model, accumulate=2, handshake_deadline_s=20)
        out[name] = refused
    return out


# --- pipeline schedules ---------------------------------------------------------------------------------------------------------


def pipelined(schedule: str, wrap: Callable[[nn.Sequential], nn.Module]) -> Callable[[], Any]:
    def make() -> Any:
        from torch.distributed import pipelining

        alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
        model = wrap(layers())
        stage = pipelining.PipelineStage(model, 0, 1, torch.device("cpu"), group=alone)
        runs = getattr(pipelining, schedule)(stage, n_microbatches=4, loss_fn=lambda y, target: (y - target).pow(2).mean())
        optimizer = torch.optim.SGD(model.parameters(), lr=2**-6)
        return model, optimizer, lambda step: runs.step(batch(step), target=torch.zeros(8, 4, dtype=torch.float64))

    return make


PIPELINE: dict[str, Any] = {"same": True, "told": ["pipeline_schedule"], "mode": "every_micro_step", "reductions": STEPS}


@row(**PIPELINE, gradgate={RS: 2 * STEPS}, text=Says("a schedule over a PipelineStage", "left alone"))
def gpipe_over_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return compared(pipelined("ScheduleGPipe", sharded))


@row(**PIPELINE, gradgate={RS: 2 * STEPS})
def one_f_one_b_over_fsdp2(rank: int, world: int) -> dict[str, Any]:
    return compared(pipelined("Schedule1F1B", sharded))


@row(**PIPELINE, gradients={AR: STEPS + 1}, seen={AR: 2 * (STEPS + 1)})
def gpipe_over_ddp(rank: int, world: int) -> dict[str, Any]:
    """With the map of used parameters, as often as gradients: without it torch's own DDP fails in the second forward of a schedule. It
    reduces twice in the first step, with gradgate and without."""
    told = compared(pipelined("ScheduleGPipe", lambda model: replicated(model, find_unused_parameters=True)))
    seen = {"gradients": told.pop("gradgate"), "seen": told.pop("profiler")}
    return {**told, **seen}


# --- averaging now and then -------------------------------------------------------------------------------------------------------


def averaging() -> Any:
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
    model = replicated(layers())
    model.register_comm_hook(PostLocalSGDState(None, alone, start_localSGD_iter=1), post_localSGD_hook)
    optimizer = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=2**-6), PeriodicModelAverager(period=4, warmup_steps=0))
    return model, optimizer, lambda step: plain_step(model, step)


@row(same=True, told=["local_sgd"], mode="every_micro_step", text=Says("PostLocalSGDOptimizer", "replicas are not compared"))
def post_local_sgd(rank: int, world: int) -> dict[str, Any]:
    """Parity is asked for in every window; replicas that differ by design are none of its business."""
    told = compared(averaging, parity_every=1)
    return {key: told[key] for key in ("same", "told", "mode", "text")}


# --- a process group in Python ------------------------------------------------------------------------------------------------------


@row(same=True, told=["python_process_group"], mode="every_micro_step", text=Says("Forwarding", "cannot be counted"), steps=STEPS)
def python_group(rank: int, world: int) -> dict[str, Any]:
    hashes = []
    for attaching in (False, True):
        model = replicated(layers(), process_group=Forwarding(dist.group.WORLD))
        optimizer = torch.optim.SGD(model.parameters(), lr=2**-6)
        sync = gradgate.attach(model, optimizer, accumulate=1, handshake_deadline_s=20) if attaching else None
        for step in range(STEPS):
            if sync is not None:
                with sync.micro_step():
                    plain_step(model, step)
            else:
                plain_step(model, step)
            optimizer.step()
            optimizer.zero_grad()
        hashes.append(parameter_hash(model.parameters()))
    assert sync is not None
    stats = sync.stats()
    texts = list(sync.window.ledger.told.values())
    sync.close()
    return {"same": hashes[0] == hashes[1], "told": sorted(stats["told"]), "mode": stats["mode"], "text": texts, "steps": stats["steps"]}


# --- optimizers that communicate in their step ----------------------------------------------------------------------------------


def redundancy() -> Any:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = replicated(layers())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=2**-6)
    return model, optimizer, lambda step: plain_step(model, step)


@row(same=True, told=[], reductions=STEPS, gradgate={AR: STEPS}, mode="window")
def zero_redundancy(rank: int, world: int) -> dict[str, Any]:
    """It sends parameters in its step, not gradients: nothing is in the way of deferring."""
    return compared(redundancy)


class Reducing(torch.optim.SGD):
    """Averages gradients over all ranks in its step, as distributed second-order optimizers do."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                dist.all_reduce(parameter.grad)
                parameter.grad.div_(dist.get_world_size())
        return super().step(closure)


def reducing() -> Any:
    model = replicated(layers())
    return model, Reducing(model.parameters(), lr=2**-6), lambda step: plain_step(model, step)


@row(same=True, told=Says("reduces_in_step"), gradients={AR: STEPS}, text=Says("Reducing reduces in its own step (4 collectives"))
def reduces_in_step(rank: int, world: int) -> dict[str, Any]:
    told = compared(reducing)
    told["gradients"] = told.pop("gradgate")
    return told
