"""DDP's adapter where DDP itself is peculiar: static graphs, unfinished reductions, nesting, hooks, restored flags."""

from __future__ import annotations

import copy
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

    def run(model: Any, hook: Any, late: list[list[int]], windows: int = 4, size: int = 4) -> dict[str, Any]:
        reducing.whole(model.double())
        schedule = reducing.full(windows, world, size, late)
        right, gradients = reducing.alone(model, world, schedule, 1 if hook is summing else None)
        ddp = DistributedDataParallel(model, static_graph=True, bucket_cap_mb=1e-6)
        if hook is not None:
            ddp.register_comm_hook(None, hook)
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
            elif name != "unused":
                assert row["all_reduce"] == [3, 3, 3, 3], (name, row)
                assert row["expected"] == [2, 1, 3, 3, 3], (name, row)


def corners(rank: int, world: int) -> dict[str, Any]:
    import counting
    import ddp_models
    import reducing
    import torch
    from gradgate.adapters.base import Plan, Unreduced
    from gradgate.adapters.ddp import Ddp
    from torch.nn.parallel import DistributedDataParallel

    out: dict[str, Any] = {}

    def wrapped(build: Any = reducing.Net, **options: Any) -> tuple[Any, Any]:
        ddp = DistributedDataParallel(reducing.whole(build().double()), **options)
        return ddp, Ddp(ddp)

    def refused(run: Any) -> str:
        try:
            run()
        except Unreduced as error:
            return str(error)
        return "not refused"

    # A parameter without gradient in the boundary's backward, before and after buckets are rebuilt.
    for name, before in (("first", 0), ("later", 2)):
        model: Any = reducing.whole(ddp_models.Branch().double())
        model.d.requires_grad_(False)
        model.used_by = lambda r, k: k < 3
        ddp = DistributedDataParallel(model, bucket_cap_mb=1e-6)
        adapter = Ddp(ddp)
        for window in range(before):
            reducing.window_of(adapter, ddp, rank, window, 2, True)
            reducing.step(ddp)
        with counting.profiled() as counts:
            out[f"unfinished {name}"] = refused(lambda a=adapter, d=ddp: reducing.window_of(a, d, rank, 5, 4, True))
        out[f"unfinished {name} count"] = counts["all_reduce"]

    # Late without the map of used parameters: what nobody used must not become zero.
    ddp, adapter = wrapped(ddp_models.Branch)
    out["unused late"] = refused(lambda: reducing.window_of(adapter, ddp, rank, 0, 2, False))

    # The flag is what it was, whatever happens inside.
    ddp, adapter = wrapped()
    flags = []
    with ddp.no_sync():
        adapter.arm(Plan.REDUCE)
        flags.append(ddp.require_backward_grad_sync)
        adapter.arm(Plan.ACCUMULATE)
        flags.append(ddp.require_backward_grad_sync)
        adapter.disarm()
        adapter.disarm()
        flags.append(ddp.require_backward_grad_sync)
    flags.append(ddp.require_backward_grad_sync)
    try:
        adapter.arm(Plan.ACCUMULATE)
        ddp(reducing.batch(rank, 0, 0), rank, 0)
        raise MemoryError
    except MemoryError:
        adapter.disarm()
    flags.append(ddp.require_backward_grad_sync)
    out["flags"] = flags
    out["after an exception"] = window_is_right(adapter, ddp, rank, world)
    out["a copy reduces by itself"] = copy.deepcopy(ddp).require_backward_grad_sync

    # A boundary without backward has not reduced; one with a forward alone neither.
    adapter.arm(Plan.REDUCE)
    adapter.disarm()
    adapter.check()
    out["no backward"] = adapter.reduced()
    adapter.arm(Plan.REDUCE)
    ddp(reducing.batch(rank, 0, 0), rank, 0)
    adapter.disarm()
    adapter.check()
    out["no backward, forward"] = adapter.reduced()
    out["then a window"] = window_is_right(adapter, ddp, rank, world)

    # A window thrown away leaves no parameter marked as used.
    ddp, adapter = wrapped(ddp_models.Branch, find_unused_parameters=True)
    ddp.module.used_by = lambda r, k: True
    adapter.arm(Plan.ACCUMULATE)
    reducing.loss(ddp(reducing.batch(rank, 0, 0), rank, 0)).backward()
    adapter.disarm()
    adapter.discard()
    ddp.zero_grad()
    ddp.module.used_by = lambda r, k: False
    reducing.window_of(adapter, ddp, rank, 0, 2, True)
    out["discarded"] = ddp.module.c.weight.grad is None

    # References to gradients, as clipping may hold them, show the reduced values.
    ddp, adapter = wrapped()
    reducing.window_of(adapter, ddp, rank, 0, 1, True)
    held = [p.grad for p in ddp.parameters()]
    reducing.window_of(adapter, ddp, rank, 1, 1, False)
    out["in place"] = all(p.grad is g for p, g in zip(ddp.parameters(), held, strict=True))

    # Inexact values: the same bytes as the boundary's reduction, buffers of BatchNorm included.
    states = []
    lates: Any = ([[]] * 3, [[0, 1], [1], [0]])
    for late in lates:
        torch.manual_seed(3)
        ddp = DistributedDataParallel(torch.compile(ddp_models.Normed(), backend="eager") if late[0] else ddp_models.Normed())
        adapter = Ddp(ddp)
        optimizer = torch.optim.SGD(ddp.parameters(), 0.01)
        for index, ranks in enumerate(reducing.full(3, world, 3, late)):
            for k in range(3):
                adapter.arm(Plan.REDUCE if k == 2 and ranks[rank][1] else Plan.ACCUMULATE)
                reducing.loss(ddp(reducing.batch(rank, index, k).float() / 7, rank, k)).backward()
                adapter.disarm()
            if not ranks[rank][1]:
                adapter.late()
            optimizer.step()
            optimizer.zero_grad()
        ddp.eval()(torch.ones(1, 4), rank, 0)
        states.append([*ddp.parameters(), *ddp.buffers()])
    out["as in time"] = reducing.same(*states)
    return out


def window_is_right(adapter: Any, ddp: Any, rank: int, world: int) -> bool:
    import reducing

    ddp.zero_grad()
    right, gradients = reducing.alone(ddp.module, world, reducing.full(1, world))
    reducing.window_of(adapter, ddp, rank, 0, 4, True)
    exact = reducing.same([p.grad for p in ddp.parameters()], gradients[0])
    ddp.zero_grad()
    return exact


def test_corners() -> None:
    for result in launch.run(corners, 2):
        for name in ("first", "later"):
            assert "no gradient for module.c.weight in the boundary" in result[f"unfinished {name}"], result
        assert result["unfinished first count"] == 0 and result["unfinished later count"] <= 3
        assert "no gradient for module.d in this window" in result["unused late"], result
        assert result["flags"] == [True, False, False, True, True]
        for name in ("after an exception", "a copy reduces by itself", "then a window", "discarded", "in place", "as in time"):
            assert result[name] is True, name
        assert result["no backward"] is False and result["no backward, forward"] is False
