"""An audit steps a copy: nothing of the optimizer is touched, nobody notices, and what cannot be rehearsed is said and not raised."""

from __future__ import annotations

import random
import types
import warnings
from typing import Any

import audited
import launch
import pytest
import torch
from gradgate.param_groups._rehearsal import Rehearsal
from gradgate.param_groups.audit import audit
from torch.optim import optimizer as torch_optimizer

SHORT = 0.01


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("name", audited.PRESENT)
def test_nothing_changes(name: str, steps: int) -> None:
    optimizer = audited.optimizer(name)
    for seed in range(steps):
        audited.backward(optimizer, seed)
        optimizer.step()
    before = audited.everything(optimizer)
    found = audit(optimizer, seconds=SHORT)
    assert found.unmeasured == "" and found.step_ms and found.merged_ms, str(found)
    assert audited.everything(optimizer) == before


@pytest.mark.parametrize("more", [{"foreach": True}, {"fused": True}, {"lr": torch.tensor(0.1)}, {"differentiable": True}], ids=str)
def test_nothing_changes_in_any_implementation(more: dict[str, Any]) -> None:
    held = audited.groups()
    if "lr" in more:
        held = [{"params": group["params"]} for group in held]
    optimizer = torch.optim.AdamW(held, **more)
    audited.backward(optimizer)
    before = audited.everything(optimizer)
    assert audit(optimizer, seconds=SHORT).unmeasured == ""
    assert audited.everything(optimizer) == before


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.complex64], ids=str)
def test_other_types(dtype: torch.dtype) -> None:
    optimizer = torch.optim.Adam([{"params": [torch.nn.Parameter(torch.ones(3, 2, dtype=dtype))]} for _ in range(4)])
    assert audit(optimizer, seconds=SHORT).unmeasured == ""


def test_fused_has_its_count_of_steps_beside_the_tensor() -> None:
    average = torch.ones(2)
    state = {"step": torch.tensor(3.0, dtype=torch.float64), "exp_avg": average}
    moved = Rehearsal._beside(torch.ones(2, device="meta"), state)
    assert (moved["step"].device.type, moved["step"].dtype) == ("meta", torch.float32) and moved["exp_avg"] is average
    assert state["step"].device.type == "cpu"


def test_training_goes_on_as_without_it() -> None:
    runs = []
    for audits in (False, True):
        optimizer = audited.optimizer("AdamW")
        for seed in range(4):
            audited.backward(optimizer, seed)
            if audits:
                audit(optimizer, seconds=SHORT)
            optimizer.step()
        runs.append([parameter.detach().clone() for parameter in audited.parameters(optimizer)])
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


def test_no_hook_fires_and_nothing_patched_is_called() -> None:
    optimizer = audited.optimizer("AdamW")
    audited.backward(optimizer)
    fired: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: fired.append("pre"))
    optimizer.register_step_post_hook(lambda *_: fired.append("post"))
    handles = [
        torch_optimizer.register_optimizer_step_pre_hook(lambda *_: fired.append("all pre")),
        torch_optimizer.register_optimizer_step_post_hook(lambda *_: fired.append("all post")),
    ]
    try:
        optimizer.step = types.MethodType(lambda *_: fired.append("step"), optimizer)  # type: ignore[method-assign,assignment]
        optimizer.zero_grad = lambda *_, **__: fired.append("zero_grad")  # type: ignore[method-assign]
        found = audit(optimizer, seconds=SHORT)
    finally:
        for handle in handles:
            handle.remove()
    assert fired == [] and found.unmeasured == ""
    assert "optimizer.step is replaced on this object" in str(found)


