"""Training does not depend on the daemon: absent, killed, frozen or replaced, the parameters are the same bytes and no count is lost."""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import case
from case import processes, sources

# 10 epochs of 4 windows. SLOWLY: a rank's next try to reach a daemon, a second later, comes between the two pauses.
SHAPE = ("--accumulate", "4", "--epochs", "10", *case.EXACT)
SLOWLY = ("--throttle", "10")
EARLY, LATE = 5, 39


class DaemonFaults(case.SystemCase):
    reference: str | None = None

    def expected(self) -> str:
        """Two ranks' parameters where no daemon was ever there."""
        if DaemonFaults.reference is None:
            DaemonFaults.reference = self.one_hash(self.train("--ranks", "2", *SHAPE, *case.NO_DAEMON))
        return DaemonFaults.reference

    @contextlib.contextmanager
    def trainer(self, *options: str) -> Iterator[processes.Process]:
        self.report = self.folder / "report.json"
        common = ("--ranks", "2", "--job", self.job, "--report", str(self.report), "--daemon-dir", str(self.folder / "run"))
        with processes.trainer(self.binaries, *common, *SHAPE, *options) as process:
            yield process

    def daemon(self) -> processes.Daemon:
        return processes.Daemon(self.binaries, self.folder / "run")

    def finish(self, trainer: processes.Process) -> Any:
        """The trainer ends without an error, with the right bytes and its own counts."""
        self.assertEqual(trainer.finish(), 0, trainer.output)
        report = case.read_report(self.report)
        self.assertEqual(self.one_hash(report), self.expected())
        self.assert_own_counts(report)
        return report

    def assert_daemon_knows(self, daemon: processes.Daemon, report: Any) -> None:
        status = daemon.wait_state(self.job, "FINISHED")
        self.assert_counts_agree(
            loop=sources.from_loop(report),
            library=sources.from_library(report),
            ctl=sources.from_ctl(status),
            metrics=sources.from_metrics(daemon.scrape(), status["job"]["run_id"]),
        )

    def wait_running(self, daemon: processes.Daemon, ranks: int = 2) -> Any:
        def running() -> Any:
            status = daemon.status(self.job)
            return status if status and status["job"]["running_rank_count"] == ranks else None

        return processes.wait_for(f"{ranks} ranks of {self.job} are connected", running)

    def test_absent(self) -> None:
        with self.trainer() as trainer:
            report = self.finish(trainer)
        self.assertFalse(any(rank["stats"]["linked"] for rank in report["ranks"]))

    def test_present(self) -> None:
        with self.daemon() as daemon, self.trainer() as trainer:
            report = self.finish(trainer)
            self.assertTrue(all(rank["stats"]["linked"] for rank in report["ranks"]))
            self.assert_daemon_knows(daemon, report)

    def test_killed(self) -> None:
        with self.daemon() as daemon, self.trainer("--pause-at-window", str(EARLY)) as trainer:
            trainer.wait_line("paused at window")
            self.wait_running(daemon)
            daemon.kill()
            trainer.say()
            report = self.finish(trainer)
        self.assertFalse(any(rank["stats"]["linked"] for rank in report["ranks"]))

    def test_frozen_in_the_middle(self) -> None:
        with self.daemon() as daemon, self.trainer("--pause-at-window", str(EARLY)) as trainer:
            trainer.wait_line("paused at window")
            self.wait_running(daemon)
            daemon.process.signal(signal.SIGSTOP)
            trainer.say()
            report = self.finish(trainer)
            daemon.process.signal(signal.SIGCONT)
            self.assert_daemon_knows(daemon, report)

    def test_frozen_from_the_start(self) -> None:
        with self.daemon() as daemon, self.trainer() as trainer:
            daemon.process.signal(signal.SIGSTOP)
            report = self.finish(trainer)
            daemon.process.signal(signal.SIGCONT)
            self.assert_daemon_knows(daemon, report)

    def test_restarted_in_the_middle(self) -> None:
        with self.daemon() as first, self.trainer("--pause-at-window", f"{EARLY},{LATE}", *SLOWLY) as trainer:
            trainer.wait_line(f"paused at window {EARLY}")
            self.wait_running(first)
            first.kill()
            with self.daemon() as second:
                trainer.say()
                trainer.wait_line(f"paused at window {LATE}")
                self.wait_running(second)
                trainer.say()
                report = self.finish(trainer)
                self.assert_daemon_knows(second, report)

    def test_started_in_the_middle(self) -> None:
        with self.trainer("--pause-at-window", f"{EARLY},{LATE}", *SLOWLY) as trainer:
            trainer.wait_line(f"paused at window {EARLY}")
            with self.daemon() as daemon:
                trainer.say()
                trainer.wait_line(f"paused at window {LATE}")
                self.wait_running(daemon)
                trainer.say()
                self.assert_daemon_knows(daemon, self.finish(trainer))

    def test_shut_down_and_replaced_again_and_again(self) -> None:
        pauses = (3, 21, 39)
        with contextlib.ExitStack() as stack:
            trainer = stack.enter_context(self.trainer("--pause-at-window", ",".join(map(str, pauses)), "--throttle", "30"))
            daemon = None
            for pause in pauses:
                trainer.wait_line(f"paused at window {pause}")
                if daemon:
                    self.wait_running(daemon)
                    daemon.process.signal(signal.SIGTERM)
                    self.assertEqual(daemon.process.popen.wait(timeout=processes.DEADLINE_S), 0)
                daemon = stack.enter_context(self.daemon())
                if pause != pauses[-1]:
                    trainer.say()
            assert daemon
            # The last daemon comes after the last pause: nobody needs to have met it.
            trainer.say()
            self.finish(trainer)


