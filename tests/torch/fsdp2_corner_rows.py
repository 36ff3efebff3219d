"""What the tests of FSDP2's adapter compare, on two ranks: kept parameters, exceptions, evaluation, memory, other wrappings."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import counting
import exact
import sharded
import torch
from fsdp2_models import adapted, grouped, make, parity, refusal, replicated
from gradgate.adapters import fsdp2, fsdp2_selftest, fsdp_gloo
from gradgate.adapters.base import Plan
from sharded import FULL
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.utils.checkpoint import checkpoint


def two_ranks(rank: int, world: int) -> dict[str, Any]:
    def recomputed(block: Callable[..., Any], *args: Any) -> Any:
        return checkpoint(block, *args, use_reentrant=False)

    line = init_device_mesh("cpu", (2,))
    args = (rank, world, line)
    adamw = {"make": torch.optim.AdamW, "weight_decay": 0.5}
    rows: dict[str, Any] = {
        "window": parity(*args, [FULL, FULL[:2], FULL], late=(1,)),
        "kept": parity(*args, [FULL, FULL[:2], FULL], late=(1,), keep=True, optimizer=adamw),
        "replica": parity(*args, [FULL], plan=Plan.SHARD),
        "recomputed": parity(*args, [FULL, FULL[:3]], late=(1,), keep=True, around=recomputed),
        "replicate": parity(*args, [FULL, FULL[:3]], late=(1,), build=replicated),
        "replicate partial": parity(*args, [FULL, FULL[:3]], late=(1,), build=replicated, plan=Plan.SHARD),
        "grouped": parity(*args, [FULL, FULL[:3]], late=(1,), build=grouped, keep=True),
        "compiled": compiled(*args, False),
        "compiled whole": compiled(*args, True),
        "facts": facts(*args),
        "roots": several_roots(*args),
        "early step": [early_step(*args, keep) for keep in (False, True)],
        "settled": settled(*args),
        "exceptions": [exceptions(*args, where) for where in ("forward", "backward")],
        "memory": memory(*args),
        "no replicas": partial_of_one_shard(*args),
        "refused": refused(*args),
    }
    fsdp2_selftest._passed = False
    begun = time.monotonic()
    fsdp2_selftest.self_test()
    rows["self test"] = time.monotonic() - begun
    rows["gloo"] = fsdp_gloo.gloo_reduce_scatter_averages()
    return rows


def compiled(rank: int, world: int, mesh: Any, whole: bool) -> dict[str, Any]:
    plain, net = make(mesh), make(mesh)
    calls = [torch.compile(model, backend="eager") if whole else model for model in (plain, net)]
    for block in () if whole else (*plain.blocks, *net.blocks):
        block.compile(backend="eager")
    windows = [FULL, FULL[:2]]
    sharded.reduce_each(calls[0], windows, rank, world, sharded.stepping(plain))
    sharded.deferred(calls[1], adapted(calls[1], True), windows, rank, world, sharded.stepping(net), late=(1,))
    torch._dynamo.reset()
    return {"same": exact.parameter_hash(net.parameters()) == exact.parameter_hash(plain.parameters()), "moved": True, "left": []}


def facts(rank: int, world: int, mesh: Any) -> dict[str, Any]:
    tall = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
    found = {}
    for name, net in (("line", make(mesh)), ("tall", make(tall)), ("replicate", replicated(mesh))):
        [adapter] = fsdp2.find(net)
        effects = (adapter.no_effect("mode", "window_replica"), adapter.no_effect("keep_params", True))
        found[name] = (
            adapter.kind,
            [(g.role.name, g.process_group.size()) for g in adapter.groups()],
            {f"{role.name} {op}": n for (role, op), n in (adapter.expected() or {}).items()},
            [effect and effect.reason for effect in effects],
        )
    return found


def several_roots(rank: int, world: int, mesh: Any) -> dict[str, Any]:
    """Two parts of a model that is not wrapped itself; the second is not used by the window's last micro-step."""
    both = [make(mesh), make(mesh)]
    adapters = fsdp2.find(torch.nn.ModuleList(both))
    for used in ((0, 1), (0,)):
        for adapter in adapters:
            adapter.arm(Plan.REDUCE if used == (0,) else Plan.ACCUMULATE)
        sum(both[i](1.0) for i in used).backward()
        for adapter in adapters:
            adapter.disarm()
    reduced = [adapter.reduced() for adapter in adapters]
    pending = [adapter.pending() for adapter in adapters]
    adapters[1].late()
    for adapter in adapters:
        adapter.check()
    return {
        "reduced": reduced,
        "pending": pending,
        "after": [net.g.grad.full_tensor()[0].item() for net in both],
        "names": [len(a.parameters()) for a in adapters],
    }


def early_step(rank: int, world: int, mesh: Any, keep: bool) -> dict[str, Any]:
    """The optimizer steps after 2 of 4 micro-steps, gradients clipped before."""
    net = make(mesh)
    with torch.no_grad():
        net(1.0)  # leaves the root unsharded
    adapter = adapted(net, keep)
    for _ in range(2):
        adapter.arm(Plan.ACCUMULATE)
        net(1.0).backward()
        adapter.disarm()
    seen = [p.grad is None for p in adapter.parameters()]
    pending = adapter.pending()
    adapter.settle()
    adapter.late()
    total: Any = torch.nn.utils.clip_grad_norm_(net.parameters(), 1e9)
    squares = sum(float((2 * torch.arange(1, n + 1)).pow(2).sum()) for n in (15, 4, 15, 4, 6, 6, 3))
    sharded.stepping(net)()
    adapter.arm(Plan.ACCUMULATE)
    loss = net(1.0, "g").item()
    return {"hidden": all(seen) and pending, "norm": total.full_tensor().item() / squares**0.5, "loss": loss}


