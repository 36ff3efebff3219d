"""What an audit counts, and which implementation it names."""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable
from typing import Any

import audited
import pytest
import torch
from gradgate import InvalidArgument
from gradgate.param_groups import merge, merge_optimizer
from gradgate.param_groups.audit import audit
from torch.optim import optimizer as torch_optimizer

SHORT = 0.01


def test_counts() -> None:
    held = audited.groups(8, 2)
    held[3]["params"][0].requires_grad = False
    held.append({"params": [torch.nn.Parameter(torch.ones(2, 2), requires_grad=False)], "lr": 1.0})
    optimizer = torch.optim.AdamW(held, weight_decay=0.1)
    found = audit(optimizer, measure=False)
    assert (found.optimizer, found.groups, found.needed, found.parameters, found.frozen) == ("AdamW", 9, 2, 7, 2)
    assert found.elements == sum(each.numel() for each in audited.parameters(optimizer) if each.requires_grad)
    assert [(group["lr"], group["weight_decay"]) for group in found.settings] == [(1e-3, 0.1), (2e-3, 0.1)]
    assert (found.step_ms, found.unmeasured, found.verdict) == (None, "measure=False", "not measured")


def test_needs_as_many_as_merging_leaves_also_with_schedulers() -> None:
    for different in (1, 4):
        optimizer = audited.optimizer("SGD")
        factors: list[Callable[[int], float]] = [functools.partial(operator.mul, 1 + i % different) for i in range(8)]
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factors)
        found = audit(optimizer, seconds=SHORT)
        assert (found.groups, found.needed) == (8, merge_optimizer(optimizer, scheduler).after) == (8, len(optimizer.param_groups))
        assert audit(optimizer, measure=False).verdict == "nothing to merge"


def test_a_scheduler_that_does_not_fit_is_named() -> None:
    optimizer = audited.optimizer("SGD")
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]})
    found = audit(optimizer, measure=False)
    assert found.needed == 3 and len(scheduler.base_lrs) == 8
    assert "not counting what schedulers keep apart: StepLR.base_lrs has 8 entries and the optimizer 9 parameter groups" in str(found)


def test_what_a_wrapper_holds_is_audited() -> None:
    class Wrapper:
        def __init__(self, optimizer: Any) -> None:
            self.optimizer, self.param_groups = optimizer, optimizer.param_groups

    found = audit(Wrapper(Wrapper(audited.optimizer("NAdam"))), seconds=SHORT)  # type: ignore[arg-type]
    assert (found.optimizer, found.groups, found.unmeasured) == ("NAdam", 8, "")


def _cases() -> list[tuple[str, dict[str, Any]]]:
    cases: list[tuple[str, dict[str, Any]]] = []
    for name in audited.PRESENT:
        keys = audited.optimizer(name).param_groups[0]
        more = [{key: value} for key in ("foreach", "fused") if key in keys for value in (True, False)]
        cases += [(name, flags) for flags in [{}, *more, *([{"differentiable": True}] if "differentiable" in keys else [])]]
    return cases


@pytest.mark.parametrize("everywhere", [False, True], ids=["cpu", "as on a device with foreach"])
@pytest.mark.parametrize(("name", "flags"), _cases(), ids=str)
def test_names_the_implementation_that_runs(name: str, flags: dict[str, Any], everywhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if everywhere:
        monkeypatch.setattr(torch_optimizer, "_get_foreach_kernels_supported_devices", lambda: ["cpu"])
    optimizer = audited.optimizer(name, **flags)
    if flags.get("differentiable"):
        for parameter in audited.parameters(optimizer):
            parameter.requires_grad = False
    audited.backward(optimizer)
    with audited.Recorded() as recorded:
        optimizer.step()
    for parameter in audited.parameters(optimizer):
        parameter.requires_grad = True
    assert audit(optimizer, measure=False).implementation == recorded.implementation


def test_a_learning_rate_in_a_tensor_makes_adam_a_for_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_optimizer, "_get_foreach_kernels_supported_devices", lambda: ["cpu"])
    for name, expected in (("AdamW", "for-loop"), ("SGD", "foreach")):
        held = [{**group, "lr": torch.tensor(group["lr"])} for group in audited.groups(6)] + audited.groups(2)
        optimizer = getattr(torch.optim, name)(held)
        audited.backward(optimizer)
        found = audit(optimizer, seconds=SHORT)
        assert found.implementation == ("for-loop (6), foreach (2)" if expected == "for-loop" else "foreach") and found.unmeasured == ""


@pytest.mark.parametrize(
    ("name", "flags", "others"),
    [
        ("AdamW", {}, {"foreach", "fused"}),
        ("AdamW", {"foreach": True}, {"fused"}),
        ("AdamW", {"fused": True}, set()),
        ("RMSprop", {}, {"foreach"}),
        ("Muon", {}, set()),
    ],
    ids=str,
)
def test_measures_what_else_could_run(name: str, flags: dict[str, Any], others: set[str]) -> None:
    if name not in audited.PRESENT:
        pytest.skip(f"this torch has no {name}")
    found = audit(audited.optimizer(name, **flags), seconds=SHORT)
    assert set(found.alternatives) == others and all(ms > 0 for ms in found.alternatives.values())
    assert found.chosen == ("optimizer" if flags or name == "Muon" else "torch") and found.rounds >= 3


def test_an_alternative_that_is_not_possible_is_named() -> None:
    found = audit(torch.optim.Adam(audited.groups(), differentiable=True), seconds=SHORT)
    assert found.alternatives == {} and found.unmeasured == ""
    assert any(note.startswith("foreach=True is not possible here: stepping a copy raised") for note in found.notes), found.notes


def test_as_dict_is_json() -> None:
    held = [{**group, "lr": torch.tensor(0.5), "note": {"a": 1}} for group in merge(audited.groups(2))]
    found = audit(torch.optim.AdamW(held), seconds=SHORT)
    read = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert (read["groups"], read["verdict"], read["step_ms"], read["advice"]) == (2, found.verdict, found.step_ms, found.advice)
    assert (read["settings"][0]["lr"], read["settings"][0]["betas"], read["settings"][0]["note"]) == (
        "tensor(0.5)",
        [0.9, 0.999],
        "{'a': 1}",
    )


@pytest.mark.parametrize(
    ("given", "more", "message"),
    [
        (torch.nn.Linear(1, 1), {}, "given Linear: give a torch optimizer"),
        ([], {}, "given list: give a torch optimizer; audit them one by one"),
        (None, {}, "given NoneType"),
        (audited.optimizer("SGD"), {"seconds": 0}, "seconds=0: a positive number"),
        (audited.optimizer("SGD"), {"seconds": float("inf")}, "seconds=inf: a positive number"),
        (audited.optimizer("SGD"), {"seconds": "2"}, "seconds='2': a positive number"),
        (audited.optimizer("SGD"), {"seconds": True}, "seconds=True: a positive number"),
        (audited.optimizer("SGD"), {"measure": 1}, "measure=1: True, or False to count groups alone"),
    ],
)
def test_bad_arguments(given: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        audit(given, **more)
    assert message in str(raised.value)
