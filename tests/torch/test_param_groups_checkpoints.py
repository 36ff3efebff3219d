"""A checkpoint of one group per parameter goes into an optimizer with merged groups, and back; a resumed run is the uninterrupted one."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import random
from collections.abc import Callable
from typing import Any

import gradgate
import pytest
import small_groups as s
import torch
from gradgate import param_groups
from torch.optim.lr_scheduler import LambdaLR

SAVED_AT, END = 6, 11
Build = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]


def adamw(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=1.0)


def through_a_file(held: Any) -> Any:
    file = io.BytesIO()
    torch.save(held, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


class Run:
    """`merged`: whether its groups are."""

    def __init__(self, merged: bool, schedule: str | None = None, names: bool = False, build: Build = adamw) -> None:
        self.named = s.parameters()
        groups = s.groups(self.named, names)
        self.optimizer = build(param_groups.merge(groups) if merged else groups)
        self.schedulers = [s.SCHEDULERS[schedule](self.optimizer)] if schedule else []

    def train(self, begin: int, end: int) -> Run:
        s.train(self.named, self.optimizer, self.schedulers, begin, end)
        return self

    def save(self) -> tuple[Any, Any, list[torch.Tensor]]:
        held = (self.optimizer.state_dict(), [one.state_dict() for one in self.schedulers], [tensor.detach() for _, tensor in self.named])
        return through_a_file(held)  # type: ignore[no-any-return]

    def load(self, optimizer: Any, schedulers: Any, weights: list[torch.Tensor]) -> Run:
        for (_, tensor), value in zip(self.named, weights, strict=True):
            tensor.data.copy_(value)
        self.optimizer.load_state_dict(optimizer)
        for scheduler, state in zip(self.schedulers, schedulers, strict=True):
            scheduler.load_state_dict(state)
        return self

    def everything(self) -> dict[str, Any]:
        return s.everything(self.named, self.optimizer)


def forget_origins(optimizer: torch.optim.Optimizer) -> None:
    """As if its parameters had come out of a copy of the model."""
    for tensor in (tensor for group in optimizer.param_groups for tensor in group["params"]):
        vars(tensor).pop(param_groups.origin._ATTRIBUTE, None)


@pytest.mark.parametrize("schedule", s.SCHEDULERS)
@pytest.mark.parametrize("merged_first", [False, True], ids=["into merged", "back"])
@pytest.mark.parametrize("origins", [True, False], ids=["seen", "unseen"])
def test_resumed_run_is_the_uninterrupted_one(schedule: str, merged_first: bool, origins: bool) -> None:
    run = Run(merged_first, schedule).train(0, SAVED_AT)
    optimizer, schedulers, weights = run.save()
    resumed = Run(not merged_first, schedule)
    assert len(resumed.optimizer.param_groups) == (len(s.SHAPES) if merged_first else s.SETTINGS)
    if not origins:
        forget_origins(resumed.optimizer)
    optimizer, schedulers = param_groups.regroup_state_dict(optimizer, schedulers, target=resumed.optimizer)
    resumed.load(optimizer, schedulers, weights).train(SAVED_AT, END)
    run.train(SAVED_AT, END)
    assert resumed.everything() == run.everything()


def expected(schedule: str) -> tuple[s.Named, torch.optim.Optimizer]:
    run = Run(False, schedule).train(0, END)
    return run.named, run.optimizer


@pytest.mark.parametrize("schedule", ["lambda", "lambdas"])
def test_without_regrouping_torch_refuses_the_optimizer_and_takes_the_scheduler_in_silence(schedule: str) -> None:
    optimizer, schedulers, _ = Run(False, schedule).train(0, SAVED_AT).save()
    resumed = Run(True, schedule)
    with pytest.raises(ValueError, match="different number of parameter groups"):
        resumed.optimizer.load_state_dict(optimizer)
    resumed.schedulers[0].load_state_dict(schedulers[0])
    assert len(resumed.schedulers[0].base_lrs) == len(s.SHAPES)
    with contextlib.suppress(ValueError):  # of zip(), at the first step; older releases of torch pair rates and groups wrongly
        resumed.train(SAVED_AT, END)
        assert s.settings_of(resumed.named, resumed.optimizer) != s.settings_of(*expected(schedule))


@pytest.mark.parametrize("merged_first", [False, True])
def test_without_a_target_the_checkpoint_is_grouped_as_merge_does(merged_first: bool) -> None:
    run = Run(merged_first, "sequential").train(0, SAVED_AT)
    state, schedulers, _ = run.save()
    grouped, collapsed = param_groups.regroup_state_dict(state, schedulers[0])
    assert len(grouped["param_groups"]) == len(collapsed["_last_lr"]) == len(collapsed["_schedulers"][1]["base_lrs"]) == s.SETTINGS
    assert (grouped is state) == merged_first
    Run(True, "sequential").load(grouped, [collapsed], [tensor for _, tensor in s.parameters()])


def test_inputs_are_not_changed() -> None:
    state, schedulers, _ = Run(False, "nested").train(0, SAVED_AT).save()
    before = copy.deepcopy((state, schedulers))
    param_groups.regroup_state_dict(state, schedulers, target=Run(True).optimizer)
    assert str(before) == str((state, schedulers))


@pytest.mark.parametrize("merged", [False, True])
def test_what_fits_already_is_the_same_object(merged: bool) -> None:
    run = Run(merged, "nested").train(0, SAVED_AT)
    state, schedulers, _ = run.save()
    optimizer, again = param_groups.regroup_state_dict(state, schedulers, target=run.optimizer)
    assert optimizer is state
    assert str(again) == str(schedulers)


UNKNOWN: list[Any] = [
    None,
    {},
    {"foo": 1},
    {"state": {}, "param_groups": []},
    {"state": {}, "param_groups": [{"lr": 1.0}]},
    {"base_optimizer_state": {}, "single_partition_of_fp32_groups": []},
    "text",
]


@pytest.mark.parametrize("state", UNKNOWN)
def test_what_is_not_recognised_passes_untouched(state: Any) -> None:
    scheduler = {"base_lrs": [1.0] * 18, "last_epoch": 3}
    assert param_groups.regroup_state_dict(state, scheduler, target=Run(True).optimizer) == (state, scheduler)
    assert param_groups.regroup_state_dict(state, scheduler)[0] is state


def test_unrecognised_scheduler_passes_untouched_and_others_are_regrouped() -> None:
    state, schedulers, _ = Run(False, "sequential").train(0, SAVED_AT).save()
    mine = {"my_rates": [0.1] * 18}
    _, (first, second) = param_groups.regroup_state_dict(state, [mine, schedulers[0]], target=Run(True).optimizer)
    assert first is mine
    assert len(second["_last_lr"]) == s.SETTINGS


def test_list_of_unknown_meaning_is_kept_and_told(caplog: pytest.LogCaptureFixture) -> None:
    state, _, _ = Run(False).train(0, SAVED_AT).save()
    scheduler: dict[str, Any] = {"last_epoch": 3, "base_lrs": [0.1] * 18, "peaks": [0.5] * 18}
    wanted = Run(True).optimizer
    with caplog.at_level(logging.WARNING, "gradgate"):
        regrouped = param_groups.regroup_state_dict(state, scheduler, target=wanted)[1]
    assert (len(regrouped["base_lrs"]), len(regrouped["peaks"])) == (6, 18)
    assert "peaks has 18 entries" in caplog.text and "per_group=('peaks',)" in caplog.text
    assert param_groups.regroup_state_dict(state, scheduler, target=wanted, per_group=("peaks",))[1]["peaks"] == [0.5] * 6


def test_list_of_the_wrong_length_is_a_clear_error() -> None:
    state, schedulers, _ = Run(False, "lambdas").train(0, SAVED_AT).save()
    schedulers[0]["lr_lambdas"] = [None] * 17
    with pytest.raises(gradgate.InvalidArgument, match=r"lr_lambdas has 17 entries; .* has 18 parameter groups .* load into 6"):
        param_groups.regroup_state_dict(state, schedulers, target=Run(True).optimizer)


def test_wrong_length_inside_a_scheduler_of_schedulers_is_named_with_its_path() -> None:
    state, schedulers, _ = Run(False, "sequential").train(0, SAVED_AT).save()
    schedulers[0]["_schedulers"][1]["base_lrs"] = [0.1] * 4
    with pytest.raises(gradgate.InvalidArgument, match=r"_schedulers\[1\]\.base_lrs has 4 entries"):
        param_groups.regroup_state_dict(state, schedulers, target=Run(True).optimizer)


@pytest.mark.parametrize("key", ["lr", "weight_decay", "betas"])
def test_groups_that_become_one_and_were_saved_with_different_settings_are_refused_by_name(key: str) -> None:
    state, _, _ = Run(False, names=True).train(0, SAVED_AT).save()
    state["param_groups"][14][key] = (0.5, 0.5) if key == "betas" else 0.5
    wanted = Run(True, names=True).optimizer
    with pytest.raises(gradgate.InvalidArgument) as refused:
        param_groups.regroup_state_dict(state, target=wanted)
    assert f"{key} was" in str(refused.value)
    assert "group 12 ('layer2.0')" in str(refused.value) and "group 14 ('layer2.2')" in str(refused.value)
    taken = param_groups.regroup_state_dict(state, target=wanted, ignore=(key,))[0]
    assert taken["param_groups"][4][key] == wanted.param_groups[4][key]


def test_schedulers_values_that_become_one_and_differ_are_refused_by_name() -> None:
    state, schedulers, _ = Run(False, "sequential").train(0, SAVED_AT).save()
    schedulers[0]["_schedulers"][0]["base_lrs"][3] = 0.7
    with pytest.raises(gradgate.InvalidArgument, match=r"_schedulers\[0\]\.base_lrs was 0.01 in .* group 1 .* 0.7 in its group 3"):
        param_groups.regroup_state_dict(state, schedulers, target=Run(True).optimizer)


def test_rates_that_have_met_since_do_not_merge_more_than_the_optimizer_did() -> None:
    """Where merge() saw the parameters or they have names, the target's groups count, not what the checkpoint's would merge into."""
    for names in (False, True):
        run = Run(False, names=names)
        for group in run.optimizer.param_groups:
            group["lr"] = 0.0
        state, _, weights = run.train(0, SAVED_AT).save()
        resumed = Run(True, names=names)
        regrouped = param_groups.regroup_state_dict(state, target=resumed.optimizer)[0]
        assert [group["lr"] for group in regrouped["param_groups"]] == [0.0] * s.SETTINGS
        resumed.load(regrouped, [], weights)
        assert resumed.everything() == run.everything()
        if not names:
            resumed = Run(True)
            forget_origins(resumed.optimizer)
            with pytest.raises(gradgate.InvalidArgument, match=r"groups merge into 2 of .* the optimizer's into 6 .* give order="):
                param_groups.regroup_state_dict(state, target=resumed.optimizer)
            for order in ([tensor for _, tensor in resumed.named], resumed.named, s.groups(resumed.named)):
                assert str(param_groups.regroup_state_dict(state, target=resumed.optimizer, order=order)[0]) == str(regrouped)


def test_state_that_is_no_parameters_stays() -> None:
    state, _, _ = Run(False).train(0, SAVED_AT).save()
    state["state"]["global"] = {"trust": 3.0}
    assert param_groups.regroup_state_dict(state, target=Run(True).optimizer)[0]["state"]["global"] == {"trust": 3.0}


def test_tied_parameter_that_merge_was_given_twice_stands_where_it_stood_first() -> None:
    named = s.parameters()
    old = adamw([{"params": tensor, "lr": 0.1} for _, tensor in named])
    s.train(named, old, [], 0, 2)
    tied = [{"params": tensor, "lr": 0.1} for _, tensor in [*named, named[0]]]
    new = adamw(param_groups.merge(tied[::-1]))
    with pytest.raises(gradgate.InvalidArgument, match="of shape"):
        param_groups.regroup_state_dict(old.state_dict(), target=new)
    new = adamw(param_groups.merge(tied))
    new.load_state_dict(param_groups.regroup_state_dict(old.state_dict(), target=new)[0])
    assert [held for _, held, _ in s.everything(named, new).values()] == [held for _, held, _ in s.everything(named, old).values()]


def test_orders_that_do_not_fit_are_refused() -> None:
    state, _, _ = Run(False).train(0, SAVED_AT).save()
    wanted = Run(True)
    tensors = [tensor for _, tensor in wanted.named]
    with pytest.raises(gradgate.InvalidArgument, match="order has 17 parameters and the checkpoint 18"):
        param_groups.regroup_state_dict(state, target=wanted.optimizer, order=tensors[1:])
    with pytest.raises(gradgate.InvalidArgument, match="order lacks 18 of the 18"):
        param_groups.regroup_state_dict(state, target=wanted.optimizer, order=[tensor for _, tensor in s.parameters()])
    with pytest.raises(gradgate.InvalidArgument, match="names and the optimizer's parameters have none"):
        param_groups.regroup_state_dict(state, target=wanted.optimizer, order=[name for name, _ in wanted.named])
    with pytest.raises(gradgate.InvalidArgument, match=r"is of shape \(2, 2\), and would go to its parameter 0 .* of shape \(4, 4\)"):
        param_groups.regroup_state_dict(state, target=wanted.optimizer, order=tensors[::-1])


def test_names_go_before_places() -> None:
    """The model's modules were put in another order since."""
    run = Run(False, names=True).train(0, SAVED_AT)
    state, _, weights = run.save()
    shuffled = Run(True, names=True)
    shuffled.optimizer = adamw(param_groups.merge(s.groups(shuffled.named[::-1], names=True)))
    shuffled.load(param_groups.regroup_state_dict(state, target=shuffled.optimizer)[0], [], weights)
    assert shuffled.everything() == run.everything()