def settled(rank: int, world: int, mesh: Any) -> dict[str, Any]:
    """Evaluation and a state dict inside a window whose parameters are kept, and evaluation after it."""

    net = make(mesh)
    adapter = adapted(net, keep=True)
    found: dict[str, Any] = {}
    for i in range(4):
        adapter.arm(Plan.REDUCE if i == 3 else Plan.ACCUMULATE)
        net(1.0).backward()
        adapter.disarm()
        if i == 1:
            with torch.no_grad(), counting.profiled() as counts:
                net(1.0)
            found["inside"] = dict(counts)
        if i == 2:
            adapter.settle()
            state = net.state_dict()
            found["sharded"] = all(hasattr(value, "full_tensor") for value in state.values())
            with torch.no_grad(), counting.profiled() as counts:
                net(1.0)
                net(1.0)
            found["settled"] = dict(counts)
    found["sharded after"] = all(g.is_sharded for g in adapter._groups)
    found["gradient"] = net.g.grad.full_tensor()[0].item()
    with torch.no_grad(), counting.profiled() as counts:
        net(1.0)
        net(1.0)
    found["between"] = dict(counts)
    return found


def exceptions(rank: int, world: int, mesh: Any, where: str) -> dict[str, Any]:
    """A micro-step fails on all ranks, as for want of memory, and is tried again."""

    found = {}
    for plan, keep in ((Plan.ACCUMULATE, False), (Plan.ACCUMULATE, True), (Plan.SHARD, False)):
        net = make(mesh)
        adapter = adapted(net, keep)
        told = ""
        for i in range(4):
            adapter.arm(Plan.REDUCE if i == 3 else plan)
            if i in (1, 3):
                net.around = sharded.failing(where, net.blocks[1 if where == "forward" else 2])
                try:
                    net(1.0).backward()
                except MemoryError as error:
                    told = str(error)
                finally:
                    adapter.disarm()
                adapter.settle()
                net.around = None
                adapter.arm(Plan.REDUCE if i == 3 else plan)
            net(1.0).backward()
            adapter.disarm()
        adapter.check()
        found[f"{plan.name} {keep}"] = [told, net.blocks[0].a.grad.full_tensor()[0, 0].item(), net.g.grad.full_tensor()[0].item()]
    return found


def memory(rank: int, world: int, mesh: Any) -> dict[str, Any]:
    """Bytes of gradients held in a window, as predicted and as they are, per numbers of parameters and shards."""

    found = {}
    policies = {
        "float64": (MixedPrecisionPolicy(), torch.float64),
        "float32 in bfloat16, reduced in float32": (MixedPrecisionPolicy(torch.bfloat16, torch.float32), torch.float32),
        "float32 in bfloat16": (MixedPrecisionPolicy(torch.bfloat16), torch.float32),
    }
    for name, (policy, dtype) in policies.items():
        net = make(mesh, policy, dtype)
        adapter = adapted(net)
        predicted = adapter.deferred_bytes()
        adapter.arm(Plan.ACCUMULATE)
        net(1.0).backward()
        adapter.disarm()
        held = 0
        for group in adapter._groups:
            for p in group.fsdp_params:
                for grad in (p.unsharded_accumulated_grad, p._unsharded_param.grad, p.sharded_param.grad):
                    held += 0 if grad is None else grad.numel() * grad.itemsize
        adapter.late()
        reducing = sum(p.grad.to_local().numel() * p.grad.to_local().itemsize for p in net.parameters())
        found[name] = (predicted, held - reducing)
    found["kept"] = adapted(make(mesh)).unsharded_bytes()
    return found


def refused(rank: int, world: int, mesh: Any) -> list[str]:
    """A torch whose private names do something else."""
    net = make(mesh)
    adapter = adapted(net)
    adapter.arm(Plan.ACCUMULATE)
    net(1.0).backward()
    adapter.disarm()
    adapter._root._root_post_backward_final_callback = lambda: None
    told = [refusal(adapter.late)]
    group = type(adapter._groups[0])
    former, group.post_backward = group.post_backward, lambda self: None
    fsdp2_selftest._passed = False
    told.append(refusal(adapter.self_test))
    group.post_backward = former
    adapter.self_test()
    return told


def partial_of_one_shard(rank: int, world: int, mesh: Any) -> dict[str, Any]:
    """Shard 1, replicate 2; c = 1, 2, 3 | 10, 20, 30, a step after 2; then micro-step 3."""

    tall = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
    net = make(tall)
    adapter = adapted(net)
    found = []
    with counting.profiled() as counts:
        for c, plan, late in ((1, Plan.SHARD, False), (2, Plan.SHARD, True), (3, Plan.REDUCE, False)):
            adapter.arm(plan)
            net(c * (10.0 if rank else 1.0)).backward()
            adapter.disarm()
            if late:
                adapter.late()
            if late or plan is Plan.REDUCE:
                found.append(net.g.grad.full_tensor()[0].item())
                net.zero_grad()
    return {"found": found, "counts": dict(counts)}
