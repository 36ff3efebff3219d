"""A policy changes under load on a job whose nodes are network namespaces."""

from __future__ import annotations

import signal
from typing import Any

import case
import node_spaces
from case import processes


class PolicyNodes(node_spaces.NodeSpaces):
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
        self.start(2, 1, epochs=3 * node_spaces.EPOCHS)
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
        self.daemons[0] = self.start_node(0)
        processes.wait_for("told by the new daemon", lambda: self.get(0)["state"] == "POLICY_STATE_ADOPTED" or None, 60)
        self.assertEqual(self.finish(), self.unchanged())

    def set_if_it_can_be(self, change: str) -> tuple[int, list[Any], str] | None:
        done = self.set(0, change)
        return done if done[0] == 0 else None

    def adopted_at(self, node: int, version: int) -> bool | None:
        ranks = self.daemons[node].ctl("policy", "get", self.job, "--local")["status"]["ranks"]
        return {int(rank["adopted_version"]) for rank in ranks} == {version} or None


if __name__ == "__main__":
    case.main()