def test_parameters_that_one_side_lacks_are_refused_by_name() -> None:
    state, _, _ = Run(False, names=True).train(0, SAVED_AT).save()
    named = s.parameters()
    with pytest.raises(gradgate.InvalidArgument, match=r"no parameter layer9.new"):
        more = adamw(param_groups.merge(s.groups([*named, ("layer9.new", torch.nn.Parameter(torch.zeros(2)))], names=True)))
        param_groups.regroup_state_dict(state, target=more)
    with pytest.raises(gradgate.InvalidArgument, match=r"holds state for layer2.5, which the optimizer does not have"):
        param_groups.regroup_state_dict(state, target=adamw(param_groups.merge(s.groups(named[:-1], names=True))))
    unnamed, _, _ = Run(False).train(0, SAVED_AT).save()
    with pytest.raises(gradgate.InvalidArgument, match="checkpoint has 18 parameters and the optimizer 17"):
        param_groups.regroup_state_dict(unnamed, target=adamw(param_groups.merge(s.groups(named[:-1]))))


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("origins", [True, False])
def test_frozen_parameters_that_the_old_optimizer_had_are_left_out(names: bool, origins: bool) -> None:
    def frozen(run: Run, merged: bool) -> Run:
        for place in (1, 8, 9):
            run.named[place][1].requires_grad_(False)
        groups = s.groups(run.named, names)
        run.optimizer = adamw(param_groups.merge(groups) if merged else groups)
        return run

    run = frozen(Run(False), False).train(0, SAVED_AT)
    state, _, weights = run.save()
    resumed = frozen(Run(False), True)
    if not origins:
        forget_origins(resumed.optimizer)
    resumed.load(param_groups.regroup_state_dict(state, target=resumed.optimizer)[0], [], weights)
    assert sum(len(group["params"]) for group in resumed.optimizer.param_groups) == 15
    run.train(SAVED_AT, END), resumed.train(SAVED_AT, END)
    for name, held in resumed.everything().items():
        was = run.everything()[name]
        assert held[:2] == was[:2] and held[2] in (was[2], None)


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("schedule", [None, "lambdas", "sequential"])
def test_frozen_parameters_that_the_checkpoint_lacks_keep_the_optimizers_settings(names: bool, schedule: str | None) -> None:
    def frozen(merged: bool) -> Run:
        run = Run(False)
        for place in (1, 8, 9):
            run.named[place][1].requires_grad_(False)
        groups = s.groups(run.named, names)
        run.optimizer = adamw(param_groups.merge(groups) if merged else groups)
        run.schedulers = [s.SCHEDULERS[schedule](run.optimizer)] if schedule else []
        return run

    run = frozen(True).train(0, SAVED_AT)
    state, schedulers, weights = run.save()
    resumed = frozen(False)
    state, schedulers = param_groups.regroup_state_dict(state, schedulers, target=resumed.optimizer)
    resumed.load(state, schedulers, weights)
    run.train(SAVED_AT, END), resumed.train(SAVED_AT, END)
    assert len(resumed.optimizer.param_groups) == 18
    for name, held in run.everything().items():
        theirs = resumed.everything()[name]
        assert held[:2] == theirs[:2] and held[2] in (theirs[2], None)


