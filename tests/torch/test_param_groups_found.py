"""Cases that were found by trying to break it: each gave a wrong result in silence, or failed where it should not."""

from __future__ import annotations

import functools
import gc
import logging
from typing import Any

import gradgate
import numpy as np
import pytest
import small_groups as s
import torch
from gradgate import param_groups
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, StepLR

Tensors = list[torch.nn.Parameter]


def tensors(count: int) -> Tensors:
    return [torch.nn.Parameter(torch.zeros(2)) for _ in range(count)]


def merged(*settings: dict[str, Any]) -> param_groups.Groups:
    return param_groups.merge([{"params": tensor, **held} for tensor, held in zip(tensors(len(settings)), settings, strict=True)])


def sgd(**settings: Any) -> torch.optim.SGD:
    return torch.optim.SGD([{"params": tensor} for tensor in tensors(3)], lr=0.1, **settings)


def test_numbers_of_numpy_are_other_numbers() -> None:
    assert len(merged({"lr": 0.5}, {"lr": np.float32(0.5)})) == 2
    assert len(merged({"lr": np.float32(0.5)}, {"lr": np.float32(0.5)})) == 1


def test_values_of_any_size_and_shape() -> None:
    held: list[Any] = []
    held.append(held)
    assert len(merged({"mine": held}, {"mine": held}, {"mine": 10**400}, {"mine": 10**400})) == 2


def test_functions_with_other_attributes() -> None:
    one, other = s.ramped(1.0), s.ramped(1.0)
    assert len(merged({"mine": one}, {"mine": other})) == 1
    one.rate, other.rate = 1, 2  # type: ignore[attr-defined]
    assert len(merged({"mine": one}, {"mine": other})) == 2


def test_parameter_list() -> None:
    assert [len(group["params"]) for group in param_groups.merge(torch.nn.ParameterList(tensors(3)))] == [3]


def test_merging_leaves_tensors_swappable() -> None:
    """As .to() of sharded models needs them."""
    model = torch.nn.Linear(2, 2)
    param_groups.merge(model.parameters())
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert model.weight.dtype == torch.float64


class Each(LRScheduler):
    """Somebody's: a factor for each group."""

    def __init__(self, optimizer: torch.optim.Optimizer, factors: Any) -> None:
        self.factors = factors
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:  # type: ignore[override]
        return [float(rate * factor) for rate, factor in zip(self.base_lrs, self.factors, strict=True)]


@pytest.mark.parametrize("kind", [tuple, np.array, torch.tensor], ids=["tuple", "array", "tensor"])
def test_values_for_each_group_that_are_no_list(kind: Any) -> None:
    optimizer = sgd()
    scheduler = Each(optimizer, kind((0.5, 0.6, 0.7)))
    with pytest.raises(gradgate.InvalidArgument, match="Each.factors has 3 entries, as many as the optimizer has parameter groups"):
        param_groups.merge_optimizer(optimizer, scheduler)
    if kind is tuple:
        assert param_groups.merge_optimizer(optimizer, scheduler, per_group=("factors",)).after == 3
        return
    with pytest.raises(gradgate.InvalidArgument, match="Each.factors is .*; only lists and tuples can be merged"):
        param_groups.merge_optimizer(optimizer, scheduler, per_group=("factors",))


def test_optimizer_with_lists_of_its_own() -> None:
    class Lookahead(torch.optim.SGD):
        slow: list[int]

    optimizer = Lookahead([{"params": tensor} for tensor in tensors(3)], lr=0.1)
    optimizer.slow = [1, 2, 3]
    with pytest.raises(gradgate.Refused, match="Lookahead.slow has as many entries as there are parameter groups"):
        param_groups.merge_optimizer(optimizer)
    assert len(optimizer.param_groups) == 3
    assert param_groups.merge_optimizer(optimizer, per_group=()).after == 1


def test_one_rate_tensor_of_several_groups_under_a_scheduler() -> None:
    rate = torch.tensor(0.5)
    optimizer = torch.optim.Adam([{"params": tensor} for tensor in tensors(3)], lr=rate)
    assert param_groups.merge_optimizer(torch.optim.Adam([{"params": tensor} for tensor in tensors(3)], lr=rate)).after == 1
    scheduler = LambdaLR(optimizer, [s.ramped(rate) for rate in (0.0, 1.0, 0.0)])
    with pytest.raises(
        gradgate.InvalidArgument, match=r"groups 0 and 1 share one tensor as lr, .* give each group its own \(lr.clone\(\)\)"
    ):
        param_groups.merge_optimizer(optimizer, scheduler)


