"""Ranks, daemons, links and whole nodes that fail in a job over four nodes, which are network namespaces: who tells what, on which
node, how soon; and that what heals leaves no trace in the parameters."""

from __future__ import annotations

import contextlib
import json
import signal
import statistics
import subprocess
import time
from typing import Any

import case
import node_spaces
from case import processes

NODES = 4
FINE, TROUBLE = 0, 5
# 32 micro-batches an epoch: two full windows for each of four ranks.
FULL_WINDOWS = ("--batch", "45")
HANG_S = 15.0
# So long a sleep in each micro-step that windows take about as long on a busy machine.
SLEEPY = ("--throttle", "25")
ENDLESS = 100_000
# Longer than a hang takes to be told.
CUT_DEADLINE_S = 30
HANDSHAKE_S = 60
MARGIN_S = 15
PREFIX = "VERDICT_KIND_"
# What a busy machine does by itself, and the doctor rightly tells.
BUSY = ("STRAGGLER", "SLOW_COMMUNICATION")


class NodeFaults(node_spaces.NodeSpaces):
    ignored: tuple[str, ...] = ()  # kinds of verdicts

    def doctor(self, node: int) -> tuple[int, Any]:
        """Exit code and answer of that node's daemon."""
        command = [self.binaries.path("gradgatectl"), "--dir", self.daemons[node].directory, "--json", "doctor", self.job]
        done = subprocess.run(command, capture_output=True, text=True, timeout=processes.DEADLINE_S, check=False)
        self.assertIn(done.returncode, (FINE, TROUBLE), done.stderr)
        return done.returncode, json.loads(done.stdout)

    def diagnose(self, node: int, *expected: str, telling: str = "", deadline_s: float = 30) -> list[Any]:
        """That node's verdicts once they are just these, the worst first, with `telling` in some line of the first one."""
        last = ""

        def reached() -> Any:
            nonlocal last
            code, answer = self.doctor(node)
            bad = any(verdict["severity"] in ("SEVERITY_WARNING", "SEVERITY_CRITICAL") for verdict in answer["verdicts"])
            self.assertEqual(code, TROUBLE if bad else FINE)
            verdicts = [verdict for verdict in answer["verdicts"] if verdict["kind"].removeprefix(PREFIX) not in self.ignored]
            kinds = tuple(verdict["kind"].removeprefix(PREFIX) for verdict in verdicts)
            last = "\n".join("\n  ".join([v["kind"], v["headline"], *v["evidence"]]) for v in answer["verdicts"])
            return verdicts if kinds == expected and telling in last else None

        try:
            verdicts: list[Any] = processes.wait_for(f"verdicts on node {node}", reached, deadline_s)
        except TimeoutError:
            self.fail(f"node {node}: not {expected} with {telling!r} but\n{last}")
        return verdicts

    def everywhere(self, *expected: str, telling: str = "", deadline_s: float = 30) -> list[Any]:
        """The verdicts of all nodes; the time until the last of them is printed."""
        begin = time.monotonic()
        verdicts = [self.diagnose(node, *expected, telling=telling, deadline_s=deadline_s)[0] for node in range(NODES)]
        print(f"{expected} on {NODES} nodes after {time.monotonic() - begin:.1f} s: {verdicts[0]['headline']}", flush=True)
        return verdicts

    def told_by_all(self) -> None:
        """All nodes have the same verdicts; how long an answer takes is printed."""
        self.everywhere("HEALTHY")
        took = []
        for call in range(5 * NODES):
            begin = time.monotonic()
            self.doctor(call % NODES)
            took.append(time.monotonic() - begin)
        print(f"doctor on {NODES} nodes: median {statistics.median(took):.3f} s, worst {max(took):.3f} s of {len(took)}", flush=True)
        self.assertLess(statistics.median(took), 1)

    def test_faults_that_heal(self) -> None:
        self.ignored = BUSY
        self.start(NODES, 1, *FULL_WINDOWS, *SLEEPY, epochs=160)
        self.told_by_all()
        self.stopped_rank()
        self.daemon_gone()
        self.daemon_cut_off()
        self.assertEqual(self.finish(), self.unchanged())

    def stopped_rank(self) -> None:
        begin = time.monotonic()
        self.ranks[2].signal(signal.SIGSTOP)
        for verdict in self.everywhere("STOPPED", telling="ranks 0, 1, 3 wait in a collective"):
            self.assertEqual(verdict["ranks"], [2])
            self.assertGreater(int(verdict["first_window_index"]), 0)
        self.assertLess(time.monotonic() - begin, HANG_S)
        self.ranks[2].signal(signal.SIGCONT)
        self.everywhere("HEALTHY")

    def daemon_gone(self) -> None:
        self.daemons[3].kill()
        for node in range(3):
            verdicts = self.diagnose(node, "RANKS_UNSEEN", "NODE_SILENT")
            self.assertEqual(verdicts[0]["ranks"], [3])
            self.assertIn("node n3", verdicts[1]["headline"])
        self.daemons[3] = self.start_node(3)
        self.everywhere("HEALTHY")

    def daemon_cut_off(self) -> None:
        """The trainers reach each other; node 1's daemon reaches nobody."""
        with contextlib.ExitStack() as stack:
            for traffic in node_spaces.CONTROL:
                stack.enter_context(self.cut(1, *traffic))
            before = self.windows_of_rank(0)
            code, told, error = self.set(0, "mode=every_micro_step", wait=3)
            self.assertEqual(code, 1, error)
            self.assertEqual(told[-1]["state"], "POLICY_STATE_PROPOSED")
            self.assertIn("n1", told[-1]["detail"])
            version = told[-1]["proposed"]["version"]
            self.assertEqual([rank["rank"] for rank in told[-1]["ranks"]], [0, 2, 3])
            for rank in told[-1]["ranks"]:
                self.assertNotEqual(rank["adopted_version"], version, "without one node none adopts it")
            begin = time.monotonic()
            code, _, error = self.set(1, "mode=window", wait=0)
            self.assertEqual(code, 1, error)
            self.assertIn("etcd", error)
            print(f"refused on the node cut off after {time.monotonic() - begin:.1f} s: {error.strip()}", flush=True)
            self.assertGreater(self.windows_of_rank(0), before, "training goes on")
        begin = time.monotonic()
        processes.wait_for("adopted once healed", lambda: self.get(0)["state"] == "POLICY_STATE_ADOPTED" or None, 60)
        print(f"adopted {time.monotonic() - begin:.1f} s after the daemon was reached again", flush=True)
        self.assertEqual({rank["adopted_version"] for rank in self.get(1)["ranks"]}, {version})
        self.everywhere("HEALTHY")

    def test_node_cut_off(self) -> None:
        """Its ranks as well: all wait, are told of, and end at their deadline."""
        self.ignored = BUSY
        self.start(NODES, 1, *FULL_WINDOWS, *SLEEPY, epochs=ENDLESS, deadline_s=CUT_DEADLINE_S)
        with self.cut(2):
            begin = time.monotonic()
            for node in (0, 1, 3):
                self.assertIn("node n2", self.diagnose(node, "RANKS_UNSEEN", "NODE_SILENT")[1]["headline"])
            for node in (0, 1, 3):
                hung, unseen = self.diagnose(node, "HUNG", "RANKS_UNSEEN", telling="ranks 0, 1, 3 have waited")
                self.assertEqual((hung["ranks"], unseen["ranks"]), ([2], [2]))
                self.assertRegex(hung["headline"], r"window \d+: .* for rank 2, which is not seen")
                self.assertIn("arrived: ranks 0, 1, 3", hung["evidence"][0])
            print(f"told {time.monotonic() - begin:.1f} s after the cut: {hung['headline']}", flush=True)
            silent = self.diagnose(2, "HUNG", "RANKS_UNSEEN", "NODE_SILENT", "NODE_SILENT", "NODE_SILENT", "STORE_UNREACHABLE")
            self.assertEqual(silent[1]["ranks"], [0, 1, 3])
            for rank, process in enumerate(self.ranks):
                self.assertEqual(process.finish(CUT_DEADLINE_S + MARGIN_S), 1, process.output)
                missing = r"\[0, 1, 3\]" if rank == 2 else r"\[2\]"
                self.assertRegex(process.output, rf"(DEADLINE_EXCEEDED|UNAVAILABLE): window \d+: ranks {missing} did not come")
            print(f"all ended {time.monotonic() - begin:.1f} s after it: {self.ranks[0].output}", flush=True)
        self.everywhere("RANK_LOST", deadline_s=60)
        self.job += "-again"
        self.start_ranks(1, *FULL_WINDOWS, epochs=3)
        self.assertEqual(self.finish(), self.unchanged())

    def test_slow_rank(self) -> None:
        self.start(NODES, 1, *FULL_WINDOWS, *SLEEPY, "--slow", "2:15", epochs=ENDLESS)
        for verdict in self.everywhere("STRAGGLER"):
            self.assertEqual((verdict["ranks"], verdict["cause"]), ([2], "DELAY_CAUSE_COMPUTE"))

    def test_slow_link(self) -> None:
        self.start(NODES, 1, *FULL_WINDOWS, *SLEEPY, "--hidden", "64", epochs=80)
        processes.wait_for("what is normal is known", lambda: self.windows(0) > 20 or None)
        with self.slow(1):
            for verdict in self.everywhere("SLOW_COMMUNICATION"):
                self.assertEqual(verdict["cause"], "DELAY_CAUSE_COMMUNICATION")
        self.everywhere("HEALTHY")
        self.assertEqual(self.finish(), self.unchanged())

    def test_other_configuration(self) -> None:
        """Refused at the handshake, long before the deadline."""
        self.start_daemons(NODES)
        cases = ((("--accumulate", "3"), "accumulate=3"), (("--bucket-bytes", "64"), "bucket"), (("--mode", "every_micro_step"), "mode"))
        for own, what in cases:
            with self.subTest(what):
                begin = time.monotonic()
                self.start_ranks(1, of={2: own}, deadline_s=HANDSHAKE_S)
                for process in self.ranks:
                    self.assertEqual(process.finish(), 1, process.output)
                    self.assertRegex(process.output, rf"ABORTED: .*rank 2 has .*{what}")
                    self.assertNotRegex(process.output, "rank [13] has")
                took = time.monotonic() - begin
                self.assertLess(took, HANDSHAKE_S / 2)
                print(f"all refused after {took:.1f} s: {self.ranks[0].output}", flush=True)

    def windows_of_rank(self, rank: int) -> int:
        return int(self.daemons[rank].ctl("status", self.job, "--local")["totals"]["step_count"])


if __name__ == "__main__":
    case.main()