def test_frozen_parameters_without_a_value_for_the_scheduler_get_any() -> None:
    run = Run(True, "plateau").train(0, SAVED_AT)
    state, schedulers, _ = run.save()
    more = adamw([*s.groups(run.named), {"params": torch.nn.Parameter(torch.ones(3), requires_grad=False)}])
    _, (scheduler,) = param_groups.regroup_state_dict(state, schedulers, target=more)
    assert scheduler["min_lrs"] == [*(s.LR * 0.5 ** int(name[5]) / 3 for name, _ in run.named), scheduler["min_lrs"][0]]


def test_swapped_groups_are_refused() -> None:
    """The same sizes and the same rates in another order: state would go to other parameters, of the same shapes."""

    def two(first: float, second: float) -> tuple[list[torch.nn.Parameter], torch.optim.Optimizer]:
        tensors = [torch.nn.Parameter(torch.ones(2)) for _ in range(4)]
        groups = [{"params": tensor, "lr": first if place % 2 else second} for place, tensor in enumerate(tensors)]
        return tensors, torch.optim.SGD(groups, momentum=0.9)

    tensors, old = two(0.1, 0.2)
    for tensor in tensors:
        tensor.grad = torch.ones(2)
    old.step()
    tensors, new = two(0.2, 0.1)
    wanted = torch.optim.SGD(param_groups.merge(new.param_groups))
    forget_origins(wanted)
    with pytest.raises(gradgate.InvalidArgument, match="same values of lr as the optimizer in another order"):
        param_groups.regroup_state_dict(old.state_dict(), target=wanted)


