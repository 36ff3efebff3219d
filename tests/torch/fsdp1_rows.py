"""What the tests of FSDP1's adapter compare, for every sharding strategy."""

from __future__ import annotations

from typing import Any

import counting
import sharded
import torch
import torch.distributed as dist
from gradgate.adapters import fsdp1, fsdp1_selftest
from gradgate.adapters.base import Plan, Unreduced
from sharded import FULL, Micro
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy, _runtime_utils
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def make(strategy: str, original: bool = True, process_group: Any = None, mixed: Any = None) -> Any:
    return FullyShardedDataParallel(
        sharded.Net(torch.float64 if mixed is None else torch.float32),
        process_group=process_group,
        sharding_strategy=ShardingStrategy[strategy],
        auto_wrap_policy=ModuleWrapPolicy({sharded.Block}),
        device_id=torch.device("cpu"),
        use_orig_params=original,
        mixed_precision=mixed,
    )


def adapted(net: Any) -> Any:
    [adapter] = fsdp1.find(net)
    adapter.configure(bucket_mb=None, wire=None, keep_params=False)
    return adapter


def full(net: Any) -> list[float]:
    with FullyShardedDataParallel.summon_full_params(net):
        return [float(x) for p in net.parameters() for x in p.detach().reshape(-1).tolist()]


def parity(
    rank: int, world: int, windows: Any, late: Any = (), plan: Plan = Plan.ACCUMULATE, step: Any = None, **how: Any
) -> dict[str, Any]:
    plain, net = make(**how), make(**how)
    with counting.profiled() as plain_counts:
        sharded.reduce_each(plain, windows, rank, world, sharded.stepping(plain, **(step or {})))
    adapter = adapted(net)
    with counting.profiled() as counts:
        sharded.deferred(net, adapter, windows, rank, world, sharded.stepping(net, **(step or {})), plan, late)
    adapter.close()
    values = full(net)
    return {
        "same": values == full(plain),
        "moved": any(values),
        "counts": dict(counts),
        "plain": dict(plain_counts),
        "flags": all(state._sync_gradients for state in adapter._states),
    }


def facts(strategy: str, process_group: Any = None) -> dict[str, Any]:
    adapter = adapted(make(strategy, process_group=process_group))
    options: Any = (("mode", "window_replica"), ("mode", "window"), ("bucket_mb", 1.0), ("bucket_mb", None), ("wire", "bf16"))
    options += (("keep_params", True), ("keep_params", False), ("windows", "variable"), ("windows", "equal"))
    effects = [adapter.no_effect(*option) for option in options]
    return {
        "groups": [(g.role.name, g.process_group.size()) for g in adapter.groups()],
        "expected": {f"{role.name} {op}": n for (role, op), n in adapter.expected().items()},
        "reasons": [effect and effect.reason for effect in effects],
    }


def partly(strategy: str) -> list[Any]:
    """The boundary does not use a part that the window used: what is left can be reduced."""

    net = make(strategy)
    adapter = adapted(net)
    for plan, used in ((Plan.ACCUMULATE, "abcdg"), (Plan.REDUCE, "abg")):
        adapter.arm(plan)
        net(1.0, used).backward()
        adapter.disarm()
    found = [adapter.reduced(), adapter.pending()]
    adapter.late()
    found += [adapter.reduced(), adapter.pending()]
    torch.optim.SGD(net.parameters(), lr=1.0).step()
    values = full(net)
    return [*found, values[0], values[3], values[22], values[41]]  # the first of g, a, c, e


def discarded(strategy: str) -> list[float]:
    net = make(strategy)
    adapter = adapted(net)
    adapter.arm(Plan.ACCUMULATE)
    net(float("nan")).backward()
    adapter.disarm()
    adapter.settle()
    adapter.discard()
    pending = adapter.pending()
    adapter.arm(Plan.REDUCE)
    net(1.0).backward()
    adapter.disarm()
    torch.optim.SGD(net.parameters(), lr=1.0).step()
    return [float(pending), *full(net)[:3]]


