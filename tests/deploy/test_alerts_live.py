"""Alerts on what a real daemon says of real faults: names and labels are those that the rules ask for. The alerts' waiting times are not
sat out: pending is enough. The others are in alerts/ alone: digits cannot be made to do what they tell."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import tempfile
import unittest
from typing import Any

import tools
from tools import processes

ENDLESS = ("--ranks", "2", "--epochs", "100000", "--throttle", "5", "--hidden", "16", "--quiet")
# A job for each fault, all at once. A disagreement before the first scrape would be no increase.
JOBS = {
    "lost": ("--crash", "1:60", "--deadline", "2"),
    "stopped": ("--deadline", "600"),
    "slow": ("--slow", "1:40"),
    "apart": ("--windows", "equal", "--boundary", "count", "--drop", "1:300"),
}


class Live(unittest.TestCase):
    binaries: processes.Binaries
    folder: pathlib.Path
    daemon: processes.Daemon
    prometheus: tools.Prometheus

    @classmethod
    def setUpClass(cls) -> None:
        cls.binaries = processes.Binaries(tools.build_folder(), "digits")
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="gradgate-deploy-")))
        flags = ("--store=etcd://127.0.0.1:1", "--grpc_listen=127.0.0.1:0", "--advertise=127.0.0.1:1")
        cls.daemon = cls.enterClassContext(processes.Daemon(cls.binaries, cls.folder / "run", *flags))
        cls.prometheus = tools.Prometheus(cls.folder, cls.daemon.metrics_url.split("/")[2])
        cls.addClassCleanup(cls.prometheus.close)
        for job, options in JOBS.items():
            common = ("--job", job, "--daemon-dir", str(cls.folder / "run"), *ENDLESS)
            trainer = cls.enterClassContext(processes.trainer(cls.binaries, *common, *options, env={"GRADGATE": "enforce"}))
            cls.addClassCleanup(trainer.finish)
            cls.addClassCleanup(trainer.signal, signal.SIGTERM)
        # What has never been scraped does not increase.
        processes.wait_for("a scrape", lambda: cls.prometheus.query("gradgate_rejections_total"))

    def wait_alert(self, alert: str, deadline_s: float = 40, **labels: str) -> None:
        """Until it is pending or firing, with these labels."""
        selector = ", ".join(f'{name}="{value}"' for name, value in {"alertname": alert, **labels}.items())
        processes.wait_for(f"ALERTS{{{selector}}}", lambda: self.prometheus.query(f"ALERTS{{{selector}}}"), deadline_s)

    def wait_resolved(self, alert: str) -> None:
        processes.wait_for(f"no {alert}", lambda: not self.prometheus.query(f'ALERTS{{alertname="{alert}"}}'), 30)

    def status(self, job: str, windows: int) -> Any:
        """Once it has closed so many windows."""

        def reached() -> Any:
            status = self.daemon.status(job)
            return status if status and int(status["job"]["window_count"]) >= windows else None

        return processes.wait_for(f"{windows} windows of {job}", reached)

    def test_rank_that_is_lost(self) -> None:
        self.wait_alert("GradgateRankLost", job_name="lost", rank="1")

    def test_rank_that_is_waited_for(self) -> None:
        self.wait_alert("GradgateStraggler")

    def test_ranks_that_disagree(self) -> None:
        self.wait_alert("GradgateRanksDisagreed", job_name="apart")

    def test_rank_that_is_stopped(self) -> None:
        pid = int(self.status("stopped", windows=10)["ranks"][1]["process_id"])
        os.kill(pid, signal.SIGSTOP)
        try:
            self.wait_alert("GradgateHang", kind="stopped")
        finally:
            os.kill(pid, signal.SIGCONT)
        self.wait_resolved("GradgateHang")

    def test_client_that_is_turned_away(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(str(self.folder / "run" / "shim.sock"))
            client.send(b"x")
            self.wait_alert("GradgateTrainersRejected", reason="frame_short")

    def test_store_that_does_not_answer(self) -> None:
        self.wait_alert("GradgateStoreUnreachable")

    def test_daemon_that_stands(self) -> None:
        """Prometheus gives it a second."""
        self.daemon.process.signal(signal.SIGSTOP)
        try:
            self.wait_alert("GradgateDaemonDown", job="gradgate")
        finally:
            self.daemon.process.signal(signal.SIGCONT)
        self.wait_resolved("GradgateDaemonDown")


if __name__ == "__main__":
    unittest.main(verbosity=2)
