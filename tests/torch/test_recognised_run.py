"""`gradgate run` on loops that do themselves what deferring would break: the bytes are the script's own, and the page says why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from forked_runs import SCRIPTS, Nursery

STEPS, MICRO_STEPS = 4, 2
BACKWARDS = STEPS * MICRO_STEPS
# Windows that are counted, of how many micro-steps, with how many reductions each; the reason told.
COUNTED: dict[str, tuple[int, int, str]] = {
    "fsdp2_hooks": (BACKWARDS - 1, 1, "optimizer_in_backward"),
    "ddp_hooks": (BACKWARDS - 1, 1, "steps_before_reduction"),
    "gpipe_fsdp2": (STEPS - 1, 1, "pipeline_schedule"),
    "1f1b_fsdp2": (STEPS - 1, 1, "pipeline_schedule"),
    "gpipe_ddp": (STEPS - 1, 1, "pipeline_schedule"),
    "local_sgd": (STEPS - 1, MICRO_STEPS, "local_sgd"),
}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as one:
        yield one


@pytest.fixture(scope="module")
def plain(nursery: Nursery) -> dict[str, list[Any]]:
    """By kind, what each rank's parameters are without gradgate; filled as it is asked for."""
    return {}


def ran(nursery: Nursery, kind: str, how: str) -> tuple[list[Any], Any]:
    done = nursery.run([str(SCRIPTS / "recognised.py"), "{folder}", kind], how=how, timeout_s=90)
    assert done.statuses == [0, 0], done
    return [json.loads((done.folder / f"{rank}.json").read_text()) for rank in range(2)], done


@pytest.mark.parametrize("how", ["audit", "enforce"])
@pytest.mark.parametrize("kind", [*COUNTED, "python_group"])
def test_left_as_it_is(nursery: Nursery, plain: dict[str, list[Any]], kind: str, how: str) -> None:
    if kind not in plain:
        plain[kind], _ = ran(nursery, kind, "plain")
    hashes, done = ran(nursery, kind, how)
    assert hashes == plain[kind]
    assert done.report is not None
    if kind == "python_group":
        assert not done.report["observed"]
        [why] = done.report["left_alone"]
        assert "Forwarding is a process group implemented in Python, whose collectives cannot be counted" in why
        return
    assert not done.report["left_alone"]
    [figures] = done.report["observed"]
    windows, size, reason = COUNTED[kind]
    assert figures["windows"] == windows, figures
    assert figures["window_sizes"] == {str(size): windows}
    assert figures["enforcement"] == "audit"
    assert not figures["given_up"]
    assert reason in figures["told"]
    if kind != "local_sgd":
        assert figures["reductions"] == windows
        assert figures["wasted"] == 0
        assert figures["unreduced"] == (windows if kind == "ddp_hooks" else 0)


def test_ranks_of_hooks_before_the_reduction_differ(nursery: Nursery, plain: dict[str, list[Any]]) -> None:
    """What the reason says is so."""
    if "ddp_hooks" not in plain:
        plain["ddp_hooks"], _ = ran(nursery, "ddp_hooks", "plain")
    assert plain["ddp_hooks"][0] != plain["ddp_hooks"][1]
