"""The adapter for FSDP1, every sharding strategy: windows in time and late equal reducing each micro-step, byte by byte."""

from __future__ import annotations

from typing import Any

import launch
import pytest


def make(strategy: str, original: bool = True, process_group: Any = None, mixed: Any = None) -> Any:
    import sharded
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

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
    from gradgate.adapters import fsdp1

    [adapter] = fsdp1.find(net)
    adapter.configure(bucket_mb=None, wire=None, keep_params=False)
    return adapter


def full(net: Any) -> list[float]:
    from torch.distributed.fsdp import FullyShardedDataParallel

    with FullyShardedDataParallel.summon_full_params(net):
        return [float(x) for p in net.parameters() for x in p.detach().reshape(-1).tolist()]


def parity(rank: int, world: int, windows: Any, late: Any = (), plan: str = "ACCUMULATE", step: Any = None, **how: Any) -> dict[str, Any]:
    import counting
    import sharded
    from gradgate.adapters.base import Plan

    plain, net = make(**how), make(**how)
    with counting.profiled() as plain_counts:
        sharded.reduce_each(plain, windows, rank, world, sharded.stepping(plain, **(step or {})))
    adapter = adapted(net)
    with counting.profiled() as counts:
        sharded.deferred(net, adapter, windows, rank, world, sharded.stepping(net, **(step or {})), Plan[plan], late)
    adapter.close()
    values = full(net)
    return {
        "same": values == full(plain),
        "moved": any(values),
        "counts": dict(counts),
        "plain": dict(plain_counts),
        "flags": all(state._sync_gradients for state in adapter._states),
    }


def two_ranks(rank: int, world: int) -> dict[str, Any]:
    import torch
    from sharded import FULL, Micro

    windows = [FULL, FULL[:3], FULL[:1], FULL]
    elsewhere = [[Micro(1), Micro(2), Micro(3, "abg")], [Micro(2), Micro(1, "cdg")]]
    adamw = {"make": torch.optim.AdamW, "weight_decay": 0.5}
    rows: dict[str, Any] = {}
    for strategy in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"):
        for original in (True, False):
            how = {"strategy": strategy, "original": original}
            rows[f"{strategy} {original}"] = parity(rank, world, windows, late=(1, 2), step=adamw, **how)
        rows[f"{strategy} elsewhere"] = parity(rank, world, elsewhere, late=(0, 1), strategy=strategy)
        rows[f"facts {strategy}"] = facts(strategy)
        rows[f"partly {strategy}"] = partly(strategy)
        rows[f"discard {strategy}"] = discarded(strategy)
        rows[f"exception {strategy}"] = [exception(strategy, where) for where in ("forward", "backward")]
    rows["replica"] = parity(rank, world, [FULL], plan="SHARD", strategy="FULL_SHARD")
    rows["memory"] = memory()
    return rows


def facts(strategy: str, process_group: Any = None) -> dict[str, Any]:
    adapter = adapted(make(strategy, process_group=process_group))
    options = (("mode", "window_replica"), ("mode", "window"), ("bucket_mb", 1.0), ("bucket_mb", None), ("wire", "bf16"))
    options += (("keep_params", True), ("keep_params", False), ("windows", "variable"), ("windows", "equal"))
    effects = [adapter.no_effect(*option) for option in options]
    return {
        "groups": [(g.role.name, g.process_group.size()) for g in adapter.groups()],
        "expected": {f"{role.name} {op}": n for (role, op), n in adapter.expected().items()},
        "reasons": [effect and effect.reason for effect in effects],
    }


def partly(strategy: str) -> list[Any]:
    """The boundary does not use a part that the window used: told by name, and what is left can be reduced."""
    from gradgate.adapters.base import Plan, Unreduced

    net = make(strategy)
    adapter = adapted(net)
    for plan, used in ((Plan.ACCUMULATE, "abcdg"), (Plan.REDUCE, "abg")):
        adapter.arm(plan)
        net(1.0, used).backward()
        adapter.disarm()
    told = ""
    try:
        adapter.check()
    except Unreduced as error:
        told = str(error)
    found = [adapter.reduced(), adapter.pending(), told]
    adapter.late()
    adapter.check()
    gradients = {}
    for name, p in net.named_parameters():
        if p.grad is not None and p.grad.numel():
            gradients[name.rsplit(".", 1)[-1]] = p.grad.reshape(-1)[-1].item() / p.numel()
    return [*found, gradients]


def discarded(strategy: str) -> list[float]:
    import torch
    from gradgate.adapters.base import Plan

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
    import torch
    from gradgate.adapters.base import Plan

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            raise MemoryError("backward")

    def failing(block: Any, x: Any, factor: float, used: str) -> Any:
        if where == "forward":
            raise MemoryError("forward")
        return Fails.apply(block(x, factor, used))

    net = make(strategy)
    adapter = adapted(net)
    told = ""
    for i in range(4):
        plan = Plan.REDUCE if i == 3 else Plan.ACCUMULATE
        if i in (1, 3):
            adapter.arm(plan)
            net.module.around = failing
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


