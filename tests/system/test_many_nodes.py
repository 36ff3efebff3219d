"""Daemons that share an etcd answer for each other's nodes: here two of them on one machine, each with half of a job's ranks."""

from __future__ import annotations

import contextlib
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import time
import unittest
from typing import Any

import case
from case import processes

WORLD = 4


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def etcd(folder: pathlib.Path) -> Any:
    client, peer = free_port(), free_port()
    urls = {"client": f"http://127.0.0.1:{client}", "peer": f"http://127.0.0.1:{peer}"}
    command = ["etcd", "--name=test", f"--data-dir={folder / 'etcd'}", f"--log-outputs={folder / 'etcd.log'}", "--logger=zap"]
    command += [f"--listen-{kind}-urls={url}" for kind, url in urls.items()]
    command += [f"--advertise-client-urls={urls['client']}", f"--initial-advertise-peer-urls={urls['peer']}"]
    command += [f"--initial-cluster=test={urls['peer']}"]
    with processes.Process(command) as process:
        processes.wait_for("etcd accepts", lambda: accepts(client))
        yield f"etcd://127.0.0.1:{client}", process


class ManyNodes(case.SystemCase):
    def setUp(self) -> None:
        super().setUp()
        if not shutil.which("etcd"):
            raise unittest.SkipTest("etcd is not installed: ./dev setup gets it; daemons that share a store are not tested")
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.store, self.etcd = self.stack.enter_context(etcd(self.folder))
        self.daemons = {name: self.start(name) for name in "ab"}

    def start(self, name: str) -> processes.Daemon:
        (self.folder / name).mkdir(exist_ok=True)
        flags = (f"--store={self.store}", f"--node_name={name}", "--grpc_listen=127.0.0.1:0", "--advertise=127.0.0.1:0")
        return self.stack.enter_context(processes.Daemon(self.binaries, self.folder / name, *flags))

    def train_on_both(self, *options: str) -> None:
        with contextlib.ExitStack() as stack:
            ranks = []
            for rank in range(WORLD):
                own = ("--rank", str(rank), "--daemon-dir", str(self.folder / "ab"[rank // 2]))
                rendezvous = f"file://{self.folder / 'rendezvous'}"
                common = ("--world-size", str(WORLD), "--rendezvous", rendezvous, "--job", self.job, "--epochs", "6")
                ranks.append(stack.enter_context(processes.trainer(self.binaries, *own, *common, *case.EXACT, *options)))
            for process in ranks:
                self.assertEqual(process.finish(), 0, process.output)

    def wait_for_both(self, name: str) -> Any:
        """The nodes as the daemon of this name lists them, once both answer."""

        def both() -> Any:
            answer = self.daemons[name].ctl("nodes")
            names = [node["answer"]["node_name"] for node in answer["nodes"] if node["answer"]["answered"]]
            return answer if sorted(names) == ["a", "b"] else None

        return processes.wait_for("both nodes answer", both)

    def text(self, name: str, *arguments: str) -> str:
        command = [self.binaries.path("gradgatectl"), "--dir", str(self.folder / name), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    def test_any_daemon_answers_for_the_whole_job(self) -> None:
        for name in "ab":
            self.assertTrue(self.wait_for_both(name)["store_shared"])
        self.train_on_both()
        answers = [self.daemons[name].wait_state(self.job, "FINISHED") for name in "ab"]
        for answer in answers:
            self.assertEqual([rank["rank"] for rank in answer["ranks"]], [0, 1, 2, 3])
            self.assertEqual([rank["node_name"] for rank in answer["ranks"]], ["a", "a", "b", "b"])
            self.assertEqual(answer["totals"]["step_count"], str(sum(int(r["totals"]["step_count"]) for r in answer["ranks"])))
        self.assertEqual(answers[0]["totals"], answers[1]["totals"])
        windows = [self.daemons[name].ctl("windows", self.job)["windows"] for name in "ab"]
        self.assertEqual(windows[0], windows[1])
        self.assertTrue(windows[0])
        for window in windows[0]:
            self.assertEqual([rank["rank"] for rank in window["ranks"]], [0, 1, 2, 3])
            self.assertTrue(window["complete"])
        for name in "ab":
            told = [json.loads(line) for line in self.text(name, "watch", self.job, "--from", "0", "--json").splitlines()]
            self.assertEqual([message["window"] for message in told if message.get("window")], windows[0])
            self.assertEqual(told[-1]["ended_job"]["finished_rank_count"], WORLD)
            plan = self.daemons[name].ctl("plan", self.job)
            self.assertEqual(plan["job"]["finished_rank_count"], WORLD)
            self.assertFalse([note for note in plan["notes"] if "measured on" in note])
        local_plan = self.daemons["b"].ctl("plan", self.job, "--local")
        self.assertTrue([note for note in local_plan["notes"] if "measured on 2 of 4 ranks" in note], local_plan["notes"])
        local = self.daemons["a"].ctl("status", self.job, "--local")
        self.assertEqual([rank["rank"] for rank in local["ranks"]], [0, 1])
        nodes = self.wait_for_both("b")
        self.assertEqual([node["jobs"][0]["finished_rank_count"] for node in nodes["nodes"]], [2, 2])

    def test_a_daemon_that_hangs_or_is_gone_is_named(self) -> None:
        self.wait_for_both("a")
        self.train_on_both()
        self.daemons["a"].wait_state(self.job, "FINISHED")
        frozen = self.daemons["b"].process
        frozen.signal(signal.SIGSTOP)
        begin = time.monotonic()
        shown = self.text("a", "status", self.job)
        self.assertLess(time.monotonic() - begin, 4)
        self.assertRegex(shown, r"\n! node b at 127\.0\.0\.1:\d+ did not answer within 2s: its ranks are missing here\n")
        self.assertIn("ranks 2 of 4", shown)
        begin = time.monotonic()
        self.text("a", "jobs")
        self.assertLess(time.monotonic() - begin, 1.5, "a node that hangs does not slow every question")
        frozen.signal(signal.SIGCONT)
        processes.wait_for("b is there again", lambda: len(self.daemons["a"].status(self.job)["ranks"]) == WORLD)
        self.daemons["b"].kill()
        self.assertIn("! node b at 127.0.0.1:", self.text("a", "windows", self.job))
        # Its lease ends, and it is no longer asked.
        processes.wait_for("b is forgotten", lambda: len(self.daemons["a"].ctl("nodes")["nodes"]) == 1, 60)
        self.assertNotIn("! node b", self.text("a", "status", self.job))

    def test_without_etcd_the_known_nodes_are_asked_on(self) -> None:
        self.wait_for_both("a")
        self.train_on_both()
        self.etcd.signal(signal.SIGKILL)
        for name in "ab":
            self.assertEqual(len(self.daemons[name].wait_state(self.job, "FINISHED")["ranks"]), WORLD)


if __name__ == "__main__":
    case.main()
