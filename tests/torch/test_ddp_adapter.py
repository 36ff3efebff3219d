"""DDP's adapter: late reductions are those of a boundary micro-step, in bytes and in collectives."""

from __future__ import annotations

import copy
from typing import Any

import launch
import pytest


def late_rows(rank: int, world: int) -> dict[str, Any]:
    """Every kind of model under windows in which ranks are late, partial, empty and in time, against one process."""
    import ddp_models
    import reducing
    import torch
    from gradgate.adapters.ddp import Ddp
    from reducing import full
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.nn.parallel import DistributedDataParallel

    def summing(state: Any, bucket: Any) -> Any:
        return torch.distributed.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])

    summing.__annotations__ = {}  # DDP takes these, or the types themselves
    mixed = full(5, world, 4, late=[[1], [0, 1], [], [0]])
    mixed += [[(4, True), (3, False)], [(2, False), (4, True)], [(1, True), (4, True)]]
    empty = [[(0, False), (2, True)], [(2, True), (0, False)], [(3, False), (0, False)], [(2, True), (2, True)]]
    tiny, small = 1e-6, 1.2e-4
    rows: list[tuple[str, Any, dict[str, Any], list[Any]]] = [
        ("one bucket", reducing.Net, {}, mixed),
        ("three buckets", reducing.Net, {"bucket_cap_mb": tiny}, mixed),
        ("three buckets, views", reducing.Net, {"bucket_cap_mb": tiny, "gradient_as_bucket_view": True}, mixed),
        ("windows without data", reducing.Net, {"bucket_cap_mb": tiny}, empty),
        ("unused on all, and on one", ddp_models.Branch, {"bucket_cap_mb": tiny, "find_unused_parameters": True}, mixed + empty),
        ("unused, views", ddp_models.Branch, {"find_unused_parameters": True, "gradient_as_bucket_view": True}, mixed),
        ("three types", ddp_models.TwoTypes, {"bucket_cap_mb": small}, mixed + empty),
        ("sparse", ddp_models.Table, {"bucket_cap_mb": tiny}, mixed + empty),
        ("channels last", ddp_models.ChannelsLast, {"bucket_cap_mb": small}, mixed + empty),
        ("checkpoint", lambda: ddp_models.Recomputed(False), {"bucket_cap_mb": tiny}, mixed),
        ("averaging hook", reducing.Net, {"bucket_cap_mb": tiny, "hook": allreduce_hook}, mixed),
        ("summing hook", reducing.Net, {"bucket_cap_mb": tiny, "hook": summing}, mixed),
        ("batched copies", reducing.Net, {"batched_grad_copy": True}, mixed),
    ]
    results: dict[str, Any] = {}
    for name, build, given, schedule in rows:
        options = dict(given)
        if options.get("batched_grad_copy") and "batched_grad_copy" not in DistributedDataParallel.__init__.__code__.co_varnames:
            continue
        hook = options.pop("hook", None)
        model = build()
        for p in model.parameters():
            p.data = p.data.double() if p.dtype == torch.float32 else p.data
        reducing.whole(model)
        model.used_by = lambda r, k: r == 0 and k % 2 == 0
        right, gradients = reducing.alone(model, world, schedule, 1 if hook is summing else None)
        ddp = DistributedDataParallel(model, **options)
        if hook is not None:
            ddp.register_comm_hook(None, hook)
        seen = reducing.train(Ddp(ddp), ddp, rank, schedule)
        results[name] = {
            "gradients": [reducing.same(got, want) for got, want in zip(seen, gradients, strict=True)],
            "parameters": reducing.same(list(ddp.parameters()), list(right.parameters())),
            "ranks": reducing.agreed(ddp.module),
        }
    return results


def test_late_is_exact() -> None:
    results = launch.run(late_rows, 2)
    assert len(results[0]) >= 12
    for result in results:
        for name, row in result.items():
            assert all(row["gradients"]), (name, row)
            assert row["parameters"] and row["ranks"], (name, row)


