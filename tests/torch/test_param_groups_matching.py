"""Which saved parameter is which: where that cannot be told for sure, nothing is loaded in silence."""

from __future__ import annotations

import copy
from typing import Any

import gradgate
import pytest
import torch
from gradgate import param_groups
from test_param_groups_checkpoints import forget_origins

Tensors = list[torch.nn.Parameter]


def tensors(count: int) -> Tensors:
    return [torch.nn.Parameter(torch.zeros(2)) for _ in range(count)]


def adam(groups: Any) -> torch.optim.Adam:
    return torch.optim.Adam(groups, lr=0.1)


def stepped(held: Tensors, optimizer: torch.optim.Optimizer) -> Any:
    """Its state, of which `marks` tells the parameter."""
    for place, tensor in enumerate(held):
        tensor.grad = torch.full((2,), float(place + 1)) if tensor.requires_grad else None
    optimizer.step()
    return optimizer.state_dict()


def marks(held: Tensors, optimizer: torch.optim.Optimizer) -> list[float]:
    return [round(float(optimizer.state[tensor]["exp_avg"][0]) * 10) if tensor in optimizer.state else 0 for tensor in held]


def of_kinds(held: Tensors, ignore: tuple[str, ...] = ()) -> torch.optim.Adam:
    """Merged by kind {0, 2}, {1}; ignoring it {0, 1, 2}: merged again the former has another order than the latter."""
    return adam(param_groups.merge([{"params": [tensor], "kind": kind} for tensor, kind in zip(held, "aba", strict=True)], ignore=ignore))


def test_merged_groups_that_would_merge_further_are_refused_until_the_order_is_told() -> None:
    old, new = tensors(3), tensors(3)
    state = stepped(old, of_kinds(old))
    wanted = of_kinds(new, ("kind",))
    with pytest.raises(gradgate.InvalidArgument, match=r"checkpoint's groups 0, 1, of 2, 1 parameters, .* may have been merged before"):
        param_groups.regroup_state_dict(state, target=wanted, ignore=("kind",))
    told = param_groups.regroup_state_dict(state, target=wanted, ignore=("kind",), order=[new[0], new[2], new[1]])[0]
    wanted.load_state_dict(told)
    assert marks(new, wanted) == [1, 2, 3]


@pytest.mark.parametrize("as_state", [False, True])
def test_merged_target_is_matched_in_the_order_that_merge_was_given(as_state: bool) -> None:
    old, new = tensors(3), tensors(3)
    state = stepped(old, of_kinds(old, ("kind",)))
    wanted = of_kinds(new)
    if as_state:
        with pytest.raises(gradgate.InvalidArgument, match="which parameter is which cannot be told"):
            param_groups.regroup_state_dict(state, target=wanted.state_dict())
        return
    wanted.load_state_dict(param_groups.regroup_state_dict(state, target=wanted)[0])
    assert marks(new, wanted) == [1, 2, 3]


def test_copy_of_a_merged_target_is_not_taken_for_one_that_was_never_merged() -> None:
    old, new = tensors(3), tensors(3)
    state = stepped(old, of_kinds(old, ("kind",)))
    copied: torch.optim.Adam = copy.deepcopy(of_kinds(new))
    with pytest.raises(gradgate.InvalidArgument, match="optimizer's groups 0, 1, of 2, 1 parameters, .* may have been merged before"):
        param_groups.regroup_state_dict(state, target=copied)


def test_origin_of_groups_merged_by_hand_says_nothing_of_single_ones() -> None:
    old, new = tensors(3), tensors(3)
    state = stepped(old, adam([{"params": [tensor]} for tensor in old]))
    by_hand = [{"params": [new[0], new[2]], "kind": 1}, {"params": [new[1]], "kind": 2}]
    for target in (adam(param_groups.merge(by_hand)), adam(by_hand)):
        with pytest.raises(gradgate.InvalidArgument, match="which parameter is which cannot be told"):
            param_groups.regroup_state_dict(state, target=target)


