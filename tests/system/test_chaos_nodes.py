"""Whatever befalls the daemons of three nodes, their store, the links between them and other jobs: training ends with the same bytes,
and all daemons tell its counts.

GRADGATE_CHAOS_SECONDS: how long it lasts, at least (60). GRADGATE_TEST_SEED: repeats the faults of a run, as it printed.
"""

from __future__ import annotations

import collections
import os
import pathlib
import random
import re
import signal
import time
from collections.abc import Callable, Iterator

import case
import node_spaces
from case import processes, sources

SECONDS = float(os.environ.get("GRADGATE_CHAOS_SECONDS") or 60)
NODES = 3
EPOCHS = 160
WINDOWS_PER_EPOCH = 3  # 31 micro-batches, windows of four, three ranks
LAST = EPOCHS * WINDOWS_PER_EPOCH - 1
# Rank 0 stops at these, one after the other, until the daemons have all ranks: one that was turned away comes again a minute later.
CALM = range(LAST - 90, LAST)
OPTIONS = ("--throttle", "10", "--pause-at-window", ",".join(map(str, (*CALM, LAST))))
DEADLINE_S = 120
RESIDENT_BYTES = 64 << 20
GRPC_DESCRIPTORS = 8  # connections between daemons and to etcd that come and go
SIDE = ("--ranks", "2", "--epochs", "1000000", "--deadline", "5", *case.EXACT)
PAGE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw-s .*gradgate-stats", re.MULTILINE)


