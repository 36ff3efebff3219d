"""What dcp_layout refuses, and what it says then."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import torch.distributed.checkpoint as dcp
from gradgate.errors import InvalidArgument
from gradgate.param_groups.dcp import dcp_layout
from param_groups_dcp_rows import MERGED, SINGLE, Job
from torch.distributed.checkpoint.state_dict import StateDictOptions

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")

FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


def refused(given: dict[str, Any], folder: pathlib.Path) -> str:
    with pytest.raises(InvalidArgument) as caught:
        dcp_layout(given, dcp.FileSystemReader(folder))
    return str(caught.value)


def test_a_reader_without_metadata(tmp_path: pathlib.Path) -> None:
    said = refused(Job(MERGED).wanted(), tmp_path)
    assert said.startswith("FileSystemReader has no metadata (FileNotFoundError: ") and "give the reader of a complete checkpoint" in said


def test_metadata_that_is_none(tmp_path: pathlib.Path) -> None:
    class Reader(dcp.FileSystemReader):
        def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
            return None

    with pytest.raises(InvalidArgument, match=r"^Reader\.read_metadata\(\) gave NoneType: that is no checkpoint's metadata$"):
        dcp_layout(Job(MERGED).wanted(), Reader(tmp_path))


def test_no_optimizer_in_what_is_given(tmp_path: pathlib.Path) -> None:
    Job(SINGLE).save(tmp_path)
    said = refused({"model": Job(MERGED).model.state_dict(), "steps": 0}, tmp_path)
    assert said.startswith("there is no optimizer's state in the given dict, which has model, steps: give what dcp.load is to fill")


def test_no_optimizer_in_the_checkpoint(tmp_path: pathlib.Path) -> None:
    dcp.save({"model": Job(SINGLE).model.state_dict()}, checkpoint_id=tmp_path)
    assert refused(Job(MERGED).wanted(), tmp_path).startswith(
        "the checkpoint has no optimizer at optim; it has none: give dcp_layout a dict"
    )


def test_an_optimizer_elsewhere_in_the_checkpoint(tmp_path: pathlib.Path) -> None:
    dcp.save({"app": {"optim": Job(SINGLE).wanted()["optim"]}}, checkpoint_id=tmp_path)
    given = Job(MERGED).wanted()
    assert "no optimizer at optim; it has one at app.optim: " in refused(given, tmp_path)
    assert "no optimizer at the top of the dict; it has one at app.optim: " in refused(given["optim"], tmp_path)


@pytest.mark.parametrize(("saved", "wanted", "flag"), [(FLAT, None, True), (None, FLAT, False)])
def test_the_other_form(tmp_path: pathlib.Path, saved: StateDictOptions | None, wanted: StateDictOptions | None, flag: bool) -> None:
    Job(SINGLE).save(tmp_path, saved)
    said = refused(Job(MERGED).wanted(wanted), tmp_path)
    assert f"the checkpoint has optim as get_optimizer_state_dict gives it with flatten_optimizer_state_dict={flag}: get it so" in said


def test_an_optimizer_that_numbers_its_parameters(tmp_path: pathlib.Path) -> None:
    dcp.save({"optim": Job(SINGLE).train().optimizer.state_dict()}, checkpoint_id=tmp_path)
    said = refused({"optim": Job(MERGED).train().optimizer.state_dict()}, tmp_path)
    assert said.startswith("optim numbers its parameters, as optimizer.state_dict() does, ") and "get_optimizer_state_dict" in said


@pytest.mark.parametrize("options", [None, FLAT])
def test_state_that_the_checkpoint_lacks(tmp_path: pathlib.Path, options: StateDictOptions | None) -> None:
    Job(SINGLE, frozen=0).save(tmp_path, options)
    said = refused(Job(MERGED).wanted(options), tmp_path)
    assert said.startswith("the checkpoint lacks optim.state.layers.0.0.weight.step, ") and " and 8 more: " in said
    assert "StateDictOptions(strict=False)" in said
