"""sync.load_state_dict() and gradgate.checkpoint.load() given states that somebody has changed.

A valid state is mutated by a seeded generator that knows its structure: keys dropped, values of other types and sizes, entries
swapped, numbers that are huge, negative or none, other worlds, gradients of other shapes, dtypes and names; and folders of
torch.distributed.checkpoint whose files are cut, emptied, exchanged or gone. Each load either succeeds, and then the run ends as the
state says; or raises one of the errors that name what is wrong, and then nothing has been loaded: a good state loads after it, and the
run ends as if nothing had happened.

GRADGATE_FUZZ_RUNS gives another number of mutations, GRADGATE_FUZZ_SEED another beginning. What fails is told with its seed.
"""

from __future__ import annotations

import copy
import functools
import math
import os
import pathlib
import random
import shutil
from collections.abc import Callable
from typing import Any

import gradgate
import pytest
import torch
import torch.distributed.checkpoint as dcp
from gradgate import checkpoint_format
from gradgate.errors import InvalidArgument
from gradgate.ledger import Refused
from test_checkpoint_format import EXPECTED, attached, finished, half, train
from torch.distributed.checkpoint.api import CheckpointException

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning"),
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning"),
]

RUNS = int(os.environ.get("GRADGATE_FUZZ_RUNS", "400"))
FOLDER_RUNS = max(RUNS // 20, 10)
SEED = int(os.environ.get("GRADGATE_FUZZ_SEED", "1"))

NUMBERS = [0, 1, -1, 2, 3, 255, 2**31, 2**53, 2**53 + 1, 2**63, 2**64, -(2**63), 10**400, 0.5, -0.0, 1e308, math.inf, -math.inf, math.nan]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex128]


class Odd:
    """A value that nothing can be done with."""

    def __repr__(self) -> str:
        raise RuntimeError("cannot be shown")


class OddMapping(dict[str, Any]):
    def __iter__(self) -> Any:
        raise RuntimeError("cannot be read")

    keys = __iter__


def anything(rng: random.Random, depth: int = 0) -> Any:
    simple: list[Callable[[], Any]] = [
        lambda: rng.choice(NUMBERS),
        lambda: rng.choice([None, True, False, "", "x", "window", "\x1b[1m", "a" * 300, b"bytes", Odd(), object, (1,), set()]),
        lambda: torch.zeros(rng.choice([(), (0,), (3, 2), (1, 3)]), dtype=rng.choice(DTYPES)),
        lambda: torch.zeros(3, 2, device="meta"),
        OddMapping,
    ]
    nested: list[Callable[[], Any]] = [
        lambda: [anything(rng, depth + 1) for _ in range(rng.randrange(4))],
        lambda: {rng.choice(["x", "a.weight", 1, None]): anything(rng, depth + 1) for _ in range(rng.randrange(3))},
    ]
    return rng.choice(simple if depth > 1 else simple + nested)()


def changed_tensor(rng: random.Random, tensor: torch.Tensor) -> Any:
    changes: list[Callable[[], Any]] = [
        lambda: tensor.to(rng.choice(DTYPES)),
        lambda: tensor[None],
        lambda: tensor.flatten()[: rng.randrange(tensor.numel() + 1)],
        lambda: tensor.to("meta"),
        lambda: tensor.tolist(),
        lambda: tensor.clone().requires_grad_(),
        lambda: torch.nn.Parameter(tensor.clone()),
        lambda: tensor.to_sparse(),
        lambda: torch.stack([tensor, tensor]),
        lambda: tensor.numpy(),
        lambda: tensor.contiguous(),
    ]
    return rng.choice(changes)()


def changed_list(rng: random.Random, value: list[Any]) -> Any:
    out = copy.deepcopy(value)
    at = rng.randrange(len(out)) if out else 0
    how = rng.randrange(8)
    if how == 0 and out:
        del out[at]
    elif how == 1:
        out.insert(at, anything(rng))
    elif how == 2 and out:  # noqa: PLR2004
        out.append(copy.deepcopy(out[at]))
    elif how == 3:  # noqa: PLR2004
        rng.shuffle(out)
    elif how == 4:  # noqa: PLR2004
        return tuple(out)
    elif how == 5 and out and isinstance(out[at], list):  # noqa: PLR2004
        out[at] = changed_list(rng, out[at])
    elif how == 6 and out:  # noqa: PLR2004
        out = out * rng.choice([2, 3, 100])
    elif out:
        out[at] = rng.choice(NUMBERS) if isinstance(out[at], int | float) else anything(rng)
    return out


