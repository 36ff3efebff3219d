"""./dev demo torch refuses what must not pass, each by name. That it passes is what ./dev ci runs it for."""

from __future__ import annotations

import copy
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples/chars"), str(ROOT / "examples/demo")]
import demo  # noqa: E402
import sources  # noqa: E402


def run_demo(build: pathlib.Path, *options: str) -> tuple[int, list[str]]:
    command = [sys.executable, "-B", str(ROOT / "examples/chars/demo.py"), "--build-dir", str(build), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    return done.returncode, (done.stdout + done.stderr).strip().splitlines()


def test_real_ranks_without_a_partial_window_fail(tmp_path: pathlib.Path) -> None:
    """Real processes: that the counts of all sources agree is checked before."""
    for name in ("bin", "lib"):
        (tmp_path / name).symlink_to(pathlib.Path(os.environ.get("GRADGATE_BUILD_DIR", ROOT / "build/debug")) / name)
    status, lines = run_demo(tmp_path, "--wrapper", "ddp", "--limit", "8", "--no-exact")
    said = "demo: FAILED: ddp, every_micro_step: no partial window was part of it; choose another --limit; report: "
    assert lines[-1].startswith(said), "\n".join(lines)
    assert status == 1
    assert max(map(len, lines[1:-1])) <= 100, "the tables fit a terminal of 100 columns"


def test_says_what_is_not_built(tmp_path: pathlib.Path) -> None:
    assert run_demo(tmp_path) == (1, [f"demo: {tmp_path}/bin/gradgated is not there: build it first"])


def runs() -> dict[str, dict[str, Any]]:
    """Of DDP, as they should be: ten full windows and one of two micro-steps, one loss logged each."""
    told = {}
    for mode, reductions in (("every_micro_step", 42), ("window", 11)):
        stats = {name: 0 for name in sources.COUNTS} | {"windows_full": 10, "windows_partial": 1, "micro_steps": 42, "steps": 11}
        rank = {
            "stats": stats
            | {
                "reductions": reductions,
                "gradient_collectives": reductions,
                "collectives": {"all_reduce": reductions + 42 + 12},
                "gradient": {"all_reduce": reductions},
                "ours": {"all_reduce": 12},
            },
            "before": {"ours": {"all_reduce": 1}},
            "profiled": {"all_reduce": reductions + 42 + 11},
            "counted": {"windows_full": 10, "windows_partial": 1, "micro_steps": 42, "steps": 11, "logged": 42},
            "held_out_loss": 2.5,
            "parameter_hash": "aa",
        }
        ranks = [copy.deepcopy(rank) | {"rank": number} for number in range(2)]
        ways = {"loop": demo.from_loop(ranks), "profiler": demo.from_profiler(ranks), "sync.stats()": demo.from_stats(ranks)}
        told[mode] = {"ranks": ranks, "sources": ways, "roles": {"dp": reductions}}
    return {"ddp": told}


def test_accepts() -> None:
    demo.check(runs(), {"ddp": {"window": ["a", "a"], "every_micro_step": ["a", "a"]}}, demo.MOST_LOSS)


@pytest.mark.parametrize(
    ("source", "count"), [("loop", "steps"), ("loop", "other all_reduce"), ("profiler", "all_reduce"), ("sync.stats()", "micro_steps")]
)
def test_counts_that_differ(source: str, count: str) -> None:
    told = runs()
    told["ddp"]["window"]["sources"][source][1][count] += 1
    with pytest.raises(demo.Disagreement, match=f"ddp, window: rank 1, {count}: "):
        demo.check(told, {}, demo.MOST_LOSS)


def test_other_refusals() -> None:
    def refused(told: dict[str, dict[str, Any]], hashes: dict[str, dict[str, list[str]]], text: str) -> None:
        with pytest.raises(demo.Disagreement, match=text):
            demo.check(told, hashes, demo.MOST_LOSS)

    told = runs()
    told["ddp"]["window"]["ranks"][1]["parameter_hash"] = "bb"
    refused(told, {}, "ddp, window: ranks ended with different parameters")
    told = runs()
    told["ddp"]["window"]["roles"]["dp"] = 12
    refused(told, {}, "ddp, window: 12 reductions in the dp group, 11 expected")
    told = runs()
    told["ddp"]["every_micro_step"]["roles"]["dp"] = 11
    refused(told, {}, "ddp, every_micro_step: 11 reductions in the dp group, 42 expected")
    told = runs()
    told["ddp"]["window"]["ranks"][0]["held_out_loss"] = 2.9
    refused(told, {}, "ddp: held-out losses .* above 2.75, or too far from one another")
    refused(runs(), {"ddp": {"window": ["a", "a"], "one process": ["b"]}}, "ddp: with exact sums the parameters differ")
