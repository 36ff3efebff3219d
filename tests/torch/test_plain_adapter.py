"""Parameters that no wrapper reduces: gradgate's own reduction, late and in the backward, in bytes and in collectives. Each row runs over
the reducer in C++ and over the one in Python, and over both at once, each on half of the ranks."""

from __future__ import annotations

from typing import Any

import launch
import pytest

KINDS = ("native", "python", "both")


def reducer(kind: str, rank: int) -> Any:
    from gradgate import tap

    made = tap.load().reducer()
    assert made is not None, "no reducer in C++: is there no compiler?"
    return made if kind == "native" or (kind == "both" and rank % 2) else None


def rows(rank: int, world: int, kind: str) -> dict[str, Any]:
    import counting
    import ddp_models
    import reducing
    from gradgate.adapters.base import Role
    from gradgate.adapters.plain import Plain
    from reducing import full
    from torch.distributed import group

    mixed = full(4, world, 4, late=[[1], [0, 1], [], [0]])
    mixed += [[(4, True), (3, False)] * (world // 2), [(2, False), (4, True)] * (world // 2), [(2, True), (0, False)] * (world // 2)]
    tiny = 1e-6
    results: dict[str, Any] = {}
    for name, build, bucket_mb, overlap, buckets in (
        ("one bucket", reducing.Net, None, True, 1),
        ("three buckets", reducing.Net, tiny, True, 3),
        ("three buckets, all at the end", reducing.Net, tiny, False, 3),
        ("unused on all, and on one", ddp_models.Branch, tiny, True, 5),
        ("three types", ddp_models.TwoTypes, None, True, 3),
        ("sparse", ddp_models.Table, tiny, True, 4),
        ("channels last", ddp_models.ChannelsLast, None, True, 1),
        ("reentrant checkpoint", lambda: ddp_models.Recomputed(True), tiny, True, 3),
    ):
        model: Any = build()
        for p in model.parameters():
            p.data = p.data.double() if not (p.is_complex() or p.element_size() == 2) else p.data
        reducing.whole(model)
        model.used_by = lambda r, k: r == 0 and k % 2 == 0
        right, gradients = reducing.alone(model, world, mixed)
        adapter = Plain(list(model.named_parameters()), group.WORLD, overlap=overlap, reducer=reducer(kind, rank))
        adapter.configure(bucket_mb=bucket_mb, wire=None, keep_params=False)
        with counting.profiled() as counts:
            seen = reducing.train(adapter, model, rank, mixed)
        results[name] = {
            "gradients": [reducing.same(got, want) for got, want in zip(seen, gradients, strict=True)],
            "parameters": reducing.same(list(model.parameters()), list(right.parameters())),
            "ranks": reducing.agreed(model),
            "count": (dict(counts), {"all_reduce": len(mixed) * (buckets + 1)}),
            "expected": (adapter.expected(), {(Role.DP, "all_reduce"): buckets + 1}),
        }
    return results


@pytest.mark.parametrize(("ranks", "kind"), [(2, "native"), (2, "python"), (4, "both")])
def test_exact(ranks: int, kind: str) -> None:
    for result in launch.run(rows, ranks, args=(kind,)):
        for name, row in result.items():
            assert all(row["gradients"]), (name, row)
            assert row["parameters"] and row["ranks"], (name, row)
            assert row["count"][0] == row["count"][1] and row["expected"][0] == row["expected"][1], (name, row)


def corners(rank: int, world: int, kind: str) -> dict[str, Any]:
    import sys
    import time
    from types import SimpleNamespace
    from unittest import mock

    import counting
    import reducing
    import torch
    from gradgate.adapters.base import Plan, Unreduced
    from gradgate.adapters.plain import Plain
    from torch.distributed import group
    from torch.testing._internal.two_tensor import TwoTensor

    out: dict[str, Any] = {}

    def built(**options: Any) -> tuple[Any, Any]:
        model = reducing.whole(reducing.Net().double())
        adapter = Plain(list(model.named_parameters()), group.WORLD, reducer=reducer(kind, rank), **options)
        adapter.configure(bucket_mb=1e-6, wire=None, keep_params=False)
        return model, adapter

    def backward(model: Any, step: int) -> None:
        reducing.loss(model(reducing.batch(rank, 0, step), rank, step)).backward()

    def right(model: Any, micro_steps: int, factor: float = 1.0) -> bool:
        _, gradients = reducing.alone(model, world, reducing.full(1, world, micro_steps))
        return reducing.same([p.grad for p in model.parameters()], [g * factor for g in gradients[0]])

    # Several backwards in the boundary: sent again once, then known. In the second window one rank has but one.
    model, adapter = built()
    chunked = []
    for window in range(3):
        model.zero_grad()
        with counting.profiled() as counts:
            adapter.arm(Plan.REDUCE)
            losses: list[Any] = [reducing.loss(model(reducing.batch(rank, 0, step), rank, step)) for step in range(3)]
            whole: Any = sum(losses)
            for part in [whole] if window == 1 and rank == 1 else losses:
                part.backward()
            adapter.disarm()
            adapter.check()
            in_backward = adapter.reduced()
            if not in_backward:
                adapter.late()
        chunked.append((counts["all_reduce"], in_backward, right(model, 3)))
    out["chunked"] = chunked

    # Scaled after the backward, before the reduction is over.
    model, adapter = built()
    adapter.arm(Plan.REDUCE)
    backward(model, 0)
    for p in model.parameters():
        p.grad.mul_(4)
    adapter.disarm()
    adapter.check()
    out["scaled"] = right(model, 1, 4.0)

    # Every micro-step armed to reduce, asked at the end only.
    model, adapter = built()
    for step in range(3):
        adapter.arm(Plan.REDUCE)
        backward(model, step)
        adapter.disarm()
    adapter.check()
    out["every micro-step"] = right(model, 3)

    # Suppressed micro-steps cost nothing; an exception leaves no hook behind.
    model, adapter = built()
    adapter.arm(Plan.ACCUMULATE)
    hooks = [len(p._post_accumulate_grad_hooks or ()) for p in model.parameters()]
    adapter.disarm()
    adapter.arm(Plan.REDUCE)
    armed = [len(p._post_accumulate_grad_hooks or ()) for p in model.parameters()]
    adapter.disarm()
    hooks += [len(p._post_accumulate_grad_hooks or ()) for p in model.parameters()]
    out["hooks"] = [hooks, armed]

    # A boundary without backward has begun nothing, so check leaves it to late().
    model, adapter = built()
    adapter.arm(Plan.REDUCE)
    adapter.disarm()
    adapter.check()
    out["no backward"] = adapter.reduced()
    adapter.late()
    out["nothing at all"] = all(p.grad is None for p in model.parameters())

    # Frozen on all ranks: no traffic; unfrozen: back.
    model, adapter = built()
    model.a.weight.requires_grad_(False)
    with counting.profiled() as counts:
        reducing.window_of(adapter, model, rank, 0, 2, True)
    frozen = counts["all_reduce"], len(adapter.parameters())
    model.a.weight.requires_grad_(True)
    model.zero_grad()
    with counting.profiled() as counts:
        reducing.window_of(adapter, model, rank, 0, 2, True)
    out["frozen"] = [frozen, (counts["all_reduce"], len(adapter.parameters())), right(model, 2)]

    # The wire rounds to its bits, after sums within the window in full.
    w = torch.nn.Parameter(torch.zeros(2))
    wire = []
    for name, bits in (("bf16", 8), ("fp16", 11)):
        one = Plain([("w", w)], group.WORLD, reducer=reducer(kind, rank))
        one.configure(bucket_mb=None, wire=name, keep_params=False)
        w.grad = torch.full((2,), 1.0 + 2.0 ** -(bits - 1) + 2.0**-20)
        one.late()
        wire.append(w.grad.tolist() == [1.0 + 2.0 ** -(bits - 1)] * 2 and w.grad.dtype == torch.float32)
    out["wire"] = wire

    # Compiled backwards and tensor subclasses are left to Python.
    with mock.patch.dict(sys.modules, {"torch._dynamo": SimpleNamespace(config=SimpleNamespace(compiled_autograd=True))}):
        compiled = Plain([("w", w)], group.WORLD, reducer=reducer(kind, rank))
    pair = torch.nn.Parameter(TwoTensor(torch.zeros(2), torch.zeros(2)))
    subclass = Plain([("w", pair)], group.WORLD, reducer=reducer(kind, rank))
    out["in python"] = [type(one._reducer).__name__ for one in (compiled, subclass)]

    # Alone: nothing is sent, and nothing changes.
    alone = Plain([("w", w)], None)
    with counting.profiled() as counts:
        alone.arm(Plan.REDUCE)
        (w * 3).sum().backward()
        alone.disarm()
        alone.check()
        alone.late()
    out["alone"] = [dict(counts), alone.groups()]

    # A rank that never comes is told within the deadline, by the name of what waits. Last: the group is dead after it.
    w.grad = torch.ones(2)
    impatient = Plain([("w", w)], group.WORLD, deadline_s=1.0, reducer=reducer(kind, rank))
    began = time.monotonic()
    text = ""
    if rank == 0:
        try:
            impatient.late()
        except Unreduced as error:
            text = str(error)
        out["deadline"] = [text, time.monotonic() - began]
        torch.distributed.distributed_c10d._get_default_store().set("done", "1")
    else:
        torch.distributed.distributed_c10d._get_default_store().wait(["done"])
    torch.distributed.destroy_process_group()
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_corners(kind: str) -> None:
    results = launch.run(corners, 2, args=(kind,))
    assert [began for _, began, _ in results[0]["chunked"]] == [True, True, True]
    assert [began for _, began, _ in results[1]["chunked"]] == [True, True, True]
    for rank, result in enumerate(results):
        # Three buckets and the map; three buckets again where a rank has more backwards than in its last window.
        assert [(count, exact) for count, _, exact in result["chunked"]] == [(7, True), (4, True), (7, True)], result["chunked"]
        assert result["scaled"] and result["every micro-step"]
        of_python = kind == "python" or (kind == "both" and rank == 0)
        assert result["hooks"] == [[0] * 6, [int(of_python)] * 3]
        assert result["no backward"] is False and result["nothing at all"]
        assert result["frozen"] == [(3, 2), (4, 3), True]
        assert result["wire"] == [True, True]
        assert result["in python"] == ["PythonReducer"] * 2
        assert result["alone"] == [{}, []]
    text, seconds = results[0]["deadline"]
    assert "was not reduced within 1 s" in text and seconds < 10, results[0]["deadline"]