class TrainerLost(case.SystemCase):
    def test_told_within_a_second_though_a_child_lives(self) -> None:
        run = self.folder / "run"
        options = ("--job", self.job, "--daemon-dir", str(run), "--pause-at-window", "3", "--fork-child", *case.EXACT)
        with processes.Daemon(self.binaries, run) as daemon, processes.trainer(self.binaries, *options) as trainer:
            child = int(trainer.wait_line("forked").split()[-1])
            trainer.wait_line("paused at window 3")
            daemon.wait_state(self.job, "RUNNING")
            killed_at = time.time()
            trainer.signal(signal.SIGKILL)
            status = daemon.wait_state(self.job, "LOST")
            self.assertLess(self.seconds(status["job"]["end_time"]) - killed_at, 1.0)
            os.kill(child, 0)  # raises if it does not live
            self.assertEqual(int(status["job"]["lost_rank_count"]), 1)
            # Its last windows can still be read: three were closed, the fourth had not begun.
            self.assertEqual(int(status["ranks"][0]["totals"]["step_count"]), 3)
            windows = daemon.ctl("windows", self.job)["windows"]
            self.assertEqual([int(window["window_index"]) for window in windows], [0, 1, 2])
            trainer.finish()  # its stdin ends, and with it the child

    def test_lost_rank_is_not_a_finished_one(self) -> None:
        """One of two ranks is killed: the daemon tells them apart."""
        run = self.folder / "run"
        options = ("--ranks", "2", "--job", self.job, "--daemon-dir", str(run), "--crash", "1:2", "--deadline", "5", *case.EXACT)
        with processes.Daemon(self.binaries, run) as daemon:
            with processes.trainer(self.binaries, *options) as trainer:
                self.assertEqual(trainer.finish(), 1)
            status = daemon.wait_state(self.job, "LOST")
            states = {rank["rank"]: rank["state"] for rank in status["ranks"]}
            self.assertEqual(states[1], "STATE_LOST")

    @staticmethod
    def seconds(timestamp: str) -> float:
        """A protobuf timestamp, as seconds since 1970."""
        whole, _, fraction = timestamp.removesuffix("Z").partition(".")
        return datetime.datetime.fromisoformat(whole + "+00:00").timestamp() + float(f"0.{fraction or 0}")


if __name__ == "__main__":
    case.main()