def test_one_rate_tensor_that_a_scheduler_writes_the_same_into() -> None:
    def built() -> tuple[Tensors, torch.optim.Optimizer, LRScheduler]:
        held = tensors(4)
        optimizer = torch.optim.Adam([{"params": tensor} for tensor in held], lr=torch.tensor(0.5))
        return held, optimizer, s.chained(optimizer)

    alone, together = built(), built()
    assert param_groups.merge_optimizer(together[1]).after == 1
    for held, optimizer, scheduler in (alone, together):
        s.train([(str(place), tensor) for place, tensor in enumerate(held)], optimizer, [scheduler], 0, 5)
    assert [tensor.tolist() for tensor in alone[0]] == [tensor.tolist() for tensor in together[0]]


def test_scheduler_that_is_hidden_from_the_garbage_collector() -> None:
    optimizer = sgd()
    scheduler = LambdaLR(optimizer, [s.ramped(rate) for rate in (0.0, 1.0, 0.0)])
    gc.freeze()
    try:
        with pytest.raises(gradgate.InvalidArgument, match=r"gc.freeze\(\) hides such: give merge_optimizer its schedulers"):
            param_groups.merge_optimizer(optimizer)
        assert param_groups.merge_optimizer(optimizer, scheduler).after == 2
    finally:
        gc.unfreeze()


def test_lists_are_made_before_anything_changes() -> None:
    optimizer = sgd()
    scheduler = StepLR(optimizer, 2)
    scheduler.base_lrs = tuple(scheduler.base_lrs)  # type: ignore[assignment]
    param_groups.merge_optimizer(optimizer, scheduler)
    assert scheduler.base_lrs == (0.1,)  # type: ignore[comparison-overlap]


# --- checkpoints


def checkpoint(merge: bool = False, **settings: Any) -> tuple[s.Named, torch.optim.Optimizer]:
    named = s.parameters()
    groups = s.groups(named)
    optimizer = torch.optim.AdamW(param_groups.merge(groups) if merge else groups, **settings)
    s.train(named, optimizer, [], 0, 2)
    return named, optimizer


def test_implementation_is_the_targets_own() -> None:
    _, old = checkpoint()
    _, new = checkpoint(merge=True, fused=True)
    new.load_state_dict(param_groups.regroup_state_dict(old.state_dict(), target=new)[0])
    assert [group["fused"] for group in new.param_groups] == [True] * s.SETTINGS
    assert all(group["fused"] is None for group in param_groups.regroup_state_dict(old.state_dict())[0]["param_groups"])


def test_adagrad_has_state_for_what_it_never_steps() -> None:
    def built(merge: bool) -> tuple[Tensors, torch.optim.Optimizer]:
        held = tensors(3)
        held[1].requires_grad_(False)
        groups = [{"params": [tensor]} for tensor in held]
        return held, torch.optim.Adagrad(param_groups.merge(groups) if merge else groups)

    held, old = built(False)
    s.train([(str(place), tensor) for place, tensor in enumerate(held)], old, [], 0, 1)
    _, new = built(True)
    new.load_state_dict(param_groups.regroup_state_dict(old.state_dict(), target=new)[0])


def test_sgd_without_momentum_in_some_groups_has_nobody_frozen() -> None:
    held = tensors(4)
    optimizer = torch.optim.SGD([{"params": tensor, "momentum": 0.9 * (place % 2)} for place, tensor in enumerate(held)], lr=0.1)
    s.train([(str(place), tensor) for place, tensor in enumerate(held)], optimizer, [], 0, 1)
    whole: dict[str, Any] = {"optimizer_states": [optimizer.state_dict()], "lr_schedulers": []}
    param_groups.regroup_checkpoint(whole)
    assert [len(group["params"]) for group in whole["optimizer_states"][0]["param_groups"]] == [2, 2]


def test_settings_that_are_no_bytes_in_a_row() -> None:
    sparse = torch.zeros(3).to_sparse()
    assert len(merged({"mine": sparse}, {"mine": sparse}, {"mine": torch.zeros(3).to_sparse()})) == 2


def test_order_of_the_other_side_is_refused() -> None:
    _, old = checkpoint(merge=True)
    named, new = checkpoint()
    with pytest.raises(gradgate.InvalidArgument, match="order"):
        param_groups.regroup_state_dict(old.state_dict(), target=new, order=[tensor for _, tensor in named])
    right = param_groups.merge(s.groups(named))
    param_groups.regroup_state_dict(old.state_dict(), target=new, order=right)


def named_groups(prefix: str, order: int = 1) -> list[dict[str, Any]]:
    return [{"params": [(f"{prefix}{name}", tensor)], "lr": 0.1} for name, tensor in s.parameters()[::order]]


def test_prefixes_of_wrappers_are_no_part_of_names(caplog: pytest.LogCaptureFixture) -> None:
    old, new = torch.optim.SGD(named_groups("module._orig_mod.")), torch.optim.SGD(param_groups.merge(named_groups("", -1)))
    state = param_groups.regroup_state_dict(old.state_dict(), target=new)[0]
    assert state["param_groups"][0]["param_names"] == [f"{name}" for name, _ in s.parameters()[::-1]]
    assert not caplog.records


