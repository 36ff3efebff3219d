"""Merged groups train as the 465 they were made from: after twelve steps no bit of a parameter or of the state of any optimizer differs."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import grouped_model
import grouped_runs
import pytest
import torch
from gradgate.param_groups import merge, merge_optimizer
from grouped_model import LEVELS, SETTINGS, TENSORS
from grouped_runs import IMPLEMENTATIONS, WAYS, Kind, differences, synthetic, train
from torch.optim import lr_scheduler as schedulers

KINDS = [
    Kind("SGD"),
    Kind("SGD", {"momentum": 0.9, "dampening": 0.1}),
    Kind("SGD", {"momentum": 0.9, "nesterov": True}),
    Kind("Adam"),
    Kind("Adam", {"amsgrad": True}),
    Kind("AdamW"),
    Kind("AdamW", {"amsgrad": True, "betas": (0.8, 0.95)}),
    Kind("Adagrad", {"lr_decay": 0.01, "initial_accumulator_value": 0.1}),
    Kind("RMSprop", {"momentum": 0.9, "centered": True}),
    Kind("NAdam", {"decoupled_weight_decay": True}),
    Kind("RAdam"),
    Kind("Adamax"),
    Kind("Adadelta", base_lr=1.0),
    Kind("Rprop"),
    Kind("ASGD", {"t0": 4, "lambd": 0.01}),
    Kind("Adafactor"),
    Kind("SparseAdam", gradients="sparse"),
    Kind("SGD", {"momentum": 0.9}, gradients="sparse"),
    Kind("Adagrad", gradients="sparse"),
    Kind("Muon", gradients="matrices"),
]
PRESENT = [kind for kind in KINDS if hasattr(torch.optim, kind.name)]  # torch before 2.9 has no Muon
# What torch has no implementation of, by keyword; test_what_torch_refuses holds the list to torch.
NOT_FUSED = {"RMSprop", "NAdam", "RAdam", "Adamax", "Adadelta", "Rprop", "ASGD", "Adafactor", "SparseAdam", "Muon"}
ONE_ALONE = {"SparseAdam", "Muon"}
ROWS = [
    (kind, name)
    for kind, name in itertools.product(PRESENT, IMPLEMENTATIONS)
    if not (name == "fused" and (kind.name in NOT_FUSED or kind.gradients == "sparse"))
    and not (name == "foreach" and kind.name in ONE_ALONE)
]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Sums of a matrix product depend on the number of threads; both sides shall have the same."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def options(kind: Kind, name: str) -> dict[str, bool]:
    return {} if kind.name in ONE_ALONE else IMPLEMENTATIONS[name]


def late(kind: Kind, name: str) -> bool:
    """torch's fused SGD wants the first gradients of all tensors of a group at the same step: see test_the_late_gradient_of_fused_sgd."""
    return not (name == "fused" and kind.name == "SGD" and "momentum" in kind.options)


def check(kind: Kind, plain: grouped_runs.Run, merged: grouped_runs.Run, after: int) -> None:
    assert len(merged.optimizer.param_groups) == after
    assert merged.report and (merged.report.after, merged.report.before) == (after, len(plain.optimizer.param_groups))
    assert merged.report.parameters == len(merged.tensors) == len(plain.tensors)
    assert merged.settings == plain.settings, "of each tensor, whatever its group"
    assert differences(plain.tensors, merged.tensors) == []
    assert sum(len(group["params"]) for group in merged.optimizer.param_groups) == len(plain.tensors), "each once"
    assert merged.moved == plain.moved and len(merged.moved) > 0.9 * len(plain.tensors), kind


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's own, of Adagrad
@pytest.mark.parametrize(("kind", "name"), ROWS, ids=str)
def test_every_optimizer(kind: Kind, name: str) -> None:
    gradients = synthetic(kind, late(kind, name))
    plain = train(kind, options(kind, name), "unmerged", gradients)
    needed = len({(s["lr"], s.get("weight_decay")) for s in plain.settings.values()})
    assert needed == {"dense": SETTINGS, "sparse": LEVELS, "matrices": LEVELS}[kind.gradients]
    assert all(len(held) > 1 for held in plain.tensors.values()) or (kind.name == "SGD" and not kind.options), "with state"
    for way in WAYS:
        check(kind, plain, train(kind, options(kind, name), way, gradients), needed)


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_the_full_sized_detector_with_its_own_gradients(name: str) -> None:
    kind = Kind("AdamW", base_lr=grouped_model.BASE_LR)
    plain = train(kind, IMPLEMENTATIONS[name], "unmerged", None)
    assert len(plain.optimizer.param_groups) == TENSORS
    for way in WAYS:
        check(kind, plain, train(kind, IMPLEMENTATIONS[name], way, None), SETTINGS)