def test_state_of_one_group_goes_into_many_with_the_targets_own_keys() -> None:
    run = Run(True).train(0, SAVED_AT)
    state, _, weights = run.save()
    resumed = Run(False)
    for place, group in enumerate(resumed.optimizer.param_groups):
        group["name"] = f"group {place}"
    resumed.load(param_groups.regroup_state_dict(state, target=resumed.optimizer)[0], [], weights)
    assert [group["name"] for group in resumed.optimizer.param_groups] == [f"group {place}" for place in range(18)]


def test_names_of_groups_that_merge_left_out_are_ignored_on_request() -> None:
    named = s.parameters()
    old = adamw([{**group, "name": str(place)} for place, group in enumerate(s.groups(named))])
    new = adamw(param_groups.merge([{**group, "name": str(place)} for place, group in enumerate(s.groups(named))], ignore=("name",)))
    with pytest.raises(gradgate.InvalidArgument, match=r"name was '0' .* ignore=\('name',\)"):
        param_groups.regroup_state_dict(old.state_dict(), target=new)
    regrouped = param_groups.regroup_state_dict(old.state_dict(), target=new, ignore=("name",))[0]
    assert "name" not in regrouped["param_groups"][0]
    new.load_state_dict(regrouped)


def test_rates_that_are_tensors_are_not_shared_by_groups_that_did_not_share_them() -> None:
    def tensors(merged: bool) -> Run:
        run = Run(False)
        groups = s.groups(run.named)
        for group in groups:
            group["lr"] = torch.tensor(group["lr"], dtype=torch.float64)
        run.optimizer = adamw(param_groups.merge(groups) if merged else groups)
        run.schedulers = [LambdaLR(run.optimizer, [s.ramped(float(lr) * 100) for lr in s.initial(run.optimizer)])]
        return run

    run = tensors(True).train(0, SAVED_AT)
    assert len(run.optimizer.param_groups) == s.SETTINGS
    state, schedulers, weights = run.save()
    resumed = tensors(False)
    assert len(resumed.optimizer.param_groups) == 18
    state, schedulers = param_groups.regroup_state_dict(state, schedulers, target=resumed.optimizer)
    resumed.load(state, schedulers, weights).train(SAVED_AT, END)
    run.train(SAVED_AT, END)
    assert len({id(group["lr"]) for group in resumed.optimizer.param_groups}) == 18
    assert len({id(rate) for rate in schedulers[0]["base_lrs"]}) == 18
    assert resumed.everything() == run.everything()


