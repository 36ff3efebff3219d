"""Groups with the same settings become one before the optimizer is built, and no parameter's settings change."""

from __future__ import annotations

import functools
import math
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradgate
import pytest
import small_groups as s
import torch
from gradgate import param_groups

PACKAGE = Path(param_groups.__file__).parents[2]


def tensor(*shape: int, frozen: bool = False) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.zeros(shape or (2,)), requires_grad=not frozen)


def merged(*settings: dict[str, Any], **options: Any) -> param_groups.Groups:
    return param_groups.merge([{"params": [tensor()], **held} for held in settings], **options)


def test_equal_settings_become_one_in_order_of_first_appearance() -> None:
    named = s.parameters()
    groups = param_groups.merge(s.groups(named))
    assert [(group["lr"], group["weight_decay"]) for group in groups] == [
        (s.LR * 0.5**layer, decay) for layer in range(3) for decay in (0.1, 0.0)
    ]
    vectors = [held for name, held in named[:6] if held.ndim == 1]
    assert [id(held) for held in groups[1]["params"]] == [id(held) for held in vectors]
    assert (groups.report.before, groups.report.after, groups.report.parameters) == (18, 6, 18)
    assert groups.report.members[1] == (1, 3, 4)


@pytest.mark.parametrize("names", [False, True])
def test_each_parameter_keeps_its_settings(names: bool) -> None:
    named = s.parameters()
    alone = s.settings_of(named, torch.optim.AdamW(s.groups(named, names, amsgrad=True)))
    together = torch.optim.AdamW(param_groups.merge(s.groups(named, names, amsgrad=True)))
    assert len(together.param_groups) == s.SETTINGS
    assert s.settings_of(named, together) == alone
    held = {
        name: id(tensor)
        for group in together.param_groups
        if names
        for name, tensor in zip(group["param_names"], group["params"], strict=True)
    }
    assert held == ({name: id(tensor) for name, tensor in named} if names else {})


def test_inputs_are_left_alone_and_iterators_are_taken() -> None:
    named = s.parameters()
    given = s.groups(named)
    before = [dict(group) for group in given]
    param_groups.merge(given)
    assert [list(group) for group in given] == [list(group) for group in before]
    assert [id(group["params"]) for group in given] == [id(group["params"]) for group in before]
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 2))
    for given_now in (model.parameters(), list(model.parameters()), model.named_parameters(), [{"params": model.parameters()}]):
        groups = param_groups.merge(given_now)
        assert [len(group["params"]) for group in groups] == [4]
        torch.optim.SGD(groups, lr=0.1)


SAME: list[tuple[Any, Any]] = [
    (1, 1.0),
    (True, True),
    (None, None),
    (math.nan, math.nan),
    ((0.9, 0.99), [0.9, 0.99]),
    (torch.tensor(0.5), torch.tensor(0.5)),
    (torch.tensor(math.nan), torch.tensor(math.nan)),
    ((0.9, torch.tensor(0.5)), (0.9, torch.tensor(0.5))),
    ({"a": [1, 2]}, {"a": (1, 2)}),
    ("bias", "bias"),
    (torch.float32, torch.float32),
    (s.ramped(2.0), s.ramped(2.0)),
    (functools.partial(round, ndigits=1), functools.partial(round, ndigits=1)),
]
DIFFERENT: list[tuple[Any, Any]] = [
    (0.1, 0.1 + 1e-17 + 1e-16),
    (1, True),
    (0.0, -0.0),
    (None, 0),
    (None, False),
    ((0.9, 0.99), (0.9, 0.999)),
    (torch.tensor(0.5), torch.tensor(0.5, dtype=torch.float64)),
    (torch.tensor(0.0), torch.tensor(0, dtype=torch.int32)),
    (torch.tensor(0.5), 0.5),
    (torch.tensor(0.5), torch.tensor([0.5])),
    (torch.tensor(0.0), torch.tensor(-0.0)),
    (torch.tensor(0.5, requires_grad=True), torch.tensor(0.5, requires_grad=True)),
    ("bias", "norm"),
    (s.ramped(2.0), s.ramped(3.0)),
    (object(), object()),
    ([object], [{}]),
]


@pytest.mark.parametrize("pair", SAME, ids=str)
@pytest.mark.parametrize("key", ["lr", "mine"])
def test_values_that_mean_the_same_merge(pair: tuple[Any, Any], key: str) -> None:
    assert len(merged({key: pair[0]}, {key: pair[1]})) == 1


