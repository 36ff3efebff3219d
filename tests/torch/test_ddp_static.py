"""A static graph reduces in its first micro-step, whatever the policy; what follows is as on any other DDP."""

from __future__ import annotations

from typing import Any

import launch


def static_rows(rank: int, world: int) -> dict[str, Any]:
    """F of the cases, on a static graph: the first micro-step reduces and no other is lost."""
    import counting
    import ddp_models
    import reducing
    import torch
    from gradgate.adapters.base import Plan, Role
    from gradgate.adapters.ddp import Ddp
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.nn.parallel import DistributedDataParallel

    def summing(state: Any, bucket: Any) -> Any:
        return torch.distributed.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])

    summing.__annotations__ = {}

    def run(model: Any, hook: Any, late: list[list[int]], windows: int = 4, size: int = 4, earlier: int = 0) -> dict[str, Any]:
        reducing.whole(model.double())
        schedule = reducing.full(windows, world, size, late)
        right, gradients = reducing.alone(model, world, schedule, 1 if hook is summing else None)
        ddp = DistributedDataParallel(model, static_graph=True, bucket_cap_mb=1e-6)
        if hook is not None:
            ddp.register_comm_hook(None, hook)
        for k in range(earlier):
            reducing.loss(ddp(reducing.batch(rank, 0, k), rank, k)).backward()
            ddp.zero_grad()
        adapter, exact, reductions, expected = Ddp(ddp), [], [], []
        for index, window in enumerate(schedule):
            with counting.profiled() as counts:
                for k in range(size):
                    in_time = window[rank][1] and k == size - 1
                    must = adapter.must_reduce() is not None
                    if must:
                        expected.append((adapter.expected() or {})[(Role.DP, "all_reduce")])
                    adapter.arm(Plan.REDUCE if in_time or must else Plan.ACCUMULATE)
                    reducing.loss(ddp(reducing.batch(rank, index, k), rank, k)).backward()
                    adapter.disarm()
                if in_time:
                    adapter.check()
                if not (in_time and adapter.reduced()):
                    adapter.late()
            expected.append((adapter.expected() or {})[(Role.DP, "all_reduce")])
            reductions.append(counts["all_reduce"])
            seen = [p.grad for p in ddp.parameters()]
            exact.append(reducing.same(seen, gradients[index]))
            reducing.step(ddp)
        same = reducing.same(list(ddp.parameters()), list(right.parameters()))
        return {"exact": exact, "parameters": same, "all_reduce": reductions, "expected": expected, "pending": adapter.pending()}

    late = [[0], [1], [0, 1], []]
    return {
        "in time": run(reducing.Net(), None, []),
        "late": run(reducing.Net(), None, late),
        "windows of one": run(reducing.Net(), None, [], size=1),
        "attached later": run(ddp_models.Recomputed(True), None, [[], [0], [1], [0, 1]], earlier=2),
        "averaging hook": run(reducing.Net(), allreduce_hook, late),
        "summing hook": run(reducing.Net(), summing, late),
        "summing hook, windows of one": run(reducing.Net(), summing, [], size=1),
        "unused": run(ddp_models.Branch(), None, late),
        "reentrant checkpoint": run(ddp_models.Recomputed(True), None, late),
    }


def test_static_graph() -> None:
    for result in launch.run(static_rows, 2):
        for name, row in result.items():
            assert all(row["exact"]) and row["parameters"] and not row["pending"], (name, row)
            if "windows of one" in name:
                assert row["all_reduce"] == [2, 1, 3, 3], (name, row)
            elif name == "attached later":
                assert row["all_reduce"] == [3, 3, 3, 3], (name, row)
            elif name != "unused":
                assert row["all_reduce"] == [3, 3, 3, 3], (name, row)
                assert row["expected"] == [2, 1, 3, 3, 3], (name, row)
