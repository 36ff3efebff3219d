"""An optimizer that exists is merged with its state and its schedulers, and goes on as it would have."""

from __future__ import annotations

import copy
import gc
from typing import Any

import gradgate
import pytest
import small_groups as s
import torch
from gradgate import param_groups
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR, LRScheduler, OneCycleLR, StepLR

Built = tuple[s.Named, torch.optim.Optimizer, list[LRScheduler]]


def built(schedule: str | None = None, names: bool = False) -> Built:
    named = s.parameters()
    optimizer = torch.optim.AdamW(s.groups(named, names))
    return named, optimizer, [s.SCHEDULERS[schedule](optimizer)] if schedule else []


@pytest.mark.parametrize("schedule", s.SCHEDULERS)
@pytest.mark.parametrize(("given", "merged_at"), [(True, 0), (False, 7)], ids=["given at first", "found in the middle"])
def test_merged_run_is_the_unmerged_one(schedule: str, given: bool, merged_at: int) -> None:
    alone, together = built(schedule), built(schedule)
    s.train(*alone, 0, 11)
    s.train(*together, 0, merged_at)
    named, optimizer, schedulers = together
    groups = optimizer.param_groups
    report = param_groups.merge_optimizer(optimizer, *schedulers) if given else param_groups.merge_optimizer(optimizer)
    assert (report.before, report.after) == (18, s.SETTINGS)
    assert optimizer.param_groups is groups and len(groups) == s.SETTINGS
    assert f"schedulers merged with it: {type(schedulers[0]).__name__}" in report.notes
    s.train(*together, merged_at, 11)
    assert s.everything(named, optimizer) == s.everything(alone[0], alone[1])
    assert len(schedulers[0].get_last_lr()) == s.SETTINGS


def test_state_dict_of_the_merged_is_that_of_one_built_so() -> None:
    alone = built("sequential", names=True)
    s.train(*alone, 0, 5)
    param_groups.merge_optimizer(alone[1])
    named = s.parameters()
    optimizer = torch.optim.AdamW(param_groups.merge(s.groups(named, names=True)))
    schedulers: list[LRScheduler] = [s.SCHEDULERS["sequential"](optimizer)]
    s.train(named, optimizer, schedulers, 0, 5)
    one, other = alone[1].state_dict(), optimizer.state_dict()
    assert str(one["param_groups"]) == str(other["param_groups"])
    assert str(sorted(one["state"].items())) == str(sorted(other["state"].items()))
    assert alone[1].state_dict()["param_groups"][0]["param_names"] == ["layer0.0", "layer0.2", "layer0.5"]


def test_groups_that_a_scheduler_will_treat_differently_stay_apart() -> None:
    named = s.parameters()
    optimizer = torch.optim.SGD([{"params": tensor} for _, tensor in named], lr=0.1)
    scheduler = LambdaLR(optimizer, [s.ramped(place % 2) for place in range(18)])
    report = param_groups.merge_optimizer(optimizer, scheduler)
    assert report.after == 2
    assert "LambdaLR.lr_lambdas" in report.kept_apart_by and "LambdaLR.lr_lambdas" in str(report.apart[0])
    s.train(named, optimizer, [scheduler], 0, 1)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.05]


def test_several_schedulers_of_one_optimizer_are_all_found() -> None:
    named, optimizer, _ = built()
    first, second = StepLR(optimizer, 2, 0.5), ExponentialLR(optimizer, 0.9)
    param_groups.merge_optimizer(optimizer)
    assert (len(first.base_lrs), len(second.base_lrs)) == (6, 6)
    s.train(named, optimizer, [first, second], 0, 3)


def test_another_optimizers_schedulers_are_left_alone() -> None:
    _, optimizer, _ = built()
    _, other, (theirs,) = built("exponential")
    param_groups.merge_optimizer(optimizer)
    assert len(theirs.base_lrs) == 18 == len(other.param_groups)
    with pytest.raises(gradgate.InvalidArgument, match="ExponentialLR is no scheduler of this optimizer"):
        param_groups.merge_optimizer(optimizer, theirs)
    with pytest.raises(gradgate.InvalidArgument, match="list is no scheduler of this optimizer"):
        param_groups.merge_optimizer(optimizer, [theirs])


def test_dropped_scheduler_is_not_found() -> None:
    _, optimizer, schedulers = built("lambdas")
    gc.disable()
    try:
        schedulers[0].known = {"as": schedulers[0]}  # type: ignore[attr-defined]
        schedulers.clear()
        assert param_groups.merge_optimizer(optimizer).notes == ()
    finally:
        gc.enable()


def test_ignored_keys_that_differ_leave_the_groups() -> None:
    _, optimizer, _ = built()
    for place, group in enumerate(optimizer.param_groups):
        group.update(name=str(place), kind="all")
    assert param_groups.merge_optimizer(optimizer, ignore=("name",)).after == s.SETTINGS
    assert all("name" not in group and group["kind"] == "all" for group in optimizer.param_groups)