@pytest.mark.parametrize("seed", range(40))
def test_random_groups_with_shared_and_single_parameters(seed: int) -> None:
    """Groups of any sizes and settings, merged and not, in both directions, with state of another optimizer."""
    drawn = random.Random(seed)
    shapes = [tuple(drawn.choices((1, 2, 3), k=drawn.randint(0, 3))) for _ in range(drawn.randint(1, 30))]
    cuts = sorted(drawn.sample(range(1, len(shapes)), drawn.randint(0, len(shapes) - 1)))
    settings = [
        {"lr": drawn.choice((0.1, 0.2)), "weight_decay": drawn.choice((0, 0.0, 0.1)), "maximize": drawn.random() < 0.3} for _ in [0, *cuts]
    ]

    def built(merged: bool) -> tuple[s.Named, torch.optim.Optimizer, list[Any]]:
        named = [(str(place), torch.nn.Parameter(torch.full(shape, float(place)))) for place, shape in enumerate(shapes)]
        spans = [*zip([0, *cuts], [*cuts, len(shapes)], strict=True)]
        groups = [{"params": [tensor for _, tensor in named[a:b]], **held} for (a, b), held in zip(spans, settings, strict=True)]
        optimizer = torch.optim.RMSprop(param_groups.merge(groups) if merged else groups, momentum=0.5)
        return named, optimizer, [s.warmed(optimizer)]

    for merged_first in (False, True):
        named, optimizer, schedulers = built(merged_first)
        s.train(named, optimizer, schedulers, 0, 4)
        saved = copy.deepcopy((optimizer.state_dict(), schedulers[0].state_dict()))
        weights = [tensor.detach().clone() for _, tensor in named]
        again, other, theirs = built(not merged_first)
        if seed % 2:
            forget_origins(other)
        try:
            state, scheduler = param_groups.regroup_state_dict(*saved, target=other)
        except gradgate.InvalidArgument as refused:
            assert "may have been merged before" in str(refused), f"seed {seed}"
            order: Any = param_groups.merge(other.param_groups) if merged_first else [tensor for _, tensor in again]
            state, scheduler = param_groups.regroup_state_dict(*saved, target=other, order=order)
        for (_, tensor), value in zip(again, weights, strict=True):
            tensor.data.copy_(value)
        other.load_state_dict(state)
        theirs[0].load_state_dict(scheduler)
        s.train(named, optimizer, schedulers, 4, 7)
        s.train(again, other, theirs, 4, 7)
        assert s.everything(again, other) == s.everything(named, optimizer), f"seed {seed}"


def test_target_that_is_no_optimizer_is_refused() -> None:
    state, _, _ = Run(False).train(0, 1).save()
    with pytest.raises(gradgate.InvalidArgument, match="target is Linear; give the optimizer"):
        param_groups.regroup_state_dict(state, target=torch.nn.Linear(2, 2))
