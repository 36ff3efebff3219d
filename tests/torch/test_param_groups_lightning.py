"""Checkpoints of Lightning between a module with one group for each tensor and one whose groups are merged."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import param_groups_dcp_rows as rows
import pytest
import torch
from gradgate.errors import InvalidArgument
from gradgate.param_groups import merge
from gradgate.param_groups.lightning import regroup_checkpoint
from param_groups_dcp_rows import MERGED, SINGLE, Job
from torch.optim.lr_scheduler import LambdaLR

SCHEDULES = pytest.mark.parametrize("schedule", [rows.by_lambdas, rows.by_objects, rows.by_warm_up, rows.by_chain, rows.on_plateau])


@pytest.fixture
def runs() -> Any:
    pytest.importorskip("lightning.pytorch", reason="lightning is not installed: resuming its checkpoints is not tested")
    import param_groups_lightning_runs

    return param_groups_lightning_runs


def one_line(module: Any, checkpoint: dict[str, Any]) -> None:
    regroup_checkpoint(checkpoint)


def both_ways(module: Any, checkpoint: dict[str, Any]) -> None:
    regroup_checkpoint(checkpoint, module.configure_optimizers())


@pytest.mark.filterwarnings("ignore")  # Lightning advises: more workers, a validation loop
class TestLightning:
    @SCHEDULES
    @pytest.mark.parametrize(
        ("before", "after", "hook"), [(SINGLE, MERGED, one_line), (SINGLE, MERGED, both_ways), (MERGED, SINGLE, both_ways)]
    )
    def test_resumes_bit_identical(
        self, runs: Any, tmp_path: pathlib.Path, schedule: Callable[..., Any], before: int, after: int, hook: Callable[..., None]
    ) -> None:
        uninterrupted = runs.Module(before, schedule)
        file = runs.checkpoint_of(uninterrupted, tmp_path)
        resumed = runs.fit(runs.Module(after, schedule, hook, seed=1), resume=file)
        assert len(resumed.trainer.optimizers[0].param_groups) == after
        if schedule is rows.on_plateau:  # whose step of that epoch Lightning leaves out of the checkpoint, and does not make up for
            uninterrupted = runs.fit(runs.Module(before, schedule, seed=1), resume=file)
        assert resumed.shown() == uninterrupted.shown()

    def test_without_the_hook(self, runs: Any, tmp_path: pathlib.Path) -> None:
        file = runs.checkpoint_of(runs.Module(SINGLE), tmp_path)
        with pytest.raises(ValueError, match="loaded state dict has a different number of parameter groups"):
            runs.fit(runs.Module(MERGED), resume=file)

    def test_in_a_callback(self, runs: Any, tmp_path: pathlib.Path) -> None:
        class Regroups(runs.pl.Callback):  # type: ignore[misc]
            def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
                regroup_checkpoint(checkpoint)

        uninterrupted = runs.Module(SINGLE, rows.by_warm_up)
        file = runs.checkpoint_of(uninterrupted, tmp_path)
        resumed = runs.fit(runs.Module(MERGED, rows.by_warm_up, seed=1), resume=file, callbacks=[Regroups()])
        assert resumed.shown() == uninterrupted.shown()


def checkpoint_of(*jobs: Job, order: Sequence[int] | None = None) -> dict[str, Any]:
    """As Lightning has it, with the schedulers in another order."""
    return copy.deepcopy(
        {
            "epoch": 1,
            "state_dict": {},
            "optimizer_states": [job.optimizer.state_dict() for job in jobs],
            "lr_schedulers": [jobs[index].scheduler.state_dict() for index in order or range(len(jobs))],
        }
    )


def rows_of(checkpoint: dict[str, Any]) -> list[Any]:
    """Its groups and schedulers, which can be compared."""
    return [[state["param_groups"] for state in checkpoint["optimizer_states"]], checkpoint["lr_schedulers"]]


def faster(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    return torch.optim.AdamW([group | {"lr": 3 * group["lr"]} for group in groups])


def by_layer_and_decay(optimizer: torch.optim.Optimizer) -> LambdaLR:
    return LambdaLR(optimizer, [rows.Decay(0.5 + group["lr"] + group["weight_decay"]) for group in optimizer.param_groups])


def resumed_from(checkpoint: dict[str, Any], *jobs: Job, order: Sequence[int] | None = None) -> None:
    """What Lightning does after the hook."""
    for job, state in zip(jobs, checkpoint["optimizer_states"], strict=True):
        job.optimizer.load_state_dict(state)
    for index, state in zip(order or range(len(jobs)), checkpoint["lr_schedulers"], strict=True):
        jobs[index].scheduler.load_state_dict(state)


def rates_of(job: Job) -> dict[str, Any]:
    for _ in range(2):
        job.scheduler.step()
    return {name: held["settings"] for name, held in job.shown().items()}


def test_a_scheduler_goes_with_the_optimizer_of_its_base_lrs() -> None:
    old = [Job(SINGLE).train(), Job(SINGLE, optimizer=faster, schedule=by_layer_and_decay).train()]
    checkpoint = checkpoint_of(*old, order=(1, 0))
    regroup_checkpoint(checkpoint)
    new = [Job(MERGED), Job(MERGED, optimizer=faster, schedule=by_layer_and_decay)]
    resumed_from(checkpoint, *new, order=(1, 0))
    assert [rates_of(job) for job in new] == [rates_of(job) for job in old]


def one_decay(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    """Its learning rates are the others', and its groups merge into two."""
    return torch.optim.AdamW([group | {"weight_decay": 0.1} for group in groups])