class ChaosOnNodes(node_spaces.NodeSpaces):
    def setUp(self) -> None:
        super().setUp()
        seed = int(os.environ.get("GRADGATE_TEST_SEED") or int.from_bytes(os.urandom(4), "little"))
        print(f"GRADGATE_TEST_SEED={seed}", flush=True)
        self.random = random.Random(seed)
        self.counts: collections.Counter[str] = collections.Counter()
        self.deck: list[Callable[[], None]] = []

    def test_in_all_weathers(self) -> None:
        self.start_daemons(NODES)
        name, expected, jobs, end = self.job, "", 0, time.monotonic() + SECONDS
        while time.monotonic() < end or not jobs:
            self.job = f"{name}-{jobs}"
            self.start_ranks(1, *OPTIONS, epochs=EPOCHS, deadline_s=DEADLINE_S)
            processes.wait_for("all ranks train", lambda: self.windows(0) > 2 or None, 60)
            open_before = [self.descriptors(node) for node in range(NODES)]
            self.faults_until(f"paused at window {CALM.start}")
            self.calm()
            self.ranks[0].say()
            result = self.finish()
            expected = expected or self.undisturbed()
            self.assertEqual(result, expected)
            self.assert_all_tell()
            for node in range(NODES):
                self.assertLessEqual(self.descriptors(node), open_before[node] + GRPC_DESCRIPTORS)
                self.assertLess(self.resident_bytes(node), RESIDENT_BYTES)
            jobs += 1
        print(f"{jobs} jobs of {LAST + 1} windows: {dict(self.counts)}", flush=True)

    def undisturbed(self) -> str:
        options = [option for option in self.options if option not in OPTIONS]
        return self.one_hash(self.train("--ranks", str(self.world), *options, *case.NO_DAEMON))

    # --- what must hold ---------------------------------------------------------------------------------------------------

    def faults_until(self, line: str) -> None:
        """One after the other, until rank 0 says so."""
        while True:
            if not self.deck:
                self.deck = [
                    *(self.killed, self.terminated, self.stopped, self.stopped_and_killed, self.etcd_killed, self.etcd_stopped),
                    *(self.cut_off_from_etcd, self.node_cut_off, self.slow_link, self.rank_stopped),
                    *(self.other_job_loses_a_rank, self.other_job_has_pages_corrupted),
                ]
                self.random.shuffle(self.deck)
            fault = self.deck.pop()
            self.counts[fault.__name__] += 1
            fault()
            try:
                self.ranks[0].wait_line(line, self.random.uniform(0.2, 1.5))
            except TimeoutError:
                continue
            return

    def calm(self) -> None:
        """Leaves rank 0 at the last window, with every daemon there and every rank connected to its own."""
        for daemon in self.daemons:
            self.wait_for_nodes(daemon, NODES)
        for window in CALM:
            try:
                processes.wait_for("all ranks are connected", self.connected, 1.0)
            except TimeoutError:
                self.ranks[0].say()
                self.ranks[0].wait_line(f"paused at window {window + 1}")
                continue
            for pause in range(window + 1, LAST + 1):
                self.ranks[0].say()
                self.ranks[0].wait_line(f"paused at window {pause}")
            return
        self.fail(f"not all ranks are connected, {len(CALM)} s after the last fault:\n{self.daemons[0].status(self.job)}")

    def connected(self) -> bool:
        status = self.daemons[0].status(self.job)
        return bool(status) and int(status["job"]["running_rank_count"]) == NODES

    def assert_all_tell(self) -> None:
        """Loop, library and each daemon have the same counts."""
        report = {"ranks": [one for rank in range(NODES) for one in case.read_report(self.report(rank))["ranks"]]}
        loop, library = sources.from_loop(report), sources.from_library(report)
        for node, daemon in enumerate(self.daemons):
            status = daemon.wait_state(self.job, "FINISHED")
            self.assert_counts_agree(loop=loop, library=library, **{f"daemon of node {node}": sources.from_ctl(status)})

    def pid(self, node: int) -> int:
        return self.daemons[node].process.popen.pid

    def descriptors(self, node: int) -> int:
        return len(os.listdir(f"/proc/{self.pid(node)}/fd"))

    def resident_bytes(self, node: int) -> int:
        return int(pathlib.Path(f"/proc/{self.pid(node)}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    # --- faults -----------------------------------------------------------------------------------------------------------

    def node(self) -> int:
        return self.random.randrange(NODES)

    def rest(self, least_s: float, most_s: float) -> None:
        """How long a fault lasts."""
        time.sleep(self.random.uniform(least_s, most_s))

    def replace(self, node: int) -> None:
        self.rest(0, 2)
        self.daemons[node] = self.start_node(node)

    def killed(self) -> None:
        node = self.node()
        self.daemons[node].kill()
        self.replace(node)

    def terminated(self) -> None:
        node = self.node()
        process = self.daemons[node].process
        process.signal(signal.SIGTERM)
        self.assertEqual(process.popen.wait(timeout=30), 0, process.output)
        self.replace(node)

    def stopped(self) -> None:
        process = self.daemons[self.node()].process
        process.signal(signal.SIGSTOP)
        self.rest(0.2, 3)
        process.signal(signal.SIGCONT)

    def stopped_and_killed(self) -> None:
        node = self.node()
        self.daemons[node].process.signal(signal.SIGSTOP)
        self.rest(0, 2)
        self.daemons[node].kill()
        self.replace(node)

    def etcd_killed(self) -> None:
        self.etcd.signal(signal.SIGKILL)
        self.etcd.popen.wait()
        self.rest(0, 3)
        self.etcd = self.start_etcd()

    def etcd_stopped(self) -> None:
        self.etcd.signal(signal.SIGSTOP)
        self.rest(0.2, 4)
        self.etcd.signal(signal.SIGCONT)

    def cut_off_from_etcd(self) -> None:
        """And from the other daemons; the trainers reach each other."""
        node = self.node()
        with self.cut(node, *node_spaces.CONTROL[0]), self.cut(node, *node_spaces.CONTROL[1]):
            self.rest(0.5, 4)

    def node_cut_off(self) -> None:
        with self.cut(self.node()):
            self.rest(0.2, 2)

    def slow_link(self) -> None:
        with self.slow(self.node()):
            self.rest(0.5, 3)

    def rank_stopped(self) -> None:
        rank = self.random.choice(self.ranks)
        rank.signal(signal.SIGSTOP)
        self.rest(0.2, 2)
        rank.signal(signal.SIGCONT)

    def other_job(self) -> Iterator[int]:
        """Trains on one node while the process ids of its ranks are given; afterwards it has ended, one way or the other."""
        node, job = self.node(), f"other-{sum(self.counts.values())}"
        options = (*SIDE, "--job", job, "--daemon-dir", self.daemons[node].directory)
        with processes.Process(["ip", "netns", "exec", self.spaces[node], self.binaries.path("digits"), *options]) as process:

            def trains() -> bool:
                status = self.daemons[node].ctl("status", job, "--local")
                return bool(status) and int(status["totals"]["step_count"]) > 2

            processes.wait_for(f"{job} trains", trains)
            pid = process.popen.pid
            yield from map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
            self.assertNotEqual(process.finish(), 0, "a job that lost its ranks")

    def other_job_loses_a_rank(self) -> None:
        """The other one ends by itself."""
        for number, pid in enumerate(self.other_job()):
            if number == 0:
                os.kill(pid, signal.SIGKILL)

    def other_job_has_pages_corrupted(self) -> None:
        """While it writes them; what becomes of it is its own affair."""
        for pid in self.other_job():
            with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
                for begin, end in PAGE.findall(pathlib.Path(f"/proc/{pid}/maps").read_text()):
                    for _ in range(300):
                        memory.seek(int(begin, 16) + self.random.randrange(int(end, 16) - int(begin, 16) - 64))
                        memory.write(self.random.randbytes(self.random.randrange(1, 64)))
                        time.sleep(0.001)
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    case.main()
