"""Checkpoints of torch.distributed.checkpoint between optimizers with one group for each tensor and with merged groups."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import launch
import param_groups_dcp_rows as rows
import pytest
import torch
import torch.distributed.checkpoint as dcp
from gradgate.param_groups import regroup_state_dict
from gradgate.param_groups.dcp import dcp_layout
from param_groups_dcp_rows import MERGED, SINGLE, Job
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")

BOTH_WAYS = pytest.mark.parametrize(("before", "after"), [(SINGLE, MERGED), (MERGED, SINGLE)])
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def two(folder: pathlib.Path) -> list[dict[str, Any]]:
    return launch.run(rows.two_ranks, 2, args=(str(folder),), timeout=240)


def test_plain_torch_reads_the_first_groups_and_says_nothing(tmp_path: pathlib.Path) -> None:
    """Why dcp_layout exists: with full_state_dict, training would go on with 0.02 where the schedule had come to 0.9³ of it."""
    options = StateDictOptions(full_state_dict=True)
    old = Job(SINGLE).train()
    old.save(tmp_path)
    new = Job(MERGED, seed=1)
    wanted = new.wanted(options)
    dcp.load(wanted, checkpoint_id=tmp_path)
    names = [name for name, _ in old.model.named_parameters()]
    assert [group["params"] for group in wanted["optim"]["param_groups"]] == [[name] for name in names[:MERGED]]
    set_optimizer_state_dict(new.model, new.optimizer, wanted["optim"], options=options)
    assert [group["lr"] for group in new.optimizer.param_groups] == [pytest.approx(0.01 * 0.9**3)] * 2 + [0.02] * 2


def test_plain_torch_misses_the_other_groups(tmp_path: pathlib.Path) -> None:
    Job(MERGED).save(tmp_path)
    with pytest.raises(dcp.CheckpointException, match=r"Missing key in checkpoint state_dict: optim\.param_groups\.4\."):
        dcp.load(Job(SINGLE).wanted(), checkpoint_id=tmp_path)


@pytest.mark.parametrize("before", [SINGLE, MERGED])
@pytest.mark.parametrize("after", [SINGLE, MERGED])
@pytest.mark.parametrize("schedule", [rows.by_lambdas, rows.by_bare_objects, rows.by_warm_up, rows.by_chain, rows.on_plateau])
def test_resumes_bit_identical(tmp_path: pathlib.Path, before: int, after: int, schedule: Callable[..., Any]) -> None:
    old = Job(before, schedule=schedule).train()
    old.save(tmp_path)
    assert rows.same(Job(after, schedule=schedule, seed=1).load(tmp_path), old)


@BOTH_WAYS
def test_attributes_of_lambdas_are_the_saved_ones(tmp_path: pathlib.Path, before: int, after: int) -> None:
    old = Job(before, schedule=rows.by_objects).train()
    old.save(tmp_path)
    assert rows.same(Job(after, schedule=rows.by_other_objects, seed=1).load(tmp_path), old)


@BOTH_WAYS
def test_learning_rates_that_are_tensors(tmp_path: pathlib.Path, before: int, after: int) -> None:
    def adamw(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        return torch.optim.AdamW([group | {"lr": torch.tensor(group["lr"], dtype=torch.float64)} for group in groups])

    old = Job(before, optimizer=adamw).train()
    old.save(tmp_path)
    new = Job(after, optimizer=adamw, seed=1).load(tmp_path)
    assert all(isinstance(group["lr"], torch.Tensor) for group in new.optimizer.param_groups)
    assert rows.same(new, old)


@BOTH_WAYS
def test_an_optimizer_without_state(tmp_path: pathlib.Path, before: int, after: int) -> None:
    old = Job(before, optimizer=torch.optim.SGD).train()
    old.save(tmp_path)
    assert rows.same(Job(after, optimizer=torch.optim.SGD, seed=1).load(tmp_path), old, stateful=False)


@BOTH_WAYS
def test_frozen_parameters_that_merging_leaves_out(tmp_path: pathlib.Path, before: int, after: int) -> None:
    old = Job(before, frozen=0).train()
    old.save(tmp_path)
    new = Job(after, frozen=0, seed=1).load(tmp_path)
    assert len(new.optimizer.param_groups) == after
    assert rows.same(new, old)


@BOTH_WAYS
def test_the_flattened_form(tmp_path: pathlib.Path, before: int, after: int) -> None:
    old = Job(before).train()
    old.save(tmp_path, FLAT)
    assert rows.same(Job(after, seed=1).load(tmp_path, FLAT), old)


def test_the_flattened_form_has_the_order_of_the_checkpoint(tmp_path: pathlib.Path) -> None:
    old = Job(SINGLE).wanted(FLAT)["optim"]
    dcp.save({"optim": old}, checkpoint_id=tmp_path)
    new = Job(MERGED).wanted(FLAT)["optim"]
    found = dcp_layout({"optim": new}, dcp.FileSystemReader(tmp_path))["optim"]
    assert list(found) == list(old) != list(new)
    assert all(found[key] is new[key] for key in new)


def test_files_from_before_torch_2_4(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups and schedulers are one entry each in them."""
    from torch.distributed.checkpoint import _version

    old = Job(SINGLE, schedule=rows.by_chain).train()
    with monkeypatch.context() as patch:
        patch.setattr(_version, "_derived_version", "2_3")
        old.save(tmp_path)
    paths = dcp.FileSystemReader(tmp_path).read_metadata().planner_data.values()
    assert ("optim", "param_groups") in paths and ("scheduler",) in paths
    assert rows.same(Job(MERGED, schedule=rows.by_chain, seed=1).load(tmp_path), old)