def change(rng: random.Random, state: dict[str, Any]) -> None:
    """One of all changes, in place; `state` is the test's own copy."""
    key: str = rng.choice(list(state) or ["gradgate"])
    value = state.get(key)
    how = rng.randrange(10)
    if how == 0:
        state.pop(key, None)
    elif how == 1:
        state[key] = anything(rng)
    elif how == 2:  # noqa: PLR2004
        second: str = rng.choice(list(state) or ["gradgate"])
        state[key], state[second] = state.get(second), value
    elif how == 3:  # noqa: PLR2004
        strange: Any = rng.choice(["more", 7, "Gradgate"])
        state[strange] = anything(rng)
    elif isinstance(value, dict) and value:
        name = rng.choice(list(value))
        what = rng.randrange(6)
        if what == 0:
            del value[name]
        elif what == 1:
            value[rng.choice([f"{name}.x", "b.0", "", 3])] = value[name]
        elif what == 2:  # noqa: PLR2004
            other = rng.choice(list(value))
            value[name], value[other] = value[other], value[name]
        elif what == 3 or not isinstance(value[name], torch.Tensor):  # noqa: PLR2004
            value[name] = anything(rng)
        else:
            value[name] = changed_tensor(rng, value[name])
    elif isinstance(value, list):
        state[key] = changed_list(rng, value)
    elif isinstance(value, int | float):
        state[key] = rng.choice([rng.choice(NUMBERS), value + 1, value - 1, float(min(value, 2**60)), str(value)])
    else:
        state[key] = anything(rng)


def other_world(rng: random.Random, state: dict[str, Any]) -> None:
    """As a run of several ranks would have saved it, or would not."""
    world = rng.choice([2, 3, 8, 1000])
    rows = [[rng.randrange(4), 0, 0, 0, rng.choice([0, 0, 4])] for _ in range(world)]
    state["ranks"] = rows
    state["micro_steps"] = max(row[0] for row in rows) + rng.choice([0, 0, 0, 1])


class Run:
    """A run into which states are loaded that may be refused."""

    def __init__(self) -> None:
        self.model, self.optimizer, self.sync = attached()

    def look(self) -> Any:
        """All that a load may change."""
        job: Any = self.sync._job
        window = job.window
        return (
            job.windows_before,
            window.micro_steps,
            window.kept,
            window.discarding,
            window.planned,
            window.any_items,
            window.at_boundary,
            [(p.data_ptr(), p.tolist(), p.grad) for p in self.model.parameters()],
        )

    def finish(self) -> list[list[float]]:
        train(self.model, self.sync, [4.0, 8.0])
        assert self.sync.boundary
        assert self.sync.means == {"x": 3.75}
        self.optimizer.step()
        return [p.flatten().tolist() for p in self.model.parameters()]


def refused(load: Callable[[], None]) -> bool:
    """Only errors that say what is wrong; in a line that a terminal can show."""
    try:
        load()
    except (InvalidArgument, Refused) as error:
        text = str(error)
        assert text.startswith("sync.load_state_dict"), text
        assert text.isprintable(), repr(text)
        assert len(text) < 1000, text
        return True
    return False