def exception(strategy: str, where: str) -> list[Any]:
    net = make(strategy)
    adapter = adapted(net)
    told = ""
    for i in range(4):
        plan = Plan.REDUCE if i == 3 else Plan.ACCUMULATE
        if i in (1, 3):
            adapter.arm(plan)
            net.module.around = sharded.failing(where, net.module.blocks[1])
            try:
                net(1.0).backward()
            except MemoryError as error:
                told = str(error)
            finally:
                adapter.disarm()
            net.module.around = None
        adapter.arm(plan)
        net(1.0).backward()
        adapter.disarm()
    adapter.check()
    torch.optim.SGD(net.parameters(), lr=1.0).step()
    return [told, *full(net)[:3]]


def self_test() -> str:
    """Passes as it is, and not where the hook does something else."""
    fsdp1_selftest._passed = False
    fsdp1_selftest.self_test()
    fsdp1_selftest._passed = False
    runtime: Any = _runtime_utils
    former, runtime._reduce_grad_no_shard = runtime._reduce_grad_no_shard, None
    told = ""
    try:
        fsdp1_selftest.self_test()
    except Unreduced as error:
        told = str(error)
    runtime._reduce_grad_no_shard = former
    return told


def memory() -> list[tuple[int, int]]:
    found = []
    for mixed in (None, MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)):
        net = make("FULL_SHARD", mixed=mixed)
        adapter = adapted(net)
        predicted = adapter.deferred_bytes()
        adapter.arm(Plan.ACCUMULATE)
        net(1.0).backward()
        adapter.disarm()
        grads = [state._handle.flat_param.grad for state in adapter._states]
        held = sum(grad.numel() * grad.itemsize for grad in grads)
        adapter.late()
        grads = [state._handle.flat_param.grad for state in adapter._states]
        found.append((predicted, held - sum(grad.numel() * grad.itemsize for grad in grads)))
    return found


def two_ranks(rank: int, world: int) -> dict[str, Any]:
    windows = [FULL, FULL[:3], FULL[:1], FULL]
    elsewhere = [[Micro(1), Micro(2), Micro(3, "abg")], [Micro(2), Micro(1, "cdg")]]
    adamw = {"make": torch.optim.AdamW, "weight_decay": 0.5}
    rows: dict[str, Any] = {}
    for strategy in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"):
        for original in (True, False):
            how: dict[str, Any] = {"strategy": strategy, "original": original}
            rows[f"{strategy} {original}"] = parity(rank, world, windows, late=(1, 2), step=adamw, **how)
        rows[f"{strategy} elsewhere"] = parity(rank, world, elsewhere, late=(0, 1), strategy=strategy)
        rows[f"facts {strategy}"] = facts(strategy)
        rows[f"partly {strategy}"] = partly(strategy)
        rows[f"discard {strategy}"] = discarded(strategy)
        rows[f"exception {strategy}"] = [exception(strategy, where) for where in ("forward", "backward")]
    rows["replica"] = parity(rank, world, [FULL], plan=Plan.SHARD, strategy="FULL_SHARD")
    rows["memory"] = memory()
    rows["self test"] = self_test()
    return rows


def four_ranks(rank: int, world: int) -> dict[str, Any]:
    pairs = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3], [0, 2], [1, 3])]
    groups = (pairs[rank // 2], pairs[2 + rank % 2])
    rows: dict[str, Any] = {}
    for strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
        how: dict[str, Any] = {"strategy": strategy, "process_group": groups}
        rows[strategy] = parity(rank, world, [FULL, FULL[:3], FULL[:1], FULL], late=(1, 2), **how)
        rows[f"facts {strategy}"] = facts(**how)
    rows["replica"] = parity(rank, world, [FULL], plan=Plan.SHARD, strategy="HYBRID_SHARD", process_group=groups)
    return rows
