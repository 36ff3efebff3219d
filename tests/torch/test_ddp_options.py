"""DDP's options: those that have an effect have it, and the others say why not."""

from __future__ import annotations

from typing import Any

import launch
import pytest


def option_rows(rank: int, world: int) -> dict[str, Any]:
    import counting
    import reducing
    import torch
    import torch.distributed as dist
    from gradgate.adapters.ddp import Ddp
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.nn.parallel import DistributedDataParallel

    out: dict[str, Any] = {}

    def built(**options: Any) -> tuple[Any, Any]:
        ddp = DistributedDataParallel(reducing.whole(reducing.Net().double()), **options)
        return ddp, Ddp(ddp)

    def trained(ddp: Any, adapter: Any, late: Any = ([], [0], [])) -> tuple[list[int], bool]:
        schedule, counts = reducing.full(3, world, 4, late), []
        right, _ = reducing.alone(ddp.module, world, schedule)
        for index, window in enumerate(schedule):
            with counting.profiled() as seen:
                reducing.window_of(adapter, ddp, rank, index, *window[rank])
            counts.append(seen["all_reduce"])
            reducing.step(ddp)
        return counts, reducing.same(list(ddp.parameters()), list(right.parameters()))

    tiny = 1e-6
    for name, options, hook in (
        ("", {}, None),
        (" static", {"static_graph": True}, None),
        (" views", {"gradient_as_bucket_view": True}, None),
        (" unused", {"find_unused_parameters": True}, None),
        (" hook", {}, allreduce_hook),
        (" built-in hook", {}, dist.BuiltinCommHookType.ALLREDUCE),
    ):
        ddp, adapter = built(**options)
        if hook is allreduce_hook:
            ddp.register_comm_hook(None, hook)
        elif hook is not None:
            ddp._register_builtin_comm_hook(hook)
        before = adapter._user_hook()
        adapter.configure(bucket_mb=tiny, wire=None, keep_params=False)
        out["hook kept" + name] = before == adapter._user_hook()
        out["buckets" + name] = trained(ddp, adapter) if name != " static" else buckets_of_static(ddp, adapter)

    # The wire: values of few bits are exact, those of many are rounded to the wire's bits, on all ranks alike.
    for wire, bits in (("bf16", 8), ("fp16", 11)):
        ddp = DistributedDataParallel(reducing.whole(reducing.Net()), bucket_cap_mb=tiny)
        adapter = Ddp(ddp)
        adapter.configure(bucket_mb=None, wire=wire, keep_params=False)
        w = ddp.module.b.bias
        values = []
        for value in (3.0, 1.0 + 2.0 ** -(bits - 1) + 2.0**-20):
            for late in (False, True):
                ddp.zero_grad()
                adapter.arm(reduce_if(not late))
                (ddp(torch.zeros(1, 4), rank, 0) * value).sum().backward()
                adapter.disarm()
                if late:
                    adapter.late()
                values.append(w.grad[0].item())
        out[wire] = [values[0] == values[1] == 3.0, values[2] == values[3] == 1.0 + 2.0 ** -(bits - 1), reducing.agreed(ddp)]
        adapter.close()
        adapter.arm(reduce_if(True))
        ddp.zero_grad()
        (ddp(torch.zeros(1, 4), rank, 0) * value).sum().backward()
        adapter.disarm()
        out[wire].append(w.grad[0].item() == torch.tensor(value).item())

    # A script registers a hook of its own afterwards: while the wire's is still there, and when another reducer has none.
    def doubling(_state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        return allreduce_hook(None, bucket).then(lambda done: 2 * done.value())  # type: ignore[arg-type]

    doubling.__annotations__.clear()  # torch wants types, not their names
    for where in ("static", "in force", "closed", "recast"):
        ddp = DistributedDataParallel(reducing.whole(reducing.Net()), bucket_cap_mb=tiny, static_graph=where == "static")
        adapter = Ddp(ddp)
        adapter.configure(bucket_mb=None, wire="bf16", keep_params=False)
        if where == "closed":
            adapter.close()
        elif where != "in force":
            ddp_recast = adapter.recast(None, None)
        held = "register_comm_hook" in ddp.__dict__
        ddp.register_comm_hook(None, doubling)
        for _ in range(2):
            ddp.zero_grad()
            adapter.arm(reduce_if(True))
            (ddp(torch.zeros(1, 4), rank, 0) * 3.0).sum().backward()
            adapter.disarm()
        try:
            ddp.register_comm_hook(None, allreduce_hook)
        except RuntimeError as error:
            once = "only be called once" in str(error)
        known = [Ddp(ddp).no_effect("wire", "bf16"), adapter.no_effect("wire", "bf16")]
        reasons_to_keep = [nothing and nothing.reason for nothing in known]
        out["hook " + where] = (held, ddp.module.b.bias.grad[0].item(), once, reasons_to_keep)
    out["recast"] = ddp_recast

    # What has no effect, and why.
    reasons = {}
    ddp, adapter = built()
    ddp.register_comm_hook(None, allreduce_hook)
    norm = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)))
    quiet = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)), broadcast_buffers=False)
    for name, one, option, given in (
        ("replica", adapter, "mode", "window_replica"),
        ("window", adapter, "mode", "window"),
        ("keep", adapter, "keep_params", True),
        ("wire", adapter, "wire", "bf16"),
        ("early", adapter, "bucket_mb", 1),
        ("variable", adapter, "windows", "variable"),
        ("buffers", Ddp(norm), "windows", "variable"),
        ("no buffers", Ddp(quiet), "windows", "variable"),
    ):
        nothing = one.no_effect(option, given)
        reasons[name] = nothing.reason if nothing else None
    ddp(reducing.batch(rank, 0, 0), rank, 0)
    after = adapter.no_effect("bucket_mb", 2)
    reasons["after a forward"] = after.reason if after else None
    out["reasons"] = reasons
    return out