def same(a: Any, b: Any) -> bool:
    """Whether two states say the same, so that they must end alike."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a.detach().to_dense(), b.detach().to_dense())
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)


def essence(state: dict[str, Any]) -> dict[str, Any]:
    """What a load goes by: the rest is information, or said twice."""
    return {key: state[key] for key in ("accumulate", "ranks", "discard", "gradients")} | {
        "means": sorted(list(entry) for entry in state["means"])
    }


def test_changed_states() -> None:
    good = half()
    run = Run()
    loaded = 0
    with run.sync:
        for i in range(RUNS):
            seed = SEED * 1_000_003 + i
            rng = random.Random(seed)
            state = copy.deepcopy(good)
            if rng.randrange(8) == 0:
                other_world(rng, state)
            for _ in range(rng.choice([1, 1, 1, 2, 4])):
                change(rng, state)
            before = run.look()
            try:
                if refused(functools.partial(run.sync.load_state_dict, state)):
                    assert str(run.look()) == str(before), "refused, and something was loaded"
                    continue
                loaded += 1
                if not _as_said(state, good, run):
                    run.sync.discard()
                    run.sync.flush()
            except BaseException:
                print(f"seed {seed}: {_shown(state)}")
                raise
            run.sync.close()
            run = Run()
            run.sync.__enter__()
        assert not refused(lambda: run.sync.load_state_dict(good))
        assert run.finish() == EXPECTED
    print(f"{RUNS} changed states from seed {SEED}: {loaded} loaded, {RUNS - loaded} refused")


def _as_said(state: dict[str, Any], good: dict[str, Any], run: Run) -> bool:
    """Of a state that says what the good one says the run ends alike."""
    assert set(state) >= set(checkpoint_format.KEYS)
    assert run.sync._job.windows_before == state["windows"]
    if not same(essence(state), essence(good)):
        return False
    assert run.finish() == EXPECTED
    return True


def _shown(state: dict[str, Any]) -> str:
    try:
        return repr(state)
    except Exception:
        return f"a state with {list(state)}, of which one cannot be shown"


def _cut(rng: random.Random, file: pathlib.Path) -> None:
    content = bytearray(file.read_bytes())
    how = rng.randrange(5)
    if how == 0:
        file.unlink()
    elif how == 1:
        file.write_bytes(b"")
    elif how == 2:  # noqa: PLR2004
        file.write_bytes(bytes(content[: rng.randrange(len(content))]))
    elif how == 3:  # noqa: PLR2004
        for _ in range(rng.choice([1, 4, 64])):
            content[rng.randrange(len(content))] = rng.randrange(256)
        file.write_bytes(bytes(content))
    else:
        file.write_bytes(bytes(content) + bytes(rng.randrange(256) for _ in range(16)))


def test_changed_folders(tmp_path: pathlib.Path) -> None:
    """What is cut short raises, or is of no consequence. Metadata is only cut: it is a pickle, which torch trusts."""
    whole = tmp_path / "whole"
    model, _, sync = attached()
    with sync:
        train(model, sync, [1.0, 2.0])
        dcp.save({"sync": sync}, checkpoint_id=whole, no_dist=True)
        sync.discard()
        sync.flush()
    loaded = 0
    run = Run()
    with run.sync:
        for i in range(FOLDER_RUNS):
            seed = SEED * 1_000_003 + i
            rng = random.Random(seed)
            folder = tmp_path / f"{i}"
            shutil.copytree(whole, folder)
            data = sorted(folder.glob("*.distcp"))
            file = rng.choice([*data, *data, folder / ".metadata"])
            if file in data:
                _cut(rng, file)
            else:
                file.write_bytes(file.read_bytes()[: rng.randrange(file.stat().st_size)])
            before = run.look()
            try:
                gradgate.checkpoint.load({"sync": run.sync}, checkpoint_id=folder, no_dist=True)
            except (Exception, CheckpointException):  # torch's own, or ours: the folder is damaged
                assert str(run.look()) == str(before), f"seed {seed}: raised, and something was loaded"
            else:
                loaded += 1
                run.sync.discard()
                run.sync.flush()
                run.sync.close()
                run = Run()
                run.sync.__enter__()
            shutil.rmtree(folder)
        gradgate.checkpoint.load({"sync": run.sync}, checkpoint_id=whole, no_dist=True)
        assert run.finish() == EXPECTED
    print(f"{FOLDER_RUNS} changed folders from seed {SEED}: {loaded} loaded, {FOLDER_RUNS - loaded} refused")


def test_the_generator_reaches_both() -> None:
    """A seed whose states are all refused, or all taken, would prove little."""
    good = half()
    taken = []
    for i in range(100):
        rng = random.Random(SEED * 1_000_003 + i)
        state = copy.deepcopy(good)
        change(rng, state)
        try:
            checkpoint_format.read(state)
        except InvalidArgument:
            taken.append(False)
        else:
            taken.append(True)
    assert any(taken)
    assert not all(taken)
    assert finished(good) == EXPECTED