def one_decay_merged(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(merge([group | {"weight_decay": 0.1} for group in groups]))


def test_a_scheduler_that_could_be_of_two_optimizers() -> None:
    old = [Job(SINGLE).train(), Job(SINGLE, optimizer=one_decay).train()]
    checkpoint = checkpoint_of(*old)
    untouched = copy.deepcopy(checkpoint)
    with pytest.raises(InvalidArgument) as caught:
        regroup_checkpoint(checkpoint)
    assert "which optimizer checkpoint['lr_schedulers'][0] belongs to cannot be told, it fits 0 and 1: give what " in str(caught.value)
    assert rows_of(checkpoint) == rows_of(untouched), "all or nothing"
    new = [Job(MERGED), Job(SINGLE, optimizer=one_decay_merged)]
    regroup_checkpoint(checkpoint, ([job.optimizer for job in new], [{"scheduler": job.scheduler} for job in new]))
    resumed_from(checkpoint, *new)
    assert [len(job.scheduler.base_lrs) for job in new] == [4, 2]
    assert [rates_of(job) for job in new] == [rates_of(job) for job in old]


def test_the_learning_rates_at_the_checkpoint_tell_them_apart() -> None:
    old = [Job(SINGLE).train(), Job(SINGLE, optimizer=one_decay, schedule=rows.by_warm_up).train()]
    checkpoint = checkpoint_of(*old, order=(1, 0))
    regroup_checkpoint(checkpoint)
    new = [Job(MERGED), Job(SINGLE, optimizer=one_decay_merged, schedule=rows.by_warm_up)]
    resumed_from(checkpoint, *new, order=(1, 0))
    assert [rates_of(job) for job in new] == [rates_of(job) for job in old]


def test_which_optimizer_does_not_matter_where_both_merge_alike() -> None:
    old, new = [Job(SINGLE).train(), Job(SINGLE).train()], [Job(MERGED), Job(MERGED)]
    checkpoint = checkpoint_of(*old)
    regroup_checkpoint(checkpoint)
    resumed_from(checkpoint, *new)
    assert [rates_of(job) for job in new] == [rates_of(job) for job in old]


def test_a_scheduler_of_none_of_the_optimizers() -> None:
    checkpoint = checkpoint_of(Job(SINGLE), Job(SINGLE, optimizer=one_decay))
    checkpoint["lr_schedulers"] = [Job(SINGLE, optimizer=faster).scheduler.state_dict()]
    with pytest.raises(InvalidArgument, match=r"\['lr_schedulers'\]\[0\] belongs to cannot be told, it fits none of the 2: "):
        regroup_checkpoint(checkpoint)


def test_another_number_of_optimizers() -> None:
    with pytest.raises(InvalidArgument, match="the checkpoint has the state of 2 optimizers, and 1 were given: give all that will load it"):
        regroup_checkpoint(checkpoint_of(Job(SINGLE), Job(SINGLE)), [Job(MERGED).optimizer])


@pytest.mark.parametrize("given", [False, True])
def test_frozen_parameters_that_merging_leaves_out(given: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The last layer, whose groups go as a whole, and with them their entries in the scheduler's lists."""
    old, new = (Job(count, frozen=2, schedule=rows.by_warm_up) for count in (SINGLE, MERGED // 2))
    checkpoint = checkpoint_of(old.train())
    regroup_checkpoint(checkpoint, new.optimizer if given else ())
    resumed_from(checkpoint, new)
    new.model.load_state_dict(old.model.state_dict())
    new.steps = old.steps
    assert rows.same(new, old)
    said = [record.getMessage() for record in caplog.records if record.name == "gradgate"]
    assert len(said) == (0 if given else 1)
    assert given or "checkpoint['optimizer_states'][0] has no state for 4 of 12 parameters: they are taken for frozen" in said[0]


@pytest.mark.parametrize("given", [False, True])
def test_frozen_parameters_in_groups_with_others(given: bool) -> None:
    """And then into the groups that were merged before: nothing is left to be done."""
    old, new = (Job(count, frozen=0) for count in (SINGLE, MERGED))
    checkpoint = checkpoint_of(old.train())
    regroup_checkpoint(checkpoint, new.optimizer if given else ())
    once = rows_of(copy.deepcopy(checkpoint))
    regroup_checkpoint(checkpoint, new.optimizer if given else ())
    assert rows_of(checkpoint) == once
    resumed_from(checkpoint, new)
    new.model.load_state_dict(old.model.state_dict())
    new.steps = old.steps
    assert rows.same(new, old)


def test_a_refusal_names_the_optimizer() -> None:
    bad = Job(SINGLE)
    bad.scheduler.base_lrs = bad.scheduler.base_lrs[:7]
    with pytest.raises(InvalidArgument, match=r"^checkpoint\['optimizer_states'\]\[0\]: the scheduler's base_lrs has 7 entries"):
        regroup_checkpoint(checkpoint_of(bad))


@pytest.mark.parametrize("given", [False, True])
def test_what_fits_is_left_as_it_is(given: bool) -> None:
    job = Job(MERGED).train()
    checkpoint = checkpoint_of(job)
    held = checkpoint["optimizer_states"][0]
    regroup_checkpoint(checkpoint, job.optimizer if given else ())
    assert checkpoint["optimizer_states"][0] is held
    assert rows_of(checkpoint) == rows_of(checkpoint_of(job))


def test_merged_groups_fit_though_some_parameters_have_no_state_yet(caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = checkpoint_of(Job(MERGED).train())
    held = checkpoint["optimizer_states"][0]
    del held["state"][3]
    regroup_checkpoint(checkpoint)
    assert checkpoint["optimizer_states"][0] is held and not caplog.records


def test_a_checkpoint_without_schedulers() -> None:
    old, new = Job(SINGLE).train(), Job(MERGED)
    checkpoint = {"optimizer_states": [copy.deepcopy(old.optimizer.state_dict())]}
    regroup_checkpoint(checkpoint)
    assert list(checkpoint) == ["optimizer_states"]
    new.optimizer.load_state_dict(checkpoint["optimizer_states"][0])
    assert [group["lr"] for group in new.optimizer.param_groups] == [old.optimizer.param_groups[index]["lr"] for index in (0, 1, 8, 9)]


@pytest.mark.parametrize(
    "checkpoint",
    [{}, {"state_dict": {}}, {"optimizer_states": [], "lr_schedulers": []}, {"optimizer_states": {"0": 1}}, {"optimizer": {"state": {}}}],
)
def test_what_is_not_a_training_checkpoint_of_lightning(checkpoint: dict[str, Any]) -> None:
    before = copy.deepcopy(checkpoint)
    regroup_checkpoint(checkpoint)
    assert checkpoint == before