def test_merging_twice_gives_the_order_of_merging_once() -> None:
    held = tensors(6)
    groups = [{"params": [tensor], "lr": lr} for tensor, lr in zip(held, (1.0, 2.0, 3.0, 1.0, 2.0, 3.0), strict=True)]
    optimizer = adam(param_groups.merge(groups))
    for group in optimizer.param_groups:
        group["lr"] = 0.5
    param_groups.merge_optimizer(optimizer)
    assert [id(tensor) for tensor in optimizer.param_groups[0]["params"]] == [id(tensor) for tensor in held]


def test_merge_in_another_order_says_nothing_of_an_unmerged_target() -> None:
    old, new = tensors(3), tensors(3)
    state = stepped(old, adam(param_groups.merge(old)))
    param_groups.merge([{"params": [tensor]} for tensor in reversed(new)])
    target = adam([{"params": [tensor]} for tensor in new])
    target.load_state_dict(param_groups.regroup_state_dict(state, target=target)[0])
    assert marks(new, target) == [1, 2, 3]


def test_rates_that_met_in_merged_groups_are_no_reason_to_merge_them() -> None:
    old, new = tensors(3), tensors(3)
    rates = [{"params": [tensor], "lr": lr} for tensor, lr in zip(old, (0.1, 0.2, 0.1), strict=True)]
    optimizer = adam(param_groups.merge(rates))
    for group in optimizer.param_groups:
        group["lr"] = 0.05
    state = stepped(old, optimizer)
    wanted = torch.optim.Adam(param_groups.merge(new), lr=0.05)
    with pytest.raises(gradgate.InvalidArgument, match="may have been merged before"):
        param_groups.regroup_state_dict(state, target=wanted)


def test_name_of_two_parameters_is_no_name() -> None:
    def named(held: Tensors) -> list[dict[str, Any]]:
        return [{"params": [(name, tensor)]} for name, tensor in zip("wwv", held, strict=True)]

    old, new = tensors(3), tensors(3)
    state = stepped(old, adam(named(old)))
    wanted = adam(param_groups.merge(named(new)))
    wanted.load_state_dict(param_groups.regroup_state_dict(state, target=wanted)[0])
    assert marks(new, wanted) == [1, 2, 3]


@pytest.mark.parametrize("how", ["origin", "order", "names"])
def test_state_of_a_parameter_that_is_frozen_now_is_not_dropped_in_silence(how: str) -> None:
    def groups(held: Tensors) -> list[dict[str, Any]]:
        return [{"params": [(f"p{place}", tensor)] if how == "names" else [tensor]} for place, tensor in enumerate(held)]

    old, new = tensors(2), tensors(2)
    state = stepped(old, adam(groups(old)))
    new[0].requires_grad_(False)
    wanted = adam(param_groups.merge(groups(new)))
    with pytest.raises(gradgate.InvalidArgument, match=r"holds state for (p0|parameter 0), which the optimizer does not have"):
        param_groups.regroup_state_dict(state, target=wanted, order=new if how == "order" else None)


def test_frozen_ones_that_are_only_counted_are_told(caplog: pytest.LogCaptureFixture) -> None:
    old, new = tensors(3), tensors(3)
    for held in (old, new):
        held[1].requires_grad_(False)
    state = stepped(old, adam([{"params": [tensor]} for tensor in old]))
    wanted = adam(param_groups.merge(new))
    forget_origins(wanted)
    wanted.load_state_dict(param_groups.regroup_state_dict(state, target=wanted)[0])
    assert marks(new, wanted) == [1, 0, 3]
    assert "1 of the checkpoint's parameters are taken for frozen ones" in caplog.text


def test_two_merges_of_the_same_tensors_in_different_orders_are_none() -> None:
    old, new = tensors(3), tensors(3)
    state = stepped(old, adam([{"params": [tensor]} for tensor in old]))
    wanted = adam(param_groups.merge([{"params": [tensor]} for tensor in new]))
    param_groups.merge([{"params": [tensor]} for tensor in reversed(new)])
    wanted.load_state_dict(param_groups.regroup_state_dict(state, target=wanted)[0])
    assert marks(new, wanted) == [1, 2, 3]
