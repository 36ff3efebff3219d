"""What sync.state_dict() writes and sync.load_state_dict() reads, in one process without a group: golden state, hostile ones, names."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Callable
from typing import Any

import gradgate
import pytest
import torch
import torch.distributed.checkpoint as dcp
from gradgate import checkpoint_format, checkpoint_names
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")

GOLDEN = pathlib.Path(__file__).with_name("checkpoint_v1.golden.pt")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 3, bias=False, dtype=torch.float64)
        self.b = nn.ModuleList([nn.Linear(3, 1, dtype=torch.float64)])
        for parameter in self.parameters():
            nn.init.ones_(parameter)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.b[0](self.a(x)).sum())


def attached(**options: Any) -> tuple[Model, torch.optim.Optimizer, gradgate.Sync]:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    return model, optimizer, gradgate.attach(model, optimizer, **{"accumulate": 4, **options})


def train(model: Model, sync: gradgate.Sync, values: list[float]) -> None:
    for value in values:
        sync.mean(x=value)
        with sync.micro_step():
            model(torch.full((1, 2), value, dtype=torch.float64)).backward()


def half() -> dict[str, Any]:
    """The state of a run in the middle of its window."""
    model, _, sync = attached()
    with sync:
        train(model, sync, [1.0, 2.0])
        state = sync.state_dict()
        sync.discard()
        sync.flush()
    return state


def finished(state: dict[str, Any]) -> list[list[float]]:
    model, optimizer, sync = attached()
    with sync:
        sync.load_state_dict(state)
        train(model, sync, [4.0, 8.0])
        assert sync.boundary
        assert sync.means == {"x": 3.75}
        optimizer.step()
    return [p.flatten().tolist() for p in model.parameters()]


EXPECTED = [[-2.75] * 6, [-6.5] * 3, [0.0]]


def test_the_keys_and_what_they_say() -> None:
    state = half()
    assert tuple(state) == checkpoint_format.KEYS
    assert {key: state[key] for key in ("gradgate", "windows", "accumulate", "micro_steps", "discard")} == {
        "gradgate": 1,
        "windows": 0,
        "accumulate": 4,
        "micro_steps": 2,
        "discard": False,
    }
    assert state["ranks"] == [[2, 0, 0, 0, 0]]
    assert state["means"] == [["x", 3.0, 2.0]]
    assert state["holds"] == sorted(state["gradients"]) == ["a.weight", "b.0.bias", "b.0.weight"]


def test_a_run_goes_on() -> None:
    assert finished(half()) == EXPECTED


def test_the_run_that_saved_goes_on() -> None:
    model, optimizer, sync = attached()
    with sync:
        train(model, sync, [1.0, 2.0])
        sync.state_dict()
        train(model, sync, [4.0, 8.0])
        assert sync.means == {"x": 3.75}
        optimizer.step()
    assert [p.flatten().tolist() for p in model.parameters()] == EXPECTED


def test_the_golden_state_of_version_1() -> None:
    """Kept as it was written: what is read today must be read tomorrow. Written by torch.save(half(), GOLDEN)."""
    state = torch.load(GOLDEN, weights_only=True)
    now = half()
    assert {key: state[key] for key in state if key != "gradients"} == {key: now[key] for key in now if key != "gradients"}
    assert finished(state) == EXPECTED


def test_between_windows_nothing_is_kept() -> None:
    model, optimizer, sync = attached()
    with sync:
        train(model, sync, [1.0] * 4)
        optimizer.step()
        state = sync.state_dict()
        assert state["windows"] == 1
        assert state["micro_steps"] == 0
        assert not state["gradients"]
        train(model, sync, [1.0])
        optimizer.zero_grad()
    other = attached(accumulate=2)[2]
    with other:
        other.load_state_dict(state)
        assert other.state_dict()["windows"] == 1


def test_micro_batches_go_on_with_what_is_left() -> None:
    state = half()
    model, optimizer, sync = attached()
    with sync:
        sync.load_state_dict(state)
        seen = []
        for micro in sync.micro_batches([1.0] * 6):
            with micro:
                model(torch.full((1, 2), micro.data, dtype=torch.float64)).backward()
            seen.append((round(1 / micro.scale), micro.boundary))
            if micro.boundary:
                optimizer.step()
                optimizer.zero_grad()
    assert seen == [(4, False), (4, True), (4, False), (4, False), (4, False), (4, True)]


def without(key: str) -> Callable[[dict[str, Any]], Any]:
    return lambda state: {name: value for name, value in state.items() if name != key}


def changed(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda state: {**state, key: value}


def gradient(value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda state: {**state, "gradients": {**state["gradients"], "a.weight": value}}


HOSTILE: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda state: None, "the state is None"),
    (lambda state: [1], "the state is"),
    (lambda state: {}, "gradgate is None"),
    (changed("gradgate", True), "gradgate is True"),
    (changed("gradgate", 2), "gradgate is 2: this version of gradgate reads 1"),
    *((without(key), f"{key} is None: it is missing") for key in checkpoint_format.KEYS[1:]),
    (changed("windows", -1), "windows is -1"),
    (changed("windows", 2**80), "windows is"),
    (changed("accumulate", "4"), "accumulate is '4'"),
    (changed("accumulate", 3), "accumulate is 3: this attachment has 4"),
    (changed("mode", 7), "mode is 7"),
    (changed("micro_steps", 3), "`ranks` says 2"),
    (changed("ranks", 5), "ranks is 5"),
    (changed("ranks", []), "ranks"),
    (changed("ranks", [[2, 0, 0, 0]]), r"ranks\[0\] is"),
    (changed("ranks", [[2, 0, 0, 0, 0, 0]]), r"ranks\[0\] is"),
    (changed("ranks", [[2.0, 0, 0, 0, 0]]), r"ranks\[0\]\[0\] is 2.0"),
    (changed("ranks", [[2, 3, 0, 0, 0]]), "more micro-steps than there were"),
    (changed("ranks", [[0, 0, 0, 0, 0]]), "no rank has done a micro-step"),
    (changed("discard", 1), "discard is 1"),
    (changed("means", {"x": 1}), "means is"),
    (changed("means", [["x", 1.0]]), r"means\[0\] is"),
    (changed("means", [["x", "1", 1]]), r"means\[0\] is '1'"),
    (changed("holds", "a"), "holds is 'a'"),
    (changed("holds", ["a.weight", "b.0.bias", "b.0.weight", "c"]), r"gradients\['c'\] is None: it is missing"),
    (changed("holds", ["a.weight"]), "`holds` does not name it"),
    (changed("gradients", [1]), "gradients is"),
    (changed("gradients", {}), r"gradients\['a.weight'\] is None"),
    (gradient(1.0), "must be a tensor"),
    (gradient(torch.zeros(2, 3, dtype=torch.float64)), r"the parameter has shape \(3, 2\)"),
    (gradient(torch.zeros(3, 2)), "gradients of torch.float64"),
    (gradient(torch.zeros(3, 2, dtype=torch.float64, device="meta")), "the parameter has shape"),
]


@pytest.mark.parametrize(("change", "says"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_state_that_is_wrong_is_named_and_nothing_loaded(change: Callable[[dict[str, Any]], Any], says: str) -> None:
    good = half()
    bad = change(copy.copy(good))
    model, _, sync = attached()
    with sync:
        with pytest.raises(gradgate.InvalidArgument, match=says):
            sync.load_state_dict(bad)
        assert sync.state_dict()["micro_steps"] == 0
        sync.load_state_dict(good)
        assert model.a.weight.grad is None


def test_expanded_gradients_become_ones_of_their_own() -> None:
    state = half()
    state["gradients"]["a.weight"] = torch.tensor([[3.0]], dtype=torch.float64).expand(3, 2)
    assert finished(state) == EXPECTED


def test_names_are_those_of_the_models_state_dict() -> None:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model: Any = Model()
    model.b[0] = checkpoint_wrapper(model.b[0])
    compiled: Any = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gradgate.attach(compiled, optimizer, accumulate=2) as sync:
        assert sorted(checkpoint_names.parameters(sync._job)) == sorted(get_model_state_dict(compiled))


def test_through_a_checkpoint_of_dcp(tmp_path: pathlib.Path) -> None:
    model, _, sync = attached()
    with sync:
        train(model, sync, [1.0, 2.0])
        dcp.save({"sync": sync, "epoch": 3}, checkpoint_id=tmp_path)
        sync.discard()
        sync.flush()
    model, optimizer, sync = attached()
    with sync:
        loaded = {"sync": sync, "epoch": 0}
        gradgate.checkpoint.load(loaded, checkpoint_id=tmp_path)
        assert loaded == {"sync": sync, "epoch": 3}
        train(model, sync, [4.0, 8.0])
        optimizer.step()
    assert [p.flatten().tolist() for p in model.parameters()] == EXPECTED