class Warmup:
    """Somebody's scheduler, of no kind known to torch."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.peaks = [group["lr"] for group in optimizer.param_groups]


def test_somebodys_scheduler_must_say_what_it_keeps_for_each_group() -> None:
    _, optimizer, _ = built()
    mine = Warmup(optimizer)
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(gradgate.InvalidArgument, match=r"Warmup.peaks has 18 entries, .* give per_group=\('peaks',\)"):
        param_groups.merge_optimizer(optimizer, mine)
    assert optimizer.state_dict() == before and len(mine.peaks) == 18
    param_groups.merge_optimizer(optimizer, mine, per_group=("peaks",))
    assert mine.peaks == [group["lr"] for group in optimizer.param_groups]
    _, again, _ = built()
    kept = Warmup(again)
    param_groups.merge_optimizer(again, kept, per_group=())
    assert len(kept.peaks) == 18


def test_scheduler_with_a_list_of_another_length_is_refused_and_nothing_changes() -> None:
    _, optimizer, (scheduler,) = built("lambdas")
    scheduler.lr_lambdas.pop()  # type: ignore[attr-defined]
    with pytest.raises(gradgate.InvalidArgument, match="LambdaLR.lr_lambdas has 17 entries and the optimizer 18 parameter groups"):
        param_groups.merge_optimizer(optimizer)
    assert len(optimizer.param_groups) == 18 == len(scheduler.base_lrs)


def test_frozen_leave_unless_they_have_state_or_are_to_be_kept() -> None:
    named, optimizer, _ = built()
    s.train(named, optimizer, [], 0, 1)
    named[0][1].requires_grad_(False)
    new = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    optimizer.add_param_group({"params": [new], "lr": 0.5})
    held = copy.copy(optimizer)
    held.param_groups = [dict(group) for group in optimizer.param_groups]
    assert param_groups.merge_optimizer(held, frozen="keep").parameters == 19
    report = param_groups.merge_optimizer(optimizer)
    assert report.parameters == 18 and report.frozen == ("parameter 0 of group 18, (2,)",)
    optimizer.load_state_dict(optimizer.state_dict())
    assert named[0][1] in optimizer.state


def test_twice_is_once() -> None:
    named, optimizer, schedulers = built("nested")
    param_groups.merge_optimizer(optimizer)
    before = str(optimizer.state_dict()) + str(schedulers[0].get_last_lr())
    report = param_groups.merge_optimizer(optimizer)
    assert (report.before, report.after) == (6, 6)
    assert str(optimizer.state_dict()) + str(schedulers[0].get_last_lr()) == before


def test_keys_in_the_groups_that_a_scheduler_made_are_settings() -> None:
    """OneCycleLR keeps its own in the groups."""
    named = s.parameters()
    optimizer = torch.optim.SGD([{"params": tensor} for _, tensor in named], lr=0.1, momentum=0.9)
    scheduler = OneCycleLR(optimizer, [0.1 * (1 + place % 3) for place in range(18)], total_steps=10)
    assert param_groups.merge_optimizer(optimizer).after == 3
    s.train(named, optimizer, [scheduler], 0, 5)


def test_fused_sgd_is_not_given_groups_in_which_momentum_has_begun_for_some() -> None:
    named = s.parameters()
    optimizer = torch.optim.SGD([{"params": tensor} for _, tensor in named], lr=0.1, momentum=0.9, fused=True)
    named[3][1].grad = torch.ones_like(named[3][1])
    optimizer.step()
    report = param_groups.merge_optimizer(optimizer)
    assert report.members == ((0, 1, 2, *range(4, 18)), (3,))
    assert "(momentum begun)" in str(report.apart[0])
    s.train(named, optimizer, [], 0, 2)


def test_one_group_is_left_as_it_is() -> None:
    tensors = [torch.nn.Parameter(torch.ones(2))]
    optimizer = torch.optim.LBFGS(tensors)
    assert param_groups.merge_optimizer(optimizer).after == 1


NO_OPTIMIZERS: list[Any] = [None, torch.nn.Linear(1, 1), {"param_groups": []}]


@pytest.mark.parametrize("held", NO_OPTIMIZERS, ids=str)
def test_what_is_no_optimizer_is_refused(held: Any) -> None:
    with pytest.raises(gradgate.InvalidArgument, match="is no torch optimizer"):
        param_groups.merge_optimizer(held)


def test_optimizer_with_another_inside_is_refused() -> None:
    class Sharded(torch.optim.SGD):
        pass

    _, inner, _ = built()
    outer = Sharded([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    outer.optim = inner  # type: ignore[attr-defined]
    with pytest.raises(gradgate.Refused, match="Sharded keeps other groups in its optim"):
        param_groups.merge_optimizer(outer)
