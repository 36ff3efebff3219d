"""`gradgate run` on what people train with: a framework's own loop, unchanged, gives the same bytes and the counts that torch sees."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from forked_runs import SCRIPTS, Nursery
from gradgate.run.reads import Reads

ACCUMULATE = 4
# What each window reduces by itself.
LOOPS = {"automatic": 1, "manual": ACCUMULATE, "toggled": 1}


class Fits:
    """Each fit once."""

    def __init__(self, nursery: Nursery, script: str) -> None:
        self._nursery = nursery
        self._script = str(SCRIPTS / script)
        self._done: dict[tuple[str, str, str], tuple[list[Any], Any]] = {}

    def __call__(self, what: str, how: str, ranks: int = 2, mode: str = "auto") -> tuple[list[Any], Any]:
        """What each rank told, and gradgate's figures of the one attachment."""
        if (what, how, mode) not in self._done:
            done = self._nursery.run([self._script, "{folder}", what], how=how, mode=mode, ranks=ranks, timeout_s=120)
            assert done.statuses == [0] * ranks, done
            told = [json.loads((done.folder / f"{rank}.json").read_text()) for rank in range(ranks)]
            figures = None
            if how != "plain":
                assert done.report is not None and len(done.report["left_alone"]) == what.startswith("beside_"), done
                [figures] = done.report["observed"]
                assert not figures["given_up"], done
                assert set(figures["told"]) <= {"gloo_sums_average"}, done
                figures["page"] = done.stderr[0]
            self._done[what, how, mode] = told, figures
        return self._done[what, how, mode]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as one:
        yield one


@pytest.fixture(scope="module")
def fits(nursery: Nursery) -> Fits:
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("lightning is not installed: gradgate run is not tried on its trainer")
    return Fits(nursery, "lightning_fit.py")


@pytest.mark.parametrize("loop", LOOPS)
class TestLightning:
    def test_audit_counts_what_torch_sees(self, fits: Fits, loop: str) -> None:
        told, figures = fits(loop, "audit")
        each = LOOPS[loop]
        steps = told[0]["steps"]
        assert steps == 3
        assert told[0]["collectives"]["all_reduce"] == each * steps
        windows = steps + 1
        assert figures["window_sizes"] == {str(ACCUMULATE): windows}
        places = range(1, ACCUMULATE + 1) if each == ACCUMULATE else [ACCUMULATE]
        assert {place: figures["reducing_micro_steps"].get(str(place)) for place in places} == dict.fromkeys(places, windows)
        assert figures["wasted"] == (each - 1) * windows
        assert figures["unreduced"] == 0

    def test_audit_adds_and_changes_nothing(self, fits: Fits, loop: str) -> None:
        plain, _ = fits(loop, "plain")
        audited, _ = fits(loop, "audit")
        assert audited == plain

    def test_enforce_reduces_once_to_the_same_bytes(self, fits: Fits, loop: str) -> None:
        plain, _ = fits(loop, "plain")
        enforced, figures = fits(loop, "enforce")
        assert [rank["parameters"] for rank in enforced] == [rank["parameters"] for rank in plain]
        assert figures["window_sizes"] == {str(ACCUMULATE): figures["windows"]}
        assert figures["windows"] >= enforced[0]["steps"]
        assert figures["reductions"] == figures["windows"]
        assert figures["wasted"] == 0
        if LOOPS[loop] == 1:  # as it should be: left to itself
            assert enforced == plain
        else:
            assert figures["mode"] == "window"
            assert figures["late"] == figures["windows"] - figures["predicted"]["hits"]
            assert enforced[0]["collectives"]["all_reduce"] == 2 * enforced[0]["steps"]  # the gradients, and the ballot


@pytest.fixture(scope="module")
def suppressing(nursery: Nursery) -> Fits:
    return Fits(nursery, "suppressing_fit.py")


@pytest.mark.parametrize(
    ("wrapper", "ranks", "each"),
    [("fsdp2", 2, {"reduce_scatter": 1}), ("hsdp", 4, {"reduce_scatter": 1, "all_reduce": 1}), ("fsdp1", 2, {"reduce_scatter": 1})],
)
def test_enforce_never_reduces_more_than_the_script(suppressing: Fits, wrapper: str, ranks: int, each: dict[str, int]) -> None:
    """Which accumulates locally in the first two micro-steps: with little memory gradgate would rather reduce in each."""
    plain, _ = suppressing(wrapper, "plain", ranks)
    enforced, figures = suppressing(wrapper, "enforce", ranks)
    assert [rank["parameters"] for rank in enforced] == [rank["parameters"] for rank in plain]
    for operation, count in each.items():
        assert plain[0]["collectives"][operation] == 3 * 2 * count
    assert figures["enforcement"] == "enforce"
    assert figures["window_sizes"] == {str(ACCUMULATE): figures["windows"]}
    assert figures["windows"] == 3
    assert figures["gradient_collectives"] <= 3 * 2 * sum(each.values())
    assert enforced[0]["collectives"]["reduce_scatter"] <= plain[0]["collectives"]["reduce_scatter"]