def by_level(group: dict[str, Any]) -> Any:
    slower = group["lr"] < 5e-3
    return (lambda step: 0.5**step) if slower else (lambda step: 1 / (1 + step))


def lambdas(optimizer: Any, collapse: Any) -> Any:
    original = [by_level(group) for group in Kind("AdamW").groups(grouped_model.build(narrow=True))]
    return schedulers.LambdaLR(optimizer, collapse(original))


def one_cycle(optimizer: Any, collapse: Any) -> Any:
    peaks = [3 * group["lr"] for group in Kind("AdamW").groups(grouped_model.build(narrow=True))]
    return schedulers.OneCycleLR(optimizer, collapse(peaks), total_steps=20)


def warm_up(optimizer: Any, collapse: Any) -> Any:
    parts = [schedulers.LinearLR(optimizer, 0.1, total_iters=3), schedulers.CosineAnnealingLR(optimizer, 10)]
    return schedulers.SequentialLR(optimizer, parts, milestones=[3])


def chained(optimizer: Any, collapse: Any) -> Any:
    return schedulers.ChainedScheduler([schedulers.ConstantLR(optimizer, 0.5, 4), lambdas(optimizer, collapse)])


def plateau(optimizer: Any, collapse: Any) -> Any:
    floors = [group["lr"] / 8 for group in Kind("AdamW").groups(grouped_model.build(narrow=True))]
    return schedulers.ReduceLROnPlateau(optimizer, patience=1, min_lr=collapse(floors))


SCHEDULES = [(lambdas, "for-loop"), (one_cycle, "foreach"), (warm_up, "fused"), (chained, "foreach"), (plateau, "fused")]


@pytest.mark.parametrize(("schedule", "name"), SCHEDULES)
def test_with_a_scheduler(schedule: Any, name: str) -> None:
    kind = Kind("AdamW")
    gradients = synthetic(kind)
    plain = train(kind, IMPLEMENTATIONS[name], "unmerged", gradients, schedule)
    assert len({s["lr"] for s in plain.settings.values()} & {s["lr"] for s in kind.groups(grouped_model.build(narrow=True))}) <= 1
    for way in WAYS:
        check(kind, plain, train(kind, IMPLEMENTATIONS[name], way, gradients, schedule), SETTINGS)