def test_names_that_have_nothing_in_common_are_told(caplog: pytest.LogCaptureFixture) -> None:
    old, new = torch.optim.SGD(named_groups("a.")), torch.optim.SGD(param_groups.merge(named_groups("b.")))
    param_groups.regroup_state_dict(old.state_dict(), target=new)
    assert "names (a.layer0.0, …) and the optimizer's (b.layer0.0, …) have none in common" in caplog.text


def test_merged_checkpoint_of_another_model_is_refused() -> None:
    _, old = checkpoint(merge=True)
    wider = [(name, torch.nn.Parameter(torch.zeros(*tensor.shape, 2))) for name, tensor in s.parameters()]
    new = torch.optim.AdamW(
        param_groups.merge([{**group, "params": tensor} for group, (_, tensor) in zip(s.groups(s.parameters()), wider, strict=True)])
    )
    with pytest.raises(gradgate.InvalidArgument, match=r"of shape \(4, 4\), and would go to its parameter 0 .* of shape \(4, 4, 2\)"):
        param_groups.regroup_state_dict(old.state_dict(), target=new)


@pytest.mark.parametrize(("given", "said"), [({"base_lrs": [1.0]}, "a dict with 'base_lrs'"), ("old.pt", "str")])
def test_what_is_not_recognised_is_told(given: Any, said: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gradgate"):
        assert param_groups.regroup_state_dict(given)[0] is given
    assert f"{said} is no optimizer's state dict" in caplog.text


def test_schedulers_in_a_dict() -> None:
    named, old = checkpoint()
    state = {"warm": s.warmed(old).state_dict(), "chain": s.chained(old).state_dict(), "other": {"mine": 3}}
    new = torch.optim.AdamW(param_groups.merge(s.groups(named)))
    regrouped = param_groups.regroup_state_dict(old.state_dict(), state, target=new)[1]
    assert [len(regrouped[name]["_last_lr"]) for name in ("warm", "chain")] == [s.SETTINGS] * 2
    assert regrouped["other"] == {"mine": 3}


def test_on_the_way_back_groups_do_not_share_what_can_be_written_to() -> None:
    named = s.parameters()
    held: dict[str, Any] = {"mine": {"f": [1.0]}}
    old = torch.optim.AdamW(param_groups.merge([{**group, **held} for group in s.groups(named)]))
    new = torch.optim.AdamW(s.groups(named, mine={"f": [0.0]}))
    state: dict[str, Any] = {"lr_lambdas": [{"history": []}] * s.SETTINGS, "last_epoch": 1}
    regrouped, scheduler = param_groups.regroup_state_dict(old.state_dict(), state, target=new)
    assert len({id(group["mine"]["f"]) for group in regrouped["param_groups"]}) == 18 - s.SETTINGS + 1
    assert len({id(one["history"]) for one in scheduler["lr_lambdas"]}) == 18 - s.SETTINGS + 1


def test_lightning_with_names_of_groups() -> None:
    named = s.parameters()
    old = torch.optim.AdamW([{**group, "name": str(place)} for place, group in enumerate(s.groups(named))])
    regroup = functools.partial(param_groups.regroup_checkpoint, optimizers=torch.optim.AdamW(param_groups.merge(s.groups(named))))
    with pytest.raises(gradgate.InvalidArgument, match=r"ignore=\('name',\)"):
        regroup({"optimizer_states": [old.state_dict()], "lr_schedulers": []})
    whole: dict[str, Any] = {"optimizer_states": [old.state_dict()], "lr_schedulers": []}
    regroup(whole, ignore=("name",))
    assert len(whole["optimizer_states"][0]["param_groups"]) == s.SETTINGS


def test_lightning_is_given_what_it_can_use() -> None:
    with pytest.raises(gradgate.InvalidArgument, match="checkpoint is str; give the dict"):
        param_groups.regroup_checkpoint("last.ckpt")  # type: ignore[arg-type]
    with pytest.raises(gradgate.InvalidArgument, match=r"no optimizer in Linear; give self.configure_optimizers\(\)"):
        param_groups.regroup_checkpoint({"optimizer_states": [checkpoint()[1].state_dict()]}, torch.nn.Linear(1, 1))


def test_audit_tells_of_keys_that_need_not_keep_groups_apart() -> None:
    named = s.parameters()
    optimizer = torch.optim.AdamW([{**group, "name": str(place)} for place, group in enumerate(s.groups(named))])
    assert "without the key 'name' it would need 6: merge(groups, ignore=('name',))" in str(param_groups.audit(optimizer, measure=False))
