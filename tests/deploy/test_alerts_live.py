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

    def setUp(self) -> None:
        self.job = self.id().rsplit(".", 1)[-1]

    def wait_alert(self, alert: str, deadline_s: float = 40, **labels: str) -> None:
        """Until it is pending or firing, with these labels."""
        selector = ", ".join(f'{name}="{value}"' for name, value in {"alertname": alert, **labels}.items())
        processes.wait_for(f"ALERTS{{{selector}}}", lambda: self.prometheus.query(f"ALERTS{{{selector}}}"), deadline_s)

    def train(self, *options: str) -> processes.Process:
        common = ("--job", self.job, "--daemon-dir", str(self.folder / "run"), *ENDLESS)
        process = self.enterContext(processes.trainer(self.binaries, *common, *options, env={"GRADGATE": "enforce"}))
        self.addCleanup(process.finish)
        self.addCleanup(process.signal, signal.SIGTERM)
        return process

    def wait_windows(self, count: int) -> Any:
        """The job's status once it is known to Prometheus and has closed so many windows."""
        processes.wait_for("Prometheus has the job", lambda: self.prometheus.query(f'gradgate_rank_info{{job_name="{self.job}"}}'))

        def reached() -> Any:
            status = self.daemon.status(self.job)
            return status if status and int(status["job"]["window_count"]) >= count else None

        return processes.wait_for(f"{count} windows", reached)

    def test_rank_that_is_lost(self) -> None:
        self.train("--crash", "1:100", "--deadline", "2")
        self.wait_alert("GradgateRankLost", job_name=self.job, rank="1")

    def test_rank_that_is_stopped(self) -> None:
        self.train("--deadline", "600")
        pid = int(self.wait_windows(20)["ranks"][1]["process_id"])
        os.kill(pid, signal.SIGSTOP)
        try:
            self.wait_alert("GradgateHang", kind="stopped")
        finally:
            os.kill(pid, signal.SIGCONT)
        processes.wait_for("no hang", lambda: not self.prometheus.query('ALERTS{alertname="GradgateHang"}'), 30)

    def test_rank_that_is_waited_for(self) -> None:
        self.train("--slow", "1:40")
        self.wait_alert("GradgateStraggler")

    def test_ranks_that_disagree(self) -> None:
        self.train("--windows", "equal", "--boundary", "count", "--drop", "1:100")
        self.wait_alert("GradgateRanksDisagreed", job_name=self.job)

    def test_client_that_is_turned_away(self) -> None:
        up = "gradgate_rejections_total"
        processes.wait_for("a scrape", lambda: self.prometheus.query(up))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(str(self.folder / "run" / "shim.sock"))
            client.send(b"x")
            self.wait_alert("GradgateTrainersRejected", reason="frame_short")

    def test_store_that_does_not_answer(self) -> None:
        self.wait_alert("GradgateStoreUnreachable")

    def test_daemon_that_is_stopped(self) -> None:
        """Prometheus gives it a second."""
        processes.wait_for("a scrape", lambda: self.prometheus.query('up{job="gradgate"} == 1'))
        self.daemon.process.signal(signal.SIGSTOP)
        try:
            self.wait_alert("GradgateDaemonDown", job="gradgate")
        finally:
            self.daemon.process.signal(signal.SIGCONT)
        processes.wait_for("up again", lambda: not self.prometheus.query('ALERTS{alertname="GradgateDaemonDown"}'), 30)


if __name__ == "__main__":
    unittest.main(verbosity=2)
