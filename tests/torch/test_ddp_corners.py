"""DDP's adapter in bad weather: unfinished reductions, exceptions, micro-steps without backward, windows thrown away."""

from __future__ import annotations

import copy
from typing import Any

import launch


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
    ddp.zero_grad()
    _, gradients = reducing.alone(ddp.module, world, reducing.full(1, world, 3))
    reducing.window_of(adapter, ddp, rank, 0, 3, False)
    out["late after that"] = reducing.same([p.grad for p in ddp.parameters()], gradients[0])
    adapter.arm(Plan.REDUCE)
    ddp(reducing.batch(rank, 0, 0), rank, 0)
    adapter.disarm()
    out["then a window"] = window_is_right(adapter, ddp, rank, world)

    # Compiled from the outside: the flag is read in each forward all the same.
    ddp, adapter = wrapped()  # torch's own compiler for DDP wants buckets of 1 MiB or more
    compiled: Any = torch.compile(ddp, backend="eager")
    seen = []
    for index in range(3):
        _, gradients = reducing.alone(ddp.module, world, [[(0, True)] * world] * index + reducing.full(1, world))
        with counting.profiled() as counts:
            reducing.window_of(adapter, compiled, rank, index, 4, index < 2)
        exact = reducing.same([p.grad for p in ddp.parameters()], gradients[-1])
        seen.append((counts["all_reduce"], exact))
        reducing.step(ddp)
    out["compiled"] = seen == [(1, True)] * 3 or str(seen)

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

    # The same by a zero_grad that nobody announces.
    ddp.module.used_by = lambda r, k: True
    adapter.arm(Plan.ACCUMULATE)
    reducing.loss(ddp(reducing.batch(rank, 0, 0), rank, 0)).backward()
    adapter.disarm()
    ddp.zero_grad()
    ddp.module.used_by = lambda r, k: False
    reducing.window_of(adapter, ddp, rank, 0, 2, False)
    out["thrown away"] = ddp.module.c.weight.grad is None and ddp.module.a.weight.grad is not None

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
        for name in (
            "after an exception",
            "a copy reduces by itself",
            "late after that",
            "then a window",
            "compiled",
            "discarded",
            "in place",
            "as in time",
        ):
            assert result[name] is True, name
        assert result["no backward"] is False and result["no backward, forward"] is False
