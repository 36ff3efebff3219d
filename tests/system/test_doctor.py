"""The doctor on real runs: each fault gives its verdict and no other, a healthy run none. What each page looks like is printed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import case
from case import processes

RANKS = 3
HANG_S = 15.0
# A poll, an answer, and a machine that is busy.
MARGIN_S = 5.0
TROUBLE, FINE = 5, 0
ENDLESS = ("--epochs", "100000", "--throttle", "10", "--quiet")


class Doctor(case.SystemCase):
    def setUp(self) -> None:
        super().setUp()
        self.daemon = self.start_daemon()

    @contextlib.contextmanager
    def trainer(self, *options: str, mode: str = "enforce", windows: int = 40) -> Iterator[processes.Process]:
        """Ranks that train for ever, once each has closed some windows."""
        common = ("--job", self.job, "--daemon-dir", str(self.folder / "run"), *ENDLESS)
        with processes.trainer(self.binaries, "--ranks", str(RANKS), *common, *options, env={"GRADGATE": mode}) as process:
            processes.wait_for(f"{windows} windows of {self.job}", lambda: self.windows_closed() >= windows)
            yield process
            process.signal(signal.SIGTERM)
            process.finish()

    def windows_closed(self) -> int:
        status = self.daemon.status(self.job)
        return int(status["job"]["window_count"]) if status else 0

    def pid(self, rank: int) -> int:
        return int(self.daemon.status(self.job)["ranks"][rank]["process_id"])

    def doctor(self, *options: str) -> tuple[int, str]:
        command = [self.binaries.path("gradgatectl"), "--dir", self.daemon.directory, *options, "doctor", self.job]
        done = subprocess.run(command, capture_output=True, text=True, timeout=processes.DEADLINE_S, check=False)
        self.assertIn(done.returncode, (FINE, TROUBLE), done.stderr)
        return done.returncode, done.stdout

    def diagnose(self, *expected: str, deadline_s: float = 30.0) -> list[Any]:
        """The verdicts once they are just these, the worst first."""
        last = ""

        def reached() -> Any:
            nonlocal last
            code, text = self.doctor("--json")
            verdicts = json.loads(text)["verdicts"]
            kinds = tuple(verdict["kind"].removeprefix("VERDICT_KIND_") for verdict in verdicts)
            last = f"{kinds}: {[verdict['headline'] for verdict in verdicts]}"
            if kinds != expected:
                return None
            bad = any(verdict["severity"] in ("SEVERITY_WARNING", "SEVERITY_CRITICAL") for verdict in verdicts)
            self.assertEqual(code, TROUBLE if bad else FINE)
            return verdicts

        try:
            verdicts: list[Any] = processes.wait_for(f"verdicts of {self.job}", reached, deadline_s)
        except TimeoutError:
            self.fail(f"not {expected} but {last}")
        print(f"\n--- {self.id().rsplit('.', 1)[-1]}\n{self.doctor()[1]}", flush=True)
        return verdicts

    def test_healthy(self) -> None:
        with self.trainer():
            self.diagnose("HEALTHY")

    def test_windows_that_end_by_count(self) -> None:
        with self.trainer("--boundary", "count", "--batch", "47"):
            self.diagnose("HEALTHY")

    def test_finished(self) -> None:
        options = ("--job", self.job, "--daemon-dir", str(self.folder / "run"), "--epochs", "3", "--quiet")
        with processes.trainer(self.binaries, "--ranks", str(RANKS), *options) as process:
            self.assertEqual(process.finish(), 0, process.output)
        self.daemon.wait_state(self.job, "FINISHED")
        self.diagnose("HEALTHY")

    def test_wasted_reductions(self) -> None:
        with self.trainer(mode="audit"):
            verdict = self.diagnose("WASTED_REDUCTIONS")[0]
            self.assertIn("4 reductions per optimizer step where 1 would do: ranks 0-2", verdict["headline"])

    def test_stopped_rank(self) -> None:
        with self.trainer("--deadline", "600"):
            pid = self.pid(1)
            os.kill(pid, signal.SIGSTOP)
            self.addCleanup(self.let_go, pid)
            begin = time.monotonic()
            verdict = self.diagnose("STOPPED", deadline_s=MARGIN_S)[0]
            print(f"told {time.monotonic() - begin:.1f} s after the stop")
            self.assertEqual(verdict["ranks"], [1])
            self.assertIn("its process is stopped by a signal", "\n".join(verdict["evidence"]))
            self.let_go(pid)
            self.diagnose("HEALTHY")

    def let_go(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def test_stopped_rank_after_another_daemon_has_come(self) -> None:
        with self.trainer("--deadline", "600"):
            self.daemon.kill()
            self.daemon = self.start_daemon()
            processes.wait_for("the ranks are back", lambda: self.windows_closed() >= 60)
            self.diagnose("HEALTHY")  # what the first daemon has seen is missed by nobody
            pid = self.pid(2)
            os.kill(pid, signal.SIGSTOP)
            self.addCleanup(self.let_go, pid)
            self.assertEqual(self.diagnose("STOPPED", deadline_s=MARGIN_S)[0]["ranks"], [2])

    def test_rank_that_does_something_else(self) -> None:
        with self.trainer("--pause-at-window", "50", "--deadline", "600") as trainer:
            trainer.wait_line("paused at window 50")
            verdict = self.diagnose("HUNG", deadline_s=HANG_S + MARGIN_S)[0]
            self.assertEqual((verdict["ranks"], verdict["first_window_index"]), ([0], "50"))
            self.assertIn("between windows, before window 50", "\n".join(verdict["evidence"]))
            trainer.say()
            self.diagnose("HEALTHY")

    def test_killed_rank(self) -> None:
        # One by one: the launcher would end the others as well.
        common = ("--world-size", str(RANKS), "--rendezvous", f"file://{self.folder}/meet", "--job", self.job, "--deadline", "8")
        with contextlib.ExitStack() as stack:
            ranks = [
                stack.enter_context(
                    processes.trainer(self.binaries, "--rank", str(rank), *common, *ENDLESS, "--daemon-dir", str(self.folder / "run"))
                )
                for rank in range(RANKS)
            ]
            processes.wait_for("40 windows", lambda: self.windows_closed() >= 40)
            ranks[1].signal(signal.SIGKILL)
            self.assertEqual(self.diagnose("RANK_LOST", deadline_s=5)[0]["ranks"], [1])
            for rank in (0, 2):
                self.assertEqual(ranks[rank].finish(), 1)
            verdict = self.diagnose("RANK_LOST", deadline_s=5)[0]
            self.assertEqual(verdict["ranks"], [1])
            self.assertIn("after that ranks 0, 2 ended", "\n".join(verdict["evidence"]))

    def test_another_number_of_micro_steps(self) -> None:
        with self.trainer("--shorten", "1"):
            verdicts = self.diagnose("RANKS_APART", "HEALTHY")
            self.assertEqual(verdicts[0]["ranks"], [1])

    def test_another_number_of_micro_steps_in_equal_windows(self) -> None:
        with self.trainer("--shorten", "1", "--windows", "equal"):
            self.assertEqual(self.diagnose("RANKS_APART")[0]["ranks"], [1])

    def test_slow_rank(self) -> None:
        with self.trainer("--throttle", "20", "--slow", "1:6"):
            verdict = self.diagnose("STRAGGLER")[0]
            self.assertEqual((verdict["ranks"], verdict["cause"]), ([1], "DELAY_CAUSE_COMPUTE"))


if __name__ == "__main__":
    case.main()