def test_enforces_what_begins_to_accumulate_later(suppressing: Fits) -> None:
    plain, _ = suppressing("warming_ddp", "plain")
    enforced, figures = suppressing("warming_ddp", "enforce")
    assert plain[0]["collectives"]["all_reduce"] == 1 + 4 + 4
    assert figures["enforcement"] == "enforce"
    assert figures["window_sizes"] == {str(ACCUMULATE): 1}
    assert figures["gradient_collectives"] == 1
    assert [rank["parameters"] for rank in enforced] == [rank["parameters"] for rank in plain]


def test_enforces_beside_a_model_that_nobody_wraps(suppressing: Fits) -> None:
    plain, _ = suppressing("beside_ddp", "plain")
    enforced, figures = suppressing("beside_ddp", "enforce")
    assert figures["enforcement"] == "enforce"
    assert figures["gradient_collectives"] == figures["windows"] == 3
    assert "left alone: SGD trains Linear, which neither DDP nor FSDP wraps" in figures["page"]
    assert [rank["parameters"] for rank in enforced] == [rank["parameters"] for rank in plain]


@pytest.mark.parametrize("loop", ["normed_ddp", "peeking_ddp"])
def test_enforce_leaves_a_script_alone_that_reads_gradients(nursery: Nursery, suppressing: Fits, loop: str) -> None:
    plain, _ = suppressing(loop, "plain")
    done = nursery.run([str(SCRIPTS / "suppressing_fit.py"), "{folder}", loop], how="enforce")
    assert done.statuses == [0, 0], done
    assert done.report is not None and not done.report["observed"], done
    [why] = done.report["left_alone"]
    assert re.fullmatch(r"SGD: .*/suppressing_fit\.py:\d+ reads gradients before the step, and they would not be reduced yet", why)
    assert [json.loads((done.folder / f"{rank}.json").read_text()) for rank in range(2)] == plain


def test_reads_are_seen_until_closed() -> None:
    parameter, other = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    told: list[str] = []
    guarded: list[bool] = []
    reads = Reads([parameter], told.append, lambda: guarded.append(True))
    parameter.grad = torch.full((2,), 3.0)
    torch.optim.SGD([parameter], lr=0.0).step()
    assert (other.grad, told, guarded) == (None, [], [])
    framework = compile("parameter.grad", "/somewhere/accelerate/accelerator.py", "eval")
    assert torch.equal(eval(framework, {"parameter": parameter}), torch.full((2,), 3.0))
    assert torch.nn.utils.clip_grad_norm_([parameter], 1.0) > 4
    assert (told, bool(guarded)) == ([], True)
    assert parameter.grad is not None
    assert [where.rpartition(":")[0] for where in told] == [__file__]
    parameter.grad = None
    reads.close()
    assert parameter.grad is None
    assert len(told) == 1
    assert "grad" not in vars(torch.nn.Parameter)


def test_enforces_where_gradients_are_read_once_reduced(suppressing: Fits) -> None:
    plain, _ = suppressing("clipped_ddp", "plain")
    enforced, figures = suppressing("clipped_ddp", "enforce")
    assert figures["gradient_collectives"] == figures["windows"] == 3
    assert [rank["parameters"] for rank in enforced] == [rank["parameters"] for rank in plain]


def test_enforce_says_how_to_defer_more(suppressing: Fits) -> None:
    plain, _ = suppressing("naive_fsdp2", "plain")
    _, little = suppressing("naive_fsdp2", "enforce")
    whole, most = suppressing("naive_fsdp2", "enforce", mode="window")
    hint = "; --mode window defers all, held unsharded"
    # Whether it may defer by itself depends on the memory of the machine.
    assert (hint in little["page"]) == (little["mode"] != "window")
    assert hint not in most["page"]
    assert most["wasted"] == 0
    assert [rank["parameters"] for rank in whole] == [rank["parameters"] for rank in plain]