@BOTH_WAYS
def test_entries_that_were_saved_whole(tmp_path: pathlib.Path, before: int, after: int) -> None:
    whole = {"flatten_state_dict": False, "flatten_sharded_tensors": False}
    old, new = Job(before).train(), Job(after, seed=1)
    dcp.save(old.wanted(), checkpoint_id=tmp_path, planner=dcp.DefaultSavePlanner(**whole))
    wanted, reader = new.wanted(), dcp.FileSystemReader(tmp_path)
    saved = dcp_layout(wanted, reader)
    dcp.load(saved, storage_reader=reader, planner=dcp.DefaultLoadPlanner(**whole))
    assert rows.same(new.take(saved, wanted), old)


def test_files_with_metadata_of_each_rank(tmp_path: pathlib.Path) -> None:
    old = Job(SINGLE).train()
    dcp.save(old.wanted(), checkpoint_id=tmp_path, use_collectives=False)
    assert not (tmp_path / ".metadata").exists()
    assert rows.same(Job(MERGED, seed=1).load(tmp_path), old)


def test_shared_with_what_was_given_are_the_tensors_alone(tmp_path: pathlib.Path) -> None:
    old, new = Job(SINGLE).train(), Job(MERGED, seed=1)
    for job, number in ((old, 7), (new, 0)):  # state that is no tensor, as some optimizers have it
        for parameter in job.model.parameters():
            job.optimizer.state[parameter] |= {"number": number, "exp_avg": torch.zeros_like(parameter)}
    old.save(tmp_path)
    wanted = new.wanted()
    groups = [dict(group) for group in wanted["optim"]["param_groups"]]
    schedule = dict(wanted["scheduler"])
    reader = dcp.FileSystemReader(tmp_path)
    saved = dcp_layout(wanted, reader)
    dcp.load(saved, storage_reader=reader)
    assert wanted["optim"]["param_groups"] == groups and wanted["scheduler"] == schedule
    assert len(saved["optim"]["param_groups"]) == len(saved["scheduler"]["base_lrs"]) == SINGLE
    assert saved["model"] is wanted["model"]
    for name, state in saved["optim"]["state"].items():
        own = wanted["optim"]["state"][name]
        assert state["exp_avg"] is own["exp_avg"]
        assert (state["number"], own["number"]) == (7, 0)


class App:
    """As DCP's tutorial has it."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def state_dict(self) -> dict[str, Any]:
        return {"optim": get_optimizer_state_dict(self.job.model, self.job.optimizer)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise AssertionError("dcp.load would load groups that do not fit")


def test_objects_that_hold_an_optimizer_or_are_a_scheduler(tmp_path: pathlib.Path) -> None:
    old = Job(SINGLE).train()
    dcp.save({"app": App(old), "scheduler": old.scheduler, "model": old.model}, checkpoint_id=tmp_path)
    new = Job(MERGED, seed=1)
    wanted: dict[str, Any] = {"app": App(new), "scheduler": new.scheduler, "model": new.model}
    reader = dcp.FileSystemReader(tmp_path)
    saved = dcp_layout(wanted, reader)
    assert saved["model"] is new.model, "that one is dcp.load's to load"
    dcp.load(saved, storage_reader=reader)
    optim, schedule = regroup_state_dict(saved["app"]["optim"], saved["scheduler"], target=wanted["app"].state_dict()["optim"])
    set_optimizer_state_dict(new.model, new.optimizer, optim)
    new.scheduler.load_state_dict(schedule)
    new.steps = old.steps
    assert rows.same(new, old)


@BOTH_WAYS
def test_sharded_on_two_ranks(two: list[dict[str, Any]], before: int, after: int) -> None:
    for found in two:
        assert found[f"{before} to {after}"], "dcp, shards"
        assert found[f"full, {before} to {after}"], "torch.save of the full state"
        assert found[f"rank 0's, {before} to {after}"], "of rank 0's full state on the CPU, broadcast when loaded"


def test_shards_are_filled_in_place_and_groups_that_fit_stay(two: list[dict[str, Any]]) -> None:
    for found in two:
        assert found["in place"] and found["offloaded"] and found[f"{SINGLE} to {SINGLE}"]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As the ranks have it: sums of other lengths are other bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("two", "one_thread")
def test_saved_by_two_ranks_and_resumed_by_one_process(folder: pathlib.Path) -> None:
    uninterrupted = Job(SINGLE, schedule=rows.by_objects).train()
    assert rows.same(Job(MERGED, schedule=rows.by_other_objects, seed=1).load(folder / "by two"), uninterrupted)