def test_a_step_that_zeroes_gradients_calls_nothing_patched() -> None:
    class Zeroing(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            self.zero_grad()

    optimizer = Zeroing(audited.groups())
    fired: list[str] = []
    optimizer.zero_grad = lambda *_, **__: fired.append("zero_grad")  # type: ignore[method-assign]
    assert audit(optimizer, seconds=SHORT).unmeasured.startswith("its step() drops the gradients") and fired == []


def test_a_step_that_calls_anothers_is_not_run_where_hooks_for_all_would_see_it() -> None:
    class Careful(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    audited.optimizer("SGD")  # torch puts its hooks around SGD.step with the first
    optimizer = Careful(audited.groups())
    assert audit(optimizer, seconds=SHORT).unmeasured == ""
    fired: list[int] = []
    handle = torch_optimizer.register_optimizer_step_pre_hook(lambda *_: fired.append(1))
    try:
        assert "step hooks for all optimizers are registered" in audit(optimizer, seconds=SHORT).unmeasured
    finally:
        handle.remove()
    assert fired == []


def test_schedulers_notice_nothing() -> None:
    optimizer = audited.optimizer("SGD")
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    before = {key: repr(value) for key, value in vars(scheduler).items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = audit(optimizer, seconds=SHORT)
    assert {key: repr(value) for key, value in vars(scheduler).items()} == before and found.notes == ()
    with pytest.warns(UserWarning, match="before `optimizer.step"):  # as it should: no step was made
        scheduler.step()


def test_random_numbers_drawn_in_a_step_are_not_missing_later() -> None:
    class Drawing(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            torch.rand(1), random.random()

    optimizer = Drawing(audited.groups())
    before = audited.everything(optimizer)
    assert audit(optimizer, seconds=SHORT).unmeasured == ""
    assert audited.everything(optimizer) == before


def test_attributes_of_other_peoples_optimizers_are_copied() -> None:
    optimizer = audited.Attributes(audited.groups())
    audited.backward(optimizer)
    optimizer.step()
    before = audited.everything(optimizer)
    found = audit(optimizer, seconds=SHORT)
    assert found.unmeasured == "" and found.implementation == "own" and found.alternatives == {}
    assert audited.everything(optimizer) == before


class _Failing(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        raise ZeroDivisionError("by itself\nand more")


class _FailingLater(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1
            if group["steps"] > 2:
                raise MemoryError


class _Dropping(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None


class _Holding(torch.optim.SGD):
    def __init__(self, params: Any, held: Any) -> None:
        super().__init__(params)
        self.held = held


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda: torch.optim.LBFGS(audited.groups(1)[0]["params"]), "LBFGS.step() needs closure, as it evaluates the model itself"),
        (lambda: _Failing(audited.groups()), "stepping a copy raised ZeroDivisionError: by itself"),
        (lambda: _FailingLater(audited.groups()), "stepping a copy raised MemoryError: "),
        (lambda: _Dropping(audited.groups()), "its step() drops the gradients"),
        (lambda: _Holding(audited.groups(), torch.nn.Linear(2, 2)), "it holds a Linear as held, which cannot be copied"),
        (lambda: _Holding(audited.groups(), audited.optimizer("SGD")), "it steps another optimizer, its held: audit that one"),
        (lambda: _Holding(audited.groups(), (i for i in range(3))), "its held cannot be copied: cannot pickle 'generator' object"),
        (lambda: torch.optim.SGD([torch.nn.Parameter(torch.ones(2, device="meta"))]), "parameters are on the meta device"),
        (lambda: torch.optim.SGD([torch.nn.Parameter(torch.ones(2), requires_grad=False)]), "no parameter asks for a gradient"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_rehearsed_is_said(build: Any, why: str) -> None:
    optimizer = build()
    found = audit(optimizer, seconds=SHORT)
    assert found.unmeasured.startswith(why) and found.step_ms is None and found.groups == len(optimizer.param_groups)
    assert f"not measured: {why}" in str(found)


def test_an_attached_optimizer_is_not_noticed() -> None:
    import gradgate

    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW([{"params": [parameter]} for parameter in model.parameters()])
    with gradgate.attach(model, optimizer, accumulate=2) as sync:
        with sync.micro_step():
            model(torch.ones(1, 3)).sum().backward()
        before = audited.everything(optimizer), sync.stats()
        found = audit(optimizer, seconds=SHORT)
        assert found.unmeasured == "" and found.notes == ()
        assert (audited.everything(optimizer), sync.stats()) == before
        with sync.micro_step():
            model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        assert sync.stats()["windows_full"] == 1 and sync.stats()["warnings"] == 0


def _one_rank(rank: int, world: int) -> dict[str, Any]:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer

    class Reducing(torch.optim.SGD):
        @torch.no_grad()
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            for group in self.param_groups:
                for parameter in group["params"]:
                    dist.all_reduce(parameter.grad)

    hidden = type("Hidden", (Reducing,), {"__module__": "torch.optim.hidden"})
    Reducing.__module__ = "torch.optim.hidden"  # whose source cannot be looked at for what it does
    told = type("Told", (torch.optim.SGD,), {"step": Reducing.step, "__module__": __name__})
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 3))
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW([{"params": [parameter]} for parameter in model.parameters()])
    model(torch.ones(2, 6)).sum().backward()
    optimizer.step()
    plain = torch.nn.Linear(3, 2)
    others = [kind([{"params": [parameter]} for parameter in plain.parameters()]) for kind in (hidden, told)]
    zero = ZeroRedundancyOptimizer(plain.parameters(), torch.optim.SGD, lr=0.1)
    result: dict[str, Any] = {}
    if rank == 0:
        parts = [parameter.to_local() for parameter in model.parameters()]  # type: ignore[attr-defined]
        before = [part.clone() for part in parts]
        result["sharded"] = audit(optimizer, seconds=SHORT).as_dict()
        result["plain"] = [(type(clone.data), clone.shape) for clone in Rehearsal(optimizer)._clones] == [
            (torch.Tensor, p.shape) for p in parts
        ]
        result["same"] = all(map(torch.equal, parts, before))
        result["others"] = [audit(held, seconds=SHORT).unmeasured for held in (*others, zero)]
    dist.barrier()
    return result


def test_a_rank_alone_does_not_wait_for_the_others() -> None:
    result = launch.run(_one_rank, 2, timeout=60)[0]
    sharded = result["sharded"]
    assert sharded["unmeasured"] == "" and result["same"] and result["plain"]
    assert (sharded["groups"], sharded["needed"], sharded["parameters"]) == (4, 1, 4)
    assert any("this rank's parts" in note for note in sharded["notes"])
    hidden, told, zero = result["others"]
    assert hidden.startswith("its step() communicates (c10d.allreduce_")
    assert told == "Told may communicate in step(), and other ranks would wait: audit it in a single process"
    assert zero == "it steps another optimizer, its optim: audit that one"
