"""Nodes that are network namespaces, with a daemon each, TLS between them, and a real etcd in a namespace of its own; and a job of
real ranks on them. Needs root, the ip command and etcd; skipped, and said so, without."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import unittest
from collections.abc import Iterator, Mapping
from typing import Any

import case
from case import processes

# etcd and daemons; trainers talk by ports beyond these.
CONTROL = (("ipproto", "tcp", "dport", "2379-9766"), ("ipproto", "tcp", "sport", "2379-9766"))
ETCD = "10.214.250.1"
EPOCHS = 400
Options = tuple[str, ...]


def address(node: int) -> str:
    return f"10.214.{node}.1"


class NodeSpaces(case.SystemCase):
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
            raise unittest.SkipTest(f"needs root, ip and etcd ({why}): jobs over several nodes are not tested")
        self.router = self.space("r")
        forward = ["ip", "netns", "exec", self.router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]
        subprocess.run(forward, check=True, capture_output=True, timeout=30)
        self.store = self.join("etcd", ETCD)
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.etcd = self.start_etcd()

    def start_etcd(self) -> processes.Process:
        url, peer = f"http://{ETCD}:2379", f"http://{ETCD}:2380"
        command = ["ip", "netns", "exec", self.store, "etcd", "--name=test", f"--data-dir={self.folder / 'etcd'}", "--logger=zap"]
        command += [f"--log-outputs={self.folder / 'etcd.log'}", f"--listen-client-urls={url}", f"--advertise-client-urls={url}"]
        command += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=test={peer}"]
        return self.stack.enter_context(processes.Process(command))

    def start_daemons(self, nodes: int) -> None:
        self.certs = self.folder / "certs"
        names = [f"n{k}" for k in range(nodes)]
        hosts = [argument for k, name in enumerate(names) for argument in ("--node", f"{name}={address(k)}")]
        command = [self.binaries.path("gradgatectl"), "certs", str(self.certs), *hosts]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        self.spaces = [self.join(name, address(k)) for k, name in enumerate(names)]
        self.daemons = [self.start_node(k) for k in range(nodes)]
        for daemon in self.daemons:
            self.wait_for_nodes(daemon, nodes)

    def start_node(self, node: int) -> processes.Daemon:
        folder, name = self.folder / f"n{node}", f"n{node}"
        folder.mkdir(exist_ok=True)
        files = {"cert": f"{name}.pem", "key": f"{name}-key.pem", "client_ca": "ca.pem"}
        tls = [f"--tls_{kind}={self.certs / file}" for kind, file in files.items()]
        flags = (f"--store=etcd://{ETCD}:2379", f"--node_name={name}", f"--grpc_listen={address(node)}:9766", *tls)
        enter = ("ip", "netns", "exec", self.spaces[node])
        return self.stack.enter_context(processes.Daemon(self.binaries, folder, *flags, enter=enter))

    def wait_for_nodes(self, daemon: processes.Daemon, nodes: int) -> None:
        processes.wait_for("all nodes answer", lambda: len(self.answered(daemon)) == nodes or None, 60)

    def answered(self, daemon: processes.Daemon) -> list[str]:
        return [node["answer"]["node_name"] for node in daemon.ctl("nodes")["nodes"] if node["answer"]["answered"]]

    def start_ranks(
        self, per_node: int, *options: str, epochs: int = EPOCHS, deadline_s: float = 60, of: Mapping[int, Options] | None = None
    ) -> None:
        """Ranks of self.job, node by node; `of`: what some of them are told beside."""
        self.world = len(self.daemons) * per_node
        self.options = ("--epochs", str(epochs), *case.EXACT, *options)
        common = ("--world-size", str(self.world), "--rendezvous", f"tcp://{address(0)}:29400", "--job", self.job, *self.options)
        self.ranks = []
        for rank in range(self.world):
            node = rank // per_node
            own = ("--rank", str(rank), "--daemon-dir", self.daemons[node].directory, "--report", str(self.report(rank)))
            command = ["ip", "netns", "exec", self.spaces[node], self.binaries.path("digits"), *own, "--deadline", str(deadline_s)]
            command += [*common, *(of or {}).get(rank, ())]
            self.ranks.append(self.stack.enter_context(processes.Process(command, env={"GLOO_SOCKET_IFNAME": f"en{node}"})))

    def report(self, rank: int) -> Any:
        return self.folder / f"rank-{rank}.json"

    def start(self, nodes: int, per_node: int, *options: str, epochs: int = EPOCHS, deadline_s: float = 60) -> None:
        """Daemons, and ranks that train."""
        self.start_daemons(nodes)
        self.start_ranks(per_node, *options, epochs=epochs, deadline_s=deadline_s)
        processes.wait_for("all ranks train", lambda: self.windows(0) > 2 or None, 60)

    @contextlib.contextmanager
    def cut(self, node: int, *traffic: str) -> Iterator[None]:
        """What the node sends and what is sent to it is dropped without a word; `traffic`: this alone, as `ip rule` selects it."""
        rules = [(way, address(node), *traffic) for way in ("from", "to")]
        for rule in rules:
            self.ip("-n", self.router, "rule", "add", *rule, "blackhole")
        try:
            yield
        finally:
            for rule in rules:
                self.ip("-n", self.router, "rule", "del", *rule, "blackhole")

    @contextlib.contextmanager
    def slow(self, node: int) -> Iterator[None]:
        """Its link carries 4 Mbit/s, both ways."""
        ends = ((self.router, f"rn{node}"), (self.spaces[node], f"en{node}"))
        for space, device in ends:
            self.tc(space, "add", device, "tbf", "rate", "4mbit", "burst", "8kb", "latency", "1s")
        try:
            yield
        finally:
            for space, device in ends:
                self.tc(space, "del", device)

    def tc(self, space: str, what: str, device: str, *discipline: str) -> None:
        command = ["tc", "-n", space, "qdisc", what, "dev", device, "root", *discipline]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)

    def windows(self, node: int) -> int:
        status = self.daemons[node].status(self.job)
        return int(status["job"]["window_count"]) if status and len(status["ranks"]) == self.world else 0

    def set(self, node: int, *changes: str, wait: float = 60) -> tuple[int, list[Any], str]:
        """Exit code, what it told, its error."""
        command = [self.binaries.path("gradgatectl"), "--dir", self.daemons[node].directory, "--json", "policy", "set", self.job, *changes]
        done = subprocess.run([*command, "--wait", str(wait)], capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, [json.loads(line)["status"] for line in done.stdout.splitlines()], done.stderr

    def get(self, node: int) -> Any:
        return self.daemons[node].ctl("policy", "get", self.job)["status"]

    def finish(self) -> str:
        """The parameter hash that all ranks share, and no window that two ranks had under different policies."""
        for rank in self.ranks:
            self.assertEqual(rank.finish(400), 0, rank.output)
        hashes = {one["parameter_hash"] for rank in range(self.world) for one in case.read_report(self.report(rank))["ranks"]}
        self.assertEqual(len(hashes), 1)
        for window in self.daemons[0].ctl("windows", self.job)["windows"]:
            if len(window["ranks"]) == self.world:
                self.assertEqual(len({rank["policy_version"] for rank in window["ranks"]}), 1, window)
        return str(hashes.pop())

    def unchanged(self) -> str:
        """The hash of a run that nothing touched."""
        return self.one_hash(self.train("--ranks", str(self.world), *self.options, *case.NO_DAEMON))