def test_layer_wise_rates_and_no_decay_of_norms_are_kept() -> None:
    model = grouped_model.build(narrow=True)
    names = grouped_runs.names_of(model)
    everything = grouped_model.groups(model, frozen=True, repeated=True, named=True)
    assert len(everything) == TENSORS + grouped_model.FROZEN + 1
    merged = merge(everything)
    existing = torch.optim.AdamW(grouped_model.groups(model, frozen=True))
    report = merge_optimizer(existing)
    assert len(report.frozen) == grouped_model.FROZEN
    assert sorted(merged.report.frozen) == ["stem.weight", "stem_norm.bias", "stem_norm.weight"]
    assert merged.report.repeated == (grouped_model.TIED[1],)
    for optimizer in (torch.optim.AdamW(merged), existing):
        assert len(optimizer.param_groups) == SETTINGS
        assert sorted(names[tensor] for tensor, _ in grouped_runs.each(optimizer)) == sorted(
            name for tensor, name in names.items() if tensor.requires_grad
        )
        for tensor, group in grouped_runs.each(optimizer):
            assert (group["lr"], group["weight_decay"]) == grouped_model.setting(names[tensor], tensor.shape)
            if names[tensor].endswith(".bias") or "norm" in names[tensor]:
                assert group["weight_decay"] == 0.0
        rates = {group["lr"] for group in optimizer.param_groups}
        assert len(rates) == LEVELS and max(rates) == grouped_model.BASE_LR, "layer-wise"
        firsts = [names[group["params"][0]] for group in optimizer.param_groups]
        order = [name for name, parameter in model.named_parameters() if name in firsts]
        assert firsts == order, "of first appearance"


def test_merging_midway_moves_no_tensor() -> None:
    model = grouped_model.build(narrow=True)
    optimizer = torch.optim.AdamW(grouped_model.groups(model))
    grouped_model.backward(model, 0)
    optimizer.step()
    groups, state = optimizer.param_groups, {tensor: dict(held) for tensor, held in optimizer.state.items()}
    merge_optimizer(optimizer)
    assert optimizer.param_groups is groups and len(groups) == SETTINGS
    assert optimizer.state.keys() == state.keys()
    assert all(optimizer.state[tensor][key] is value for tensor, held in state.items() for key, value in held.items())


def test_the_comparison_sees_one_bit() -> None:
    kind = Kind("AdamW")
    gradients = synthetic(kind)
    one, other = (train(kind, {}, "unmerged", gradients) for _ in range(2))
    assert differences(one.tensors, other.tensors) == []
    bits = grouped_runs.bits(other.tensors["blocks.3.norm1.bias"]["exp_avg_sq"])
    bits[5] ^= 1
    grouped_runs.bits(other.tensors["token"]["step"])[0] ^= 1
    other.tensors["position"]["parameter"] = other.tensors["position"]["parameter"].double()
    del other.tensors["norm.weight"]["step"]
    found = ["blocks.3.norm1.bias: exp_avg_sq", "norm.weight: step", "position: parameter", "token: step"]
    assert sorted(differences(one.tensors, other.tensors)) == found


def test_what_torch_refuses() -> None:
    """The rows are all there are: every optimizer of torch with groups, in every implementation that it has."""
    classes = {name: kind for name, kind in vars(torch.optim).items() if isinstance(kind, type) and name not in ("Optimizer", "LBFGS")}
    assert classes.keys() == {kind.name for kind in PRESENT}
    with pytest.raises(ValueError, match="doesn't support per-parameter options"):
        torch.optim.LBFGS(grouped_model.groups(grouped_model.build(narrow=True)))
    for name, optimizer in classes.items():
        accepted = inspect.signature(optimizer).parameters
        assert ("fused" in accepted) == (name not in NOT_FUSED), name
        assert ("foreach" in accepted) == (name not in ONE_ALONE), name
    for kind in PRESENT:
        if kind.gradients == "sparse" and kind.name not in NOT_FUSED:
            with pytest.raises(RuntimeError, match="`_?fused.*` does not support sparse grad"):
                train(kind, {"fused": True}, "unmerged", synthetic(kind, late=False))


def test_the_late_gradient_of_fused_sgd() -> None:
    """What torch's fused SGD cannot: tensors of one group whose first gradients come at different steps. One group per tensor hides it."""
    kind = Kind("SGD", {"momentum": 0.9})
    gradients = synthetic(kind, late=True)
    train(kind, {"fused": True}, "unmerged", gradients)
    with pytest.raises(TypeError, match="but got NoneType"):
        train(kind, {"fused": True}, "built merged", gradients)
