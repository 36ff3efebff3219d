"""A policy changes under load on a job whose nodes are network namespaces, with a daemon each, TLS between them, and a real etcd in a
namespace of its own. Needs root, the ip command and etcd; skipped, and said so, without."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import unittest
from typing import Any

import case
from case import processes

ETCD = "10.214.250.1"
EPOCHS = 400


class PolicyNodes(case.SystemCase):
    """Node k has the address 10.214.k.1, etcd its own; a namespace between them routes."""

    def ip(self, *arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30)

    def space(self, name: str) -> str:
        space = f"gp{os.getpid()}{name}"
        try:
            self.ip("netns", "add", space)
        except subprocess.CalledProcessError as error:
            raise unittest.SkipTest(f"no network namespaces here: {error.stderr.strip()}") from None
        self.addCleanup(self.ip, "netns", "del", space)
        self.ip("-n", space, "link", "set", "lo", "up")
        return space

    def join(self, name: str, address: str) -> str:
        """A namespace with this address, from which all others are reached."""
        space, here, there = self.space(name), f"e{name}", f"r{name}"
        self.ip("link", "add", here, "netns", space, "type", "veth", "peer", "name", there, "netns", self.router)
        for where, device, last in ((self.router, there, "254"), (space, here, "1")):
            self.ip("-n", where, "addr", "add", f"{address.rpartition('.')[0]}.{last}/24", "dev", device)
            self.ip("-n", where, "link", "set", device, "up")
        self.ip("-n", space, "route", "add", "default", "via", f"{address.rpartition('.')[0]}.254")
        return space

    def setUp(self) -> None:
        super().setUp()
        missing = [tool for tool in ("ip", "etcd") if not shutil.which(tool)]
        if os.geteuid() != 0 or missing:
            why = f"{', '.join(missing)} missing" if missing else "not root"
            raise unittest.SkipTest(f"needs root, ip and etcd ({why}): policies over several nodes are not tested")
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.router = self.space("r")
        forward = ["ip", "netns", "exec", self.router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]
        subprocess.run(forward, check=True, capture_output=True, timeout=30)
        self.store = self.join("etcd", ETCD)
        self.etcd = self.start_etcd()

    def start_etcd(self) -> processes.Process:
        url, peer = f"http://{ETCD}:2379", f"http://{ETCD}:2380"
        command = ["ip", "netns", "exec", self.store, "etcd", "--name=test", f"--data-dir={self.folder / 'etcd'}", "--logger=zap"]
        command += [f"--log-outputs={self.folder / 'etcd.log'}", f"--listen-client-urls={url}", f"--advertise-client-urls={url}"]
        command += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=test={peer}"]
        return self.stack.enter_context(processes.Process(command))

    def start(self, nodes: int, per_node: int, epochs: int = EPOCHS) -> None:
        certs = self.folder / "certs"
        names = [f"n{k}" for k in range(nodes)]
        hosts = [argument for k, name in enumerate(names) for argument in ("--node", f"{name}=10.214.{k}.1")]
        subprocess.run([self.binaries.path("gradgatectl"), "certs", str(certs), *hosts], check=True, capture_output=True, timeout=60)
        self.certs = certs
        self.spaces = [self.join(name, f"10.214.{k}.1") for k, name in enumerate(names)]
        self.daemons = [self.start_daemon(k) for k in range(nodes)]
        for daemon in self.daemons:
            self.wait_for_nodes(daemon, nodes)
        world = nodes * per_node
        common = ("--world-size", str(world), "--rendezvous", "tcp://10.214.0.1:29400", "--job", self.job, "--epochs", str(epochs))
        self.options = ("--epochs", str(epochs), *case.EXACT)
        self.ranks = []
        for rank in range(world):
            node = rank // per_node
            report = self.folder / f"rank-{rank}.json"
            own = ("--rank", str(rank), "--daemon-dir", self.daemons[node].directory, "--report", str(report), "--deadline", "60")
            command = ["ip", "netns", "exec", self.spaces[node], self.binaries.path("digits"), *own, *common, *case.EXACT]
            self.ranks.append(self.stack.enter_context(processes.Process(command, env={"GLOO_SOCKET_IFNAME": f"en{node}"})))
        self.world = world
        processes.wait_for("all ranks train", lambda: self.windows(0) > 2 or None, 60)

    def start_daemon(self, node: int) -> processes.Daemon:
        folder, name = self.folder / f"n{node}", f"n{node}"
        folder.mkdir(exist_ok=True)
        files = {"cert": f"{name}.pem", "key": f"{name}-key.pem", "client_ca": "ca.pem"}
        tls = [f"--tls_{kind}={self.certs / file}" for kind, file in files.items()]
        flags = (f"--store=etcd://{ETCD}:2379", f"--node_name={name}", f"--grpc_listen=10.214.{node}.1:9766", *tls)
        enter = ("ip", "netns", "exec", self.spaces[node])
        return self.stack.enter_context(processes.Daemon(self.binaries, folder, *flags, enter=enter))

    def wait_for_nodes(self, daemon: processes.Daemon, nodes: int) -> None:
        processes.wait_for("all nodes answer", lambda: len(self.answered(daemon)) == nodes or None, 60)

    def answered(self, daemon: processes.Daemon) -> list[str]:
        return [node["answer"]["node_name"] for node in daemon.ctl("nodes")["nodes"] if node["answer"]["answered"]]

    def windows(self, node: int) -> int:
        status = self.daemons[node].status(self.job)
        return int(status["job"]["window_count"]) if status and len(status["ranks"]) == self.world else 0

    def set(self, node: int, *changes: str, wait: float = 60) -> tuple[int, list[Any], str]:
        """Exit code, what it told, its error."""
        command = [self.binaries.path("gradgatectl"), "--dir", self.daemons[node].directory, "--json", "policy", "set", self.job, *changes]
        done = subprocess.run([*command, "--wait", str(wait)], capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, [json.loads(line)["status"] for line in done.stdout.splitlines()], done.stderr

    def set_if_it_can_be(self, change: str) -> tuple[int, list[Any], str] | None:
        done = self.set(0, change)
        return done if done[0] == 0 else None

    def get(self, node: int) -> Any:
        return self.daemons[node].ctl("policy", "get", self.job)["status"]

    def finish(self) -> str:
        """The parameter hash that all ranks share, and no window that two ranks had under different policies."""
        for rank in self.ranks:
            self.assertEqual(rank.finish(180), 0, rank.output)
        reports = [json.loads((self.folder / f"rank-{rank}.json").read_text()) for rank in range(self.world)]
        hashes = {rank["parameter_hash"] for report in reports for rank in report["ranks"]}
        self.assertEqual(len(hashes), 1)
        for window in self.daemons[0].ctl("windows", self.job)["windows"]:
            if len(window["ranks"]) == self.world:
                self.assertEqual(len({rank["policy_version"] for rank in window["ranks"]}), 1, window)
        return str(hashes.pop())

    def unchanged(self) -> str:
        """The hash of a run that no policy touched."""
        return self.one_hash(self.train("--ranks", str(self.world), *self.options, *case.NO_DAEMON))

    def changed_under_load(self, nodes: int, per_node: int) -> None:
        self.start(nodes, per_node)
        changes = (("mode=every_micro_step", 4), ("mode=window", 1), ("enforcement=audit", 4), ("enforcement=given", 1))
        for node, (change, reductions) in enumerate(changes):
            before = self.windows(0)
            code, told, error = self.set(node % nodes, change)
            self.assertEqual(code, 0, error)
            status = told[-1]
            self.assertEqual(status["state"], "POLICY_STATE_ADOPTED")
            self.assertEqual(len({rank["adopted_window_index"] for rank in status["ranks"]}), 1)
            self.assertEqual([rank["rank"] for rank in status["ranks"]], list(range(self.world)))
            first = int(status["adopted_window_index"])
            self.assertGreater(first, before)
            seen = self.wait_for_window(first)
            self.assertEqual({rank["reduction_issued_count"] for rank in seen["ranks"]}, {reductions})
        self.assertEqual(self.finish(), self.unchanged())

    def wait_for_window(self, first: int) -> Any:
        return processes.wait_for("a full window under it", lambda: self.full_window(first))

    def full_window(self, first: int) -> Any:
        found = [w for w in self.daemons[0].ctl("windows", self.job, "--last", "40")["windows"] if int(w["window_index"]) >= first]
        return next((w for w in found if len(w["ranks"]) == self.world and {r["micro_step_count"] for r in w["ranks"]} == {4}), None)

    def test_two_nodes(self) -> None:
        self.changed_under_load(2, 2)

    def test_four_nodes(self) -> None:
        self.changed_under_load(4, 1)

    def test_what_fails_in_the_middle(self) -> None:
        """etcd killed, a daemon stopped, and one killed between staging and adoption."""
        self.start(2, 1, epochs=3 * EPOCHS)
        self.etcd.signal(signal.SIGKILL)
        self.etcd.popen.wait()
        code, _, error = self.set(0, "mode=every_micro_step", wait=0)
        self.assertEqual(code, 1, error)
        self.assertIn("etcd", error)
        self.assertEqual(self.get(1)["proposed"]["version"], "0")
        before = self.windows(0)
        self.etcd = self.start_etcd()
        code, told, error = processes.wait_for("the store is back", lambda: self.set_if_it_can_be("mode=every_micro_step"), 60)
        self.assertEqual((code, told[-1]["state"]), (0, "POLICY_STATE_ADOPTED"), error)
        self.assertGreater(self.windows(0), before, "training went on")

        self.daemons[1].process.signal(signal.SIGSTOP)
        code, told, error = self.set(0, "mode=window", wait=4)
        self.assertEqual(code, 1, error)
        self.assertIn("not adopted within", error)
        self.assertEqual(told[-1]["state"], "POLICY_STATE_PROPOSED")
        self.assertIn("n1", told[-1]["detail"])
        status = self.get(0)
        here = next(rank for rank in status["ranks"] if rank["rank"] == 0)
        self.assertEqual(here["staged_version"], status["proposed"]["version"])
        self.assertNotEqual(here["adopted_version"], status["proposed"]["version"], "one node alone adopts nothing")
        self.daemons[1].process.signal(signal.SIGCONT)
        processes.wait_for("adopted once both have it", lambda: self.get(0)["state"] == "POLICY_STATE_ADOPTED" or None, 60)

        self.ranks[1].signal(signal.SIGSTOP)
        code, told, error = self.set(0, "mode=every_micro_step", wait=2)
        self.assertEqual(code, 1, error)
        self.daemons[0].kill()
        self.ranks[1].signal(signal.SIGCONT)
        processes.wait_for("adopted without the daemon", lambda: self.adopted_at(1, int(told[-1]["proposed"]["version"])), 60)
        self.daemons[0] = self.start_daemon(0)
        processes.wait_for("told by the new daemon", lambda: self.get(0)["state"] == "POLICY_STATE_ADOPTED" or None, 60)
        self.assertEqual(self.finish(), self.unchanged())

    def adopted_at(self, node: int, version: int) -> bool | None:
        ranks = self.daemons[node].ctl("policy", "get", self.job, "--local")["status"]["ranks"]
        return {int(rank["adopted_version"]) for rank in ranks} == {version} or None


if __name__ == "__main__":
    case.main()