def count_rows(rank: int, world: int) -> dict[str, Any]:
    import counting
    import ddp_models
    import reducing
    import torch
    from gradgate.adapters.base import Plan, Role
    from gradgate.adapters.ddp import Ddp
    from reducing import full
    from torch.nn.parallel import DistributedDataParallel

    def counted(model: Any, schedule: Any, **options: Any) -> dict[str, Any]:
        ddp = DistributedDataParallel(reducing.whole(model.double()), **options)
        adapter, per_window, expected = Ddp(ddp), [], []
        for index, window in enumerate(schedule):
            with counting.profiled() as counts:
                reducing.window_of(adapter, ddp, rank, index, *window[rank])
                expected.append((adapter.expected() or {}).get((Role.DP, "all_reduce")))
            per_window.append(dict(counts))
            reducing.step(ddp)
        return {"counts": per_window, "expected": expected, "ranks": reducing.agreed(ddp.module)}

    tiny = 1e-6
    results = {
        "in time": counted(reducing.Net(), full(3, world), bucket_cap_mb=tiny),
        "late": counted(reducing.Net(), full(3, world, late=[[0, 1], [0, 1], [0, 1]]), bucket_cap_mb=tiny),
        "one late": counted(reducing.Net(), full(3, world, late=[[0], [1], [0]]), bucket_cap_mb=tiny),
        "unused": counted(ddp_models.Branch(), full(3, world, late=[[], [0], [1]]), find_unused_parameters=True),
        "buffers": counted(ddp_models.Normed(), full(3, world, late=[[0, 1], [0], []])),
    }
    # Loss logging on the same group is counted by torch too, beside the gradients.
    ddp = DistributedDataParallel(reducing.whole(reducing.Net().double()))
    adapter = Ddp(ddp)
    with counting.profiled() as counts:
        for step in range(4):
            adapter.arm(Plan.REDUCE if step == 3 else Plan.ACCUMULATE)
            value = reducing.loss(ddp(reducing.batch(rank, 0, step), rank, step))
            value.backward()
            torch.distributed.all_reduce(value.detach())
            adapter.disarm()
    results["logging"] = dict(counts)
    return results


def test_counts_are_those_of_a_boundary() -> None:
    for result in launch.run(count_rows, 2):
        first, later = {"all_reduce": 1}, {"all_reduce": 3}
        rebuilt = {"all_reduce": 3, "broadcast": 2}
        for name in ("in time", "late", "one late"):
            assert result[name]["counts"] == [first, rebuilt, later], (name, result[name])
            assert result[name]["expected"] == [1, 3, 3], (name, result[name])
            assert result[name]["ranks"]
        assert result["unused"]["counts"] == [{"all_reduce": 2}] * 3, result["unused"]
        assert result["unused"]["expected"] == [2, 2, 2]
        assert [c["all_reduce"] for c in result["buffers"]["counts"]] == [1, 1, 1]
        assert [c["broadcast"] for c in result["buffers"]["counts"]] == [2, 4, 2], result["buffers"]
        assert result["logging"] == {"all_reduce": 5}


def four_ranks(rank: int, world: int) -> dict[str, Any]:
    import ddp_models
    import reducing
    from gradgate.adapters.ddp import Ddp
    from torch.nn.parallel import DistributedDataParallel

    schedule = [
        [(4, True), (3, False), (0, False), (2, True)],
        [(0, False), (1, True), (4, False), (4, True)],
        [(2, False), (2, False), (2, False), (2, False)],
        [(1, True), (2, True), (3, True), (4, True)],
    ]
    results = {}
    rows: list[dict[str, Any]] = [{"bucket_cap_mb": 1e-6}, {"bucket_cap_mb": 1e-6, "find_unused_parameters": True}]
    for options in rows:
        model: Any = reducing.whole((ddp_models.Branch if len(options) == 2 else reducing.Net)().double())
        model.used_by = lambda r, k: r == 3 and k == 1
        right, gradients = reducing.alone(model, world, schedule)
        ddp = DistributedDataParallel(copy.deepcopy(model), **options)
        ddp.module.used_by = model.used_by
        seen = reducing.train(Ddp(ddp), ddp, rank, schedule)
        exact = [reducing.same(got, want) for got, want in zip(seen, gradients, strict=True)]
        results[str(options)] = [*exact, reducing.same(list(ddp.parameters()), list(right.parameters())), reducing.agreed(ddp)]
    return results


def test_four_ranks() -> None:
    for result in launch.run(four_ranks, 4):
        for name, row in result.items():
            assert all(row), (name, row)


if __name__ == "__main__":
    pytest.main([__file__, "-x", "-q"])
