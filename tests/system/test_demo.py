"""The demo passes on real processes, and fails where it should."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
import unittest
from typing import Any

import case
from case import demo, processes, sources


class Demo(case.SystemCase):
    def run_demo(self, *options: str) -> tuple[int, list[str]]:
        """In a build folder of its own, so that a developer's report stays."""
        build = self.folder / "build"
        build.mkdir(exist_ok=True)
        if not (build / "bin").exists():
            (build / "bin").symlink_to(self.binaries.folder)
        command = [sys.executable, "-B", str(case.ROOT / "examples/digits/demo.py"), "--build-dir", str(build), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        return done.returncode, (done.stdout + done.stderr).splitlines()

    def test_passes_and_says_so_in_its_last_line(self) -> None:
        status, lines = self.run_demo("--hidden", "128")
        self.assertEqual(status, 0, "\n".join(lines))
        self.assertRegex(lines[-1], r"^demo: passed: 13 counts × 2 ranks agree in 4 sources, twice, .* s; report: .*/demo/report.json$")
        self.assertLessEqual(max(map(len, lines[:-1])), 100, "the table fits a terminal of 100 columns")
        in_full_windows = next(line for line in lines if "in full windows" in line)
        self.assertEqual(in_full_windows.split()[-2:], ["4.0", "1.0"])
        report = json.loads((self.folder / "build/demo/report.json").read_text())
        self.assertEqual({run["report"]["options"]["mode"] for run in report["runs"].values()}, set(demo.MODES))
        self.assertEqual(len({value for values in report["exact_parameter_hashes"].values() for value in values}), 1)

    def test_fails_without_a_partial_window(self) -> None:
        status, lines = self.run_demo("--hidden", "64", "--batch", "6", "--epochs", "8", "--no-exact")
        self.assertEqual(status, 1, "\n".join(lines))
        self.assertRegex(lines[-1], "^demo: FAILED: every_micro_step: no partial window was part of it; choose another --batch; report: ")

    def test_says_what_is_not_built(self) -> None:
        command = [sys.executable, "-B", str(case.ROOT / "examples/digits/demo.py"), "--build-dir", str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, f"demo: {self.folder}/bin/gradgated is not there: build it first\n")


class Sources(unittest.TestCase):
    """The comparison sees every kind of difference."""

    def told(self) -> dict[str, sources.Ranks]:
        ranks = {rank: {count: 100 * rank + number for number, count in enumerate(sources.COUNTS)} for rank in range(2)}
        return {"loop": ranks, "gradgatectl": copy.deepcopy(ranks), "/metrics": copy.deepcopy(ranks)}

    def test_equal(self) -> None:
        self.assertIsNone(sources.first_difference(self.told()))

    def test_each_count_of_each_rank_and_source(self) -> None:
        for source in ("loop", "gradgatectl", "/metrics"):
            for rank in range(2):
                for count in sources.COUNTS:
                    told = self.told()
                    told[source][rank][count] += 2
                    with self.subTest(source=source, rank=rank, count=count):
                        self.assertIn(f"rank {rank}, {count}: ", str(sources.first_difference(told)))

    def test_missing_rank(self) -> None:
        told = self.told()
        del told["/metrics"][1]
        self.assertEqual(sources.first_difference(told), "loop has ranks [0, 1], /metrics has [0]")

    def test_metrics_of_another_run_are_not_taken(self) -> None:
        info = '# HELP x y\ngradgate_rank_info{slot="3",rank="0",run_id="a"} 1\n'
        text = info + 'gradgate_steps_total{slot="3"} 7\ngradgate_steps_total{slot="4"} 9\n'
        self.assertEqual(sources.from_metrics(text, "a")[0]["steps"], 7)
        self.assertEqual(sources.from_metrics(text, "b"), {})

    def test_garbage_is_not_metrics(self) -> None:
        with self.assertRaisesRegex(ValueError, "not a sample"):
            list(sources.parse_metrics("gradgate_steps_total 1 2 3 x\n"))


class Checks(unittest.TestCase):
    """What the demo refuses, each by name."""

    def runs(self) -> dict[str, Any]:
        runs: dict[str, Any] = {}
        for mode, reductions in (("every_micro_step", 40), ("window", 10)):
            rank = {
                "parameter_hash": "aa",
                "held_out_accuracy": 0.97,
                "counted": {"windows_full": 10, "windows_partial": 1, "reductions_in_full_windows": reductions},
            }
            ranks = [copy.deepcopy(rank) for _ in range(2)]
            runs[mode] = {"report": {"ranks": ranks}, "sources": {"loop": {0: {"steps": 1}}, "/metrics": {0: {"steps": 1}}}}
        return runs

    def assert_refuses(self, runs: dict[str, Any], text: str, hashes: dict[str, list[str]] | None = None) -> None:
        with self.assertRaisesRegex(demo.Disagreement, text):
            demo.check(runs, hashes or {})

    def test_accepts(self) -> None:
        demo.check(self.runs(), {"window": ["a", "a"], "every_micro_step": ["a", "a"]})

    def test_counts_that_differ(self) -> None:
        runs = self.runs()
        runs["window"]["sources"]["/metrics"][0]["steps"] = 2
        self.assert_refuses(runs, "window: rank 0, steps: loop says 1, /metrics says 2")

    def test_ranks_that_differ(self) -> None:
        runs = self.runs()
        runs["window"]["report"]["ranks"][1]["parameter_hash"] = "bb"
        self.assert_refuses(runs, "window: ranks ended with different parameters")

    def test_too_many_reductions(self) -> None:
        runs = self.runs()
        runs["window"]["report"]["ranks"][0]["counted"]["reductions_in_full_windows"] = 11
        self.assert_refuses(runs, "window: 11 reductions in full windows, 10 expected")

    def test_bad_accuracy(self) -> None:
        runs = self.runs()
        runs["every_micro_step"]["report"]["ranks"][0]["held_out_accuracy"] = 0.94
        self.assert_refuses(runs, "held-out accuracy 0.9400 is below 0.95")

    def test_exact_parameters_that_differ(self) -> None:
        self.assert_refuses(self.runs(), "with exact sums the parameters differ", {"window": ["a", "a"], "every_micro_step": ["a", "b"]})


class Processes(unittest.TestCase):
    def test_deadline(self) -> None:
        with processes.Process([shutil.which("cat") or "cat"]) as process:
            with self.assertRaisesRegex(TimeoutError, "no further output"):
                process.wait_line("never", deadline_s=0.1)
            process.say("now")
            self.assertEqual(process.wait_line("now"), "now")
            self.assertEqual(process.finish(), 0)

    def test_ended_early(self) -> None:
        with processes.Process(["true"]) as process, self.assertRaisesRegex(RuntimeError, "ended without saying 'ready'"):
            process.wait_line("ready")

    def test_nothing_is_left_behind(self) -> None:
        with processes.Process(["cat"]) as process:
            pid = process.popen.pid
        with self.assertRaises(ProcessLookupError):
            os.kill(pid, 0)


if __name__ == "__main__":
    case.main()