def reduce_if(yes: bool) -> Any:
    from gradgate.adapters.base import Plan

    return Plan.REDUCE if yes else Plan.ACCUMULATE


def buckets_of_static(ddp: Any, adapter: Any) -> tuple[list[int], bool]:
    import counting
    import reducing

    counts = []
    for index in range(3):
        with counting.profiled() as seen:
            reducing.window_of(adapter, ddp, 0, index, 1, True)
        counts.append(seen["all_reduce"])
    return counts, True


def test_options() -> None:
    for result in launch.run(option_rows, 2):
        assert result["buckets static"] == ([2, 1, 3], True)
        for name, right in (
            ("", [1, 3, 3]),
            (" views", [1, 3, 3]),
            (" unused", [4, 4, 4]),
            (" hook", [1, 3, 3]),
            (" built-in hook", [1, 3, 3]),
        ):
            assert result["buckets" + name] == (right, True), (name, result)
            assert result["hook kept" + name]
        assert all(result["bf16"]) and all(result["fp16"]), result
        for where in ("static", "in force", "closed", "recast"):
            assert result["hook " + where] == (where != "recast", 6.0, True, ["wire_user_hook"] * 2), (where, result)
        assert result["recast"]
        assert result["reasons"] == {
            "replica": "no_shard_dimension",
            "window": None,
            "keep": "no_sharded_parameters",
            "wire": "wire_user_hook",
            "early": None,
            "variable": None,
            "buffers": "buffers_broadcast",
            "no buffers": None,
            "after a forward": "bucket_after_first_forward",
        }


def test_self_test(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from gradgate.adapters import ddp_late
    from gradgate.adapters.base import Unreduced

    ddp_late.self_test()

    def careless(reducer: Any, parameters: Any, **_: Any) -> None:
        return None

    monkeypatch.setattr(ddp_late, "reduce_late", careless)
    with pytest.raises(Unreduced, match=torch.__version__.replace("+", r"\+")):
        ddp_late.self_test()


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "4"])
def test_bucket_size_is_positive_and_finite(value: Any) -> None:
    from gradgate.adapters.ddp_options import bucket_bytes

    with pytest.raises(ValueError, match="bucket_mb="):
        bucket_bytes(value)