@pytest.mark.parametrize("pair", DIFFERENT, ids=str)
@pytest.mark.parametrize("key", ["lr", "mine"])
def test_values_that_differ_do_not(pair: tuple[Any, Any], key: str) -> None:
    assert len(merged({key: pair[0]}, {key: pair[1]})) == 2


def test_function_that_captured_itself() -> None:
    def counting() -> Callable[[int], int]:
        def count(n: int) -> int:
            return count(n - 1) if n else 0

        return count

    one, other = counting(), counting()
    assert len(merged({"mine": one}, {"mine": one})) == 1
    assert len(merged({"mine": one}, {"mine": other})) == 2


def test_rates_that_are_tensors_stay_shared_or_apart() -> None:
    """A scheduler writes into such a tensor: what merges must not change which parameters that reaches."""
    one, other, apart = torch.tensor(0.5), torch.tensor(0.5), torch.tensor(0.5)
    shared = merged({"lr": one}, {"lr": one, "weight_decay": 0.1}, {"lr": one})
    assert len(shared) == 2 and shared[0]["lr"] is one and shared[1]["lr"] is one
    own = merged({"lr": one}, {"lr": other}, {"lr": apart, "weight_decay": 0.1})
    assert len(own) == 2 and own[0]["lr"] is one and own[1]["lr"] is apart
    entangled = merged({"lr": one}, {"lr": other}, {"lr": one, "weight_decay": 0.1}, {"lr": other})
    assert [group["lr"] is one for group in entangled] == [True, False, True]
    assert [len(group["params"]) for group in entangled] == [1, 2, 1]
    assert "one" in str(entangled.report.apart[0])


def test_missing_key_is_a_difference_unless_defaults_tell_its_value() -> None:
    assert len(merged({}, {"lr": 0.1})) == 2
    assert len(merged({}, {"lr": 0.1}, defaults={"lr": 0.1})) == 1
    assert [group["lr"] for group in merged({}, {"lr": 0.1}, defaults={"lr": 0.2})] == [0.2, 0.1]


def test_users_own_keys_keep_groups_apart_until_they_are_ignored() -> None:
    settings = [{"lr": 0.1, "name": str(place), "kind": "norm"} for place in range(4)]
    groups = merged(*settings)
    assert len(groups) == 4
    assert groups.report.kept_apart_by == {"name": 1}
    assert "kept apart by name (without it 1)" in str(groups.report)
    (one,) = merged(*settings, ignore=("name",))
    assert one["kind"] == "norm" and "name" not in one
    (kept,) = merged(*[{**held, "name": "all"} for held in settings], ignore=("name",))
    assert kept["name"] == "all"


def test_frozen_are_left_out_or_kept() -> None:
    frozen, empty = tensor(frozen=True), tensor(frozen=True)
    given = [{"params": [tensor(), frozen], "lr": 0.1}, {"params": empty, "lr": 0.2}, {"params": tensor(), "lr": 0.1}]
    groups = param_groups.merge(given)
    assert [len(group["params"]) for group in groups] == [2]
    assert groups.report.frozen == ("parameter 1 of group 0, (2,)", "parameter 0 of group 1, (2,)")
    assert "left out, frozen: 2" in str(groups.report)
    kept = param_groups.merge(given, frozen="keep")
    assert [len(group["params"]) for group in kept] == [3, 1] and kept.report.frozen == ()
    with pytest.raises(gradgate.InvalidArgument, match="none of the 1 parameters asks for a gradient"):
        param_groups.merge([frozen])


def test_shared_parameter_is_not_doubled_and_cannot_have_two_settings() -> None:
    tied = tensor()
    groups = param_groups.merge([{"params": [("embed", tied)], "lr": 0.1}, {"params": [("head", tied), ("body", tensor())], "lr": 0.1}])
    assert [[name for name, _ in group["params"]] for group in groups] == [["embed", "body"]]
    assert groups.report.repeated == ("head",)
    with pytest.raises(gradgate.InvalidArgument, match=r"head is the same tensor as embed, with other settings \(lr 0.1 ≠ 0.2\)"):
        param_groups.merge([{"params": [("embed", tied)], "lr": 0.1}, {"params": [("head", tied)], "lr": 0.2}])


