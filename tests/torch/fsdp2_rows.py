"""What the tests of FSDP2's adapter compare, on four ranks in two dimensions."""

from __future__ import annotations

from typing import Any

import counting
import sharded
import torch
import torch.distributed as dist
from fsdp2_models import adapted, make, parity, refusal
from gradgate.adapters.base import Plan
from sharded import FULL, Micro
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy


def four_ranks(rank: int, world: int) -> dict[str, Any]:
    hsdp = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    args = (rank, world, hsdp)
    mixed = [FULL, FULL[:3], FULL, FULL[:1], FULL]
    elsewhere = [[Micro(1), Micro(2), Micro(3, "abg")], [Micro(2), Micro(1, "cdefg")], [Micro(1, "ag"), Micro(2, "eg")]]
    apart = [[Micro(1, "eg"), Micro(2, "fg")], [Micro(1, "afg"), Micro(3, "beg"), Micro(2, "adg"), Micro(1, "g")]]
    unused = [[Micro(1, "abeg"), Micro(2, "abg")], [Micro(1, "abfg"), Micro(2, "abfg")], [Micro(1), Micro(1)]]
    adamw = {"make": torch.optim.AdamW, "weight_decay": 0.5}
    rows: dict[str, Any] = {
        "window": parity(*args, mixed, late=(1, 3)),
        "kept": parity(*args, mixed, late=(1, 3), keep=True),
        "replica": parity(*args, mixed, plan=Plan.SHARD),
        "replica late": parity(*args, mixed, late=(1, 3), plan=Plan.SHARD),
        "replica kept": parity(*args, [FULL], plan=Plan.SHARD, keep=True),
    }
    for plan in (Plan.ACCUMULATE, Plan.SHARD):
        for late in ((), range(4)):
            rows[f"elsewhere {plan.name} {late}"] = parity(*args, elsewhere, late=late, plan=plan, counted=False)
            rows[f"apart {plan.name} {late}"] = parity(*args, apart, late=late, plan=plan, counted=False)
            rows[f"unused {plan.name} {late}"] = parity(*args, unused, late=late, plan=plan, counted=False, optimizer=adamw)
    rows["setter"] = overridden(*args)
    rows["discard"] = discarded(*args)
    rows["replicas"] = replicas_differ(*args)
    rows["before"] = begun_before(*args)
    rows["facts"] = facts(*args)
    rows["mixed types"] = mixed_types(*args)
    return rows


def overridden(rank: int, world: int, mesh: Any) -> dict[str, Any]:
    """The user's own setter between two micro-steps, on the root, turns the all-reduce on again."""

    net = make(mesh)
    adapter = adapted(net)
    with counting.profiled() as counts:
        for i, micro in enumerate(sharded.FULL):
            net.set_requires_all_reduce(False)
            net.set_requires_gradient_sync(True)
            adapter.arm(Plan.REDUCE if i == 3 else Plan.SHARD)
            sharded.backward(net, micro, rank, world)
            adapter.disarm()
    adapter.check()
    told = sorted(adapter.overridden)
    adapter.close()
    net.set_requires_gradient_sync(False)
    again = adapted(net)
    again.arm(Plan.REDUCE)
    sharded.backward(net, sharded.Micro(), rank, world)
    again.disarm()
    again.close()
    flags = {(g.reduce_grads, g.all_reduce_grads) for g in again._groups}
    return {"counts": dict(counts), "told": told, "restored": flags == {(False, False)}}


def discarded(rank: int, world: int, mesh: Any) -> dict[str, Any]:
    found = {}
    for plan in (Plan.ACCUMULATE, Plan.SHARD):
        net = make(mesh)
        adapter = adapted(net)
        for _ in range(2):
            adapter.arm(plan)
            sharded.backward(net, sharded.Micro(7), rank, world)
            adapter.disarm()
        with counting.profiled() as counts:
            adapter.discard()
        pending = adapter.pending()
        adapter.arm(Plan.REDUCE)
        net(2.0).backward()
        adapter.disarm()
        found[plan.name] = (net.g.grad.full_tensor().tolist(), dict(counts), pending)
    return found


def replicas_differ(rank: int, world: int, mesh: Any) -> dict[str, Any]:
    """One replica brings no micro-step at all, or other parameters; with `agree` the others take it in."""

    replica, found = rank // 2, {}
    for name, plan, uses in (
        ("none", Plan.ACCUMULATE, ["", "aeg"]),
        ("none yet", Plan.SHARD, ["", "aeg"]),
        ("other", Plan.SHARD, ["ag", "eg"]),
    ):
        net = make(mesh)
        adapter = adapted(net)
        adapter.agree = lambda bits: dist.all_reduce(bits, op=dist.ReduceOp.MAX)
        if uses[replica]:
            adapter.arm(plan)
            net(4.0, uses[replica]).backward()
            adapter.disarm()
        adapter.late()
        parameters = (net.blocks[0].a, net.blocks[1].c, net.blocks[2].e, net.g)
        found[name] = [None if p.grad is None else p.grad.full_tensor().reshape(-1)[0].item() for p in parameters]
    return found


def begun_before(rank: int, world: int, mesh: Any) -> str:
    """A partial sum from before attach, of some parameters only."""

    net = make(mesh)
    net.set_requires_all_reduce(False)
    net(1.0, "ag").backward()
    adapter = adapted(net)

    def window() -> None:
        adapter.arm(Plan.REDUCE)
        net(1.0, "bg").backward()

    return refusal(window)


def facts(rank: int, world: int, mesh: Any) -> dict[str, Any]:
    adapter = adapted(make(mesh))
    adapter.self_test()
    return {
        "groups": [(g.role.name, g.process_group.size()) for g in adapter.groups()],
        "expected": {f"{role.name} {op}": n for (role, op), n in adapter.expected().items()},
        "parameters": len(adapter.parameters()),
        "reasons": [
            effect and effect.reason
            for effect in (
                adapter.no_effect("mode", "window_replica"),
                adapter.no_effect("mode", "window"),
                adapter.no_effect("keep_params", True),
                adapter.no_effect("bucket_mb", 25.0),
                adapter.no_effect("wire", "bf16"),
                adapter.no_effect("wire", None),
                adapter.no_effect("windows", "variable"),
                adapter.no_effect("windows", "equal"),
            )
        ],
    }


def mixed_types(rank: int, world: int, mesh: Any) -> list[Any]:
    """bfloat16 parameters reduced in float32: FSDP2 alone refuses a group of which a deferred micro-step used another parameter."""

    found = []
    for plan in (Plan.ACCUMULATE, Plan.SHARD):
        net = make(mesh, MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32), torch.float32)
        adapter = adapted(net)
        for used, now in (("eg", plan), ("fg", plan), ("fg", Plan.REDUCE)):
            adapter.arm(now)
            net(2.0, used).backward()
            adapter.disarm()
        adapter.check()
        grads = [net.blocks[2].e.grad, net.blocks[2].f.grad, net.blocks[1].c.grad]
        found.append([None if g is None else g.full_tensor()[0].item() for g in grads])
    return found