def memory() -> list[tuple[int, int]]:
    import torch
    from gradgate.adapters.base import Plan
    from torch.distributed.fsdp import MixedPrecision

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


def four_ranks(rank: int, world: int) -> dict[str, Any]:
    import torch.distributed as dist
    from sharded import FULL

    pairs = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3], [0, 2], [1, 3])]
    groups = (pairs[rank // 2], pairs[2 + rank % 2])
    rows: dict[str, Any] = {}
    for strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
        how = {"strategy": strategy, "process_group": groups}
        rows[strategy] = parity(rank, world, [FULL, FULL[:3], FULL[:1], FULL], late=(1, 2), **how)
        rows[f"facts {strategy}"] = facts(**how)
    rows["replica"] = parity(rank, world, [FULL], plan="SHARD", strategy="HYBRID_SHARD", process_group=groups)
    return rows


G, N = 4, 4


def exact_rows(rows: dict[str, Any]) -> None:
    for name, row in rows.items():
        if isinstance(row, dict) and "same" in row:
            assert row["same"] and row["moved"] and row["flags"], (name, row)


@pytest.fixture(scope="module")
def two() -> list[dict[str, Any]]:
    return launch.run(two_ranks, 2, timeout=300)


def test_windows_are_exact_with_the_counts_of_one_reduction(two: list[dict[str, Any]]) -> None:
    for rows in two:
        exact_rows(rows)
        for original in (True, False):
            assert rows[f"FULL_SHARD {original}"]["plain"]["reduce_scatter"] == 12 * G
            assert rows[f"FULL_SHARD {original}"]["counts"]["reduce_scatter"] == 4 * G
            assert rows[f"FULL_SHARD {original}"]["counts"]["all_gather"] == rows[f"FULL_SHARD {original}"]["plain"]["all_gather"]
            assert rows[f"SHARD_GRAD_OP {original}"]["counts"]["reduce_scatter"] == 4 * G
            assert rows[f"SHARD_GRAD_OP {original}"]["counts"]["all_gather"] == 4 * G, "kept by the strategy itself"
            assert rows[f"NO_SHARD {original}"]["counts"] == {"all_reduce": 4 * G}
        assert rows["replica"]["counts"]["reduce_scatter"] == N * G


def test_facts_and_reasons(two: list[dict[str, Any]]) -> None:
    shared = [None, "bucket_fsdp1", None, "wire_fsdp1", "keep_params_fsdp1", None, "variable_fsdp", None]
    for rows in two:
        for strategy in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"):
            role, operation = ("DP", "all_reduce") if strategy == "NO_SHARD" else ("SHARD", "reduce_scatter")
            assert rows[f"facts {strategy}"] == {
                "groups": [(role, 2)],
                "expected": {f"{role} {operation}": G},
                "reasons": ["no_replica_dimension", *shared],
            }
        assert all(predicted == held for predicted, held in rows["memory"]), rows["memory"]


def test_a_part_that_the_boundary_does_not_use(two: list[dict[str, Any]]) -> None:
    for strategy in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"):
        found: dict[str, set[float]] = {}
        for rows in two:
            reduced, pending, told, gradients = rows[f"partly {strategy}"]
            assert reduced is False and pending
            assert told.startswith("FSDP1 has not reduced the gradients of c, d:")
            for name, value in gradients.items():
                found.setdefault(name, set()).add(value)
        assert {"a", "c"} <= set(found), strategy


def test_a_discarded_window_leaves_nothing(two: list[dict[str, Any]]) -> None:
    for rows in two:
        for strategy in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"):
            assert rows[f"discard {strategy}"] == [0.0, -1.0, -2.0, -3.0]


def test_a_window_survives_an_exception(two: list[dict[str, Any]]) -> None:
    for rows in two:
        for strategy in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"):
            for where, found in zip(("forward", "backward"), rows[f"exception {strategy}"], strict=True):
                assert found == [where, -4.0, -8.0, -12.0], strategy


def test_hybrid_strategies() -> None:
    for rows in launch.run(four_ranks, 4, timeout=300):
        exact_rows(rows)
        for strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
            counts, facts_of = rows[strategy]["counts"], rows[f"facts {strategy}"]
            assert (counts["reduce_scatter"], counts["all_reduce"]) == (4 * G, 4 * G)
            assert facts_of["groups"] == [("SHARD", 2), ("REPLICATE", 2)]
            assert facts_of["expected"] == {"SHARD reduce_scatter": G, "REPLICATE all_reduce": G}
            assert facts_of["reasons"][0] == "window_replica_fsdp1"
        assert rows["replica"]["counts"]["all_reduce"] == N * G