REFUSED: list[tuple[Any, str]] = [
    (torch.nn.Linear(2, 2), "Linear is a module; give its parameters"),
    ([], "no parameters: the list is empty"),
    ("text", "str is not a list of parameters"),
    (5, "int is not a list of parameters"),
    ({tensor()}, "set is not a list of parameters"),
    ({"params": [tensor()]}, "dict is not a list of parameters"),
    ([tensor(), 3], "parameter 1 of group 0 is int"),
    ([{"lr": 1.0}], "group 0 is not a dict with 'params'"),
    ([{"params": tensor()}, tensor()], "group 1 is not a dict with 'params'"),
    ([{"params": {tensor()}}], "parameters of group 0 are a set"),
    ([{"params": 3}], "parameters of group 0 are int"),
    ([{"params": [("a", tensor()), tensor()]}], "parameter 1 of group 0, .* has no name, a has one"),
    ([{"params": [tensor()], "param_names": []}], "group 0 has 1 parameters and 0 param_names"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED, ids=[message[:20] for _, message in REFUSED])
def test_what_no_optimizer_could_take_is_refused(given: Any, message: str) -> None:
    with pytest.raises(gradgate.InvalidArgument, match=message):
        param_groups.merge(given)


def test_options_are_checked() -> None:
    with pytest.raises(gradgate.InvalidArgument, match=r"ignore is the string 'name'; give a collection of keys, as \('name',\)"):
        merged({}, ignore="name")
    with pytest.raises(gradgate.InvalidArgument, match="ignore names params"):
        merged({}, ignore=("params",))
    with pytest.raises(gradgate.InvalidArgument, match="frozen='drop'; it is 'exclude' or 'keep'"):
        merged({}, frozen="drop")


def test_report_says_what_was_merged_and_why_others_were_not() -> None:
    report = param_groups.merge(s.groups(s.parameters())).report
    assert [str(apart) for apart in report.apart[:2]] == [
        "group 1 is not group 0: weight_decay 0.1 ≠ 0",
        "group 2 is not group 0: lr 0.01 ≠ 0.005",
    ]
    assert report.kept_apart_by == {"lr": 2, "weight_decay": 3}
    assert str(report).splitlines() == [
        "18 parameter groups became 6: 18 tensors, 132 elements",
        "  group  of groups  tensors      lr  weight_decay",
        "      0          3        3    0.01           0.1",
        "      1          3        3    0.01             0",
        "      2          3        3   0.005           0.1",
        "      3          3        3   0.005             0",
        "      4          3        3  0.0025           0.1",
        "      5          3        3  0.0025             0",
        "kept apart by lr (without it 2), weight_decay (without it 3)",
    ]


def test_rates_that_differ_in_the_last_digits_are_told_apart() -> None:
    groups = merged({"lr": 0.1 + 0.2}, {"lr": 0.3})
    assert str(groups.report.apart[0]) == "group 1 is not group 0: lr 0.30000000000000004 ≠ 0.3"


def test_collapse_makes_the_lists_that_a_scheduler_wants() -> None:
    named = s.parameters()
    given = s.groups(named)
    report = param_groups.merge(given).report
    lambdas = [s.ramped(group["lr"]) for group in given]
    collapsed = report.collapse(lambdas)
    assert [ramp(3) for ramp in collapsed] == [lambdas[members[0]](3) for members in report.members]
    with pytest.raises(gradgate.InvalidArgument, match="lr_lambda has 6 values; there were 18 parameter groups: give one for each"):
        report.collapse(collapsed)
    with pytest.raises(gradgate.InvalidArgument, match="peak differs between the groups 0 and 2, which became group 0: 0 ≠ 2"):
        report.collapse(list(range(18)), name="peak")


@pytest.mark.parametrize("seed", range(30))
def test_random_groups_against_a_comparison_of_each_pair(seed: int) -> None:
    drawn = random.Random(seed)
    settings = [{"lr": drawn.choice((1, 1.0, 2.0)), "mine": drawn.choice((None, (1, 2), "a"))} for _ in range(drawn.randint(1, 40))]
    groups = param_groups.merge([{"params": [tensor() for _ in range(drawn.randint(1, 3))], **held} for held in settings])
    for place, one in enumerate(settings):
        for other, members in [(other, members) for other in range(place) for members in groups.report.members if place in members]:
            assert (other in members) == (one == settings[other]), f"seed {seed}"
    assert sorted(index for members in groups.report.members for index in members) == list(range(len(settings)))


def test_needs_neither_the_library_nor_torch_distributed() -> None:
    code = (
        "import sys; sys.modules['torch.distributed.checkpoint'] = None\n"
        "import gradgate, torch\n"
        "print(len(gradgate.param_groups.merge([torch.nn.Parameter(torch.ones(1))])))"
    )
    environment = {"PYTHONPATH": str(PACKAGE), "GRADGATE_LIBRARY": "/nowhere.so", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
