"""class Ledger on several ranks: ballots, late ranks, who is named, and what a daemon shows."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import tempfile
import unittest
from typing import Any

from gradgate import _abi
from gradgate.ledger import DeadlineExceeded, Disagreement, Ledger, Refused, Vote
from ranks import Job, issue, micro_step, until


class Ranks(unittest.TestCase):
    def test_variable_windows_are_told_apart_and_one_rank_is_late(self) -> None:
        job = Job(2, variable=True)

        def body(rank: int) -> None:
            ledger = job.create(rank)
            count = 4 - rank
            for i in range(count):
                micro_step(ledger, 2 if i == 3 else 0)
            verdict = job.vote(rank, ledger, Vote(contributes=rank == 0, headroom_bytes=100 + rank))
            self.assertEqual((verdict.min_micro_steps, verdict.max_micro_steps), (3, 4))
            self.assertEqual((verdict.unequal, verdict.differs), (True, False))
            self.assertEqual((verdict.any_contribute, verdict.all_contribute, verdict.min_headroom_bytes), (True, False, 100))
            if rank == 1:
                ledger.late_begin()
                issue(ledger, 2)
            window = ledger.window_close(stepped=True, min_micro_steps=3, max_micro_steps=4)
            self.assertEqual(window.late, rank)
            role = ledger.role_stats(_abi.GROUP_DP)
            self.assertEqual((role.intended, role.issued, role.suppressed, role.late), (1, 1, 3, rank))
            self.assertEqual(ledger.stats().windows_mismatched, 0)
            ledger.close()

        job.run(body)

    def test_ranks_that_differ_are_named(self) -> None:
        job = Job(3)

        def body(rank: int) -> None:
            ledger = job.create(rank)
            for _ in range(3 if rank == 1 else 4):
                micro_step(ledger)
            verdict = job.vote(rank, ledger, Vote(skipped=int(rank == 2), parity=5 if rank == 0 else 6))
            self.assertTrue(verdict.differs and verdict.unequal and verdict.parity_differs)
            self.assertEqual(
                job.describe(rank, ledger),
                "micro_steps: ranks [0, 2] have 4, ranks [1] have 3; skipped: ranks [2] have 1, ranks [0, 1] have 0; "
                "parity: ranks [1, 2] have 6, ranks [0] have 5",
            )
            ledger.close()

        job.run(body)

    def test_configurations_that_differ_are_refused_by_name(self) -> None:
        job = Job(2)

        def body(rank: int) -> None:
            with self.assertRaisesRegex(Disagreement, "rank 1 has accumulate=8 where rank 0 has 4, wrappers=fsdp2 where rank 0 has ddp"):
                job.create(rank, accumulate=8 if rank else 4, facts={"wrappers": "fsdp2" if rank else "ddp"})

        job.run(body)

    def test_a_rank_without_gradgate_is_named_by_the_deadline(self) -> None:
        job = Job(2, handshake_deadline_s=0.3)

        def body(rank: int) -> None:
            if rank == 0:
                with self.assertRaisesRegex(DeadlineExceeded, r"no gradgate on ranks \[1\] within 0.3 s"):
                    job.create(rank)

        job.run(body)

    def test_a_rank_that_fails_alone_is_named_with_its_reason(self) -> None:
        job = Job(2, deadline_s=8.0)

        def body(rank: int) -> None:
            ledger = job.create(rank)
            micro_step(ledger)
            if rank == 1:
                ledger.fail("layer.weight got no gradient")
                with self.assertRaises(Refused):
                    ledger.vote(Vote())
                return
            ledger.arrived()
            self.assertEqual(ledger.missing(), "ranks [1] did not come (rank 1: left in window 0: layer.weight got no gradient)")
            ledger.window_close(stepped=False, failed=True)

        job.run(body)

    def test_scopes_keep_several_ledgers_apart(self) -> None:
        job = Job(2)

        def body(rank: int) -> None:
            first, second = job.create(rank), job.create(rank, scope="#2")
            micro_step(first)
            self.assertEqual((first.micro_steps, second.micro_steps), (1, 0))

        job.run(body)


class Daemon(unittest.TestCase):
    """What gradgatectl shows of a ledger's ranks."""

    def setUp(self) -> None:
        self.binaries = pathlib.Path(os.environ["GRADGATE_BUILD_DIR"])
        folder = tempfile.TemporaryDirectory(prefix="gradgate-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.daemon = subprocess.Popen([str(self.binaries / "bin/gradgated"), f"--dir={self.folder}", "--metrics_listen="])
        self.addCleanup(self.daemon.wait, 20)
        self.addCleanup(self.daemon.terminate)
        self.assertTrue(until(lambda: (pathlib.Path(self.folder) / "api.sock").exists()))

    def shown(self, *arguments: str) -> dict[str, Any]:
        command = [str(self.binaries / "bin/gradgatectl"), f"--dir={self.folder}", "--json", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return json.loads(done.stdout or "{}")  # type: ignore[no-any-return]

    def test_shows_mode_roles_and_reductions(self) -> None:
        job = Job(2, mode="window_replica", roles=1 << _abi.GROUP_SHARD | 1 << _abi.GROUP_REPLICATE, daemon_dir=self.folder, job_name="job")
        ledgers: list[Ledger | None] = [None, None]

        def body(rank: int) -> None:
            ledger = ledgers[rank] = job.create(rank)
            for i in range(4):
                ledger.micro_step_begin()
                for group, op in ((_abi.GROUP_SHARD, 1), (_abi.GROUP_REPLICATE, 0))[: 2 if i == 3 else 1]:
                    ledger.collective_done(group, op, 0, ledger.collective_issued(group, op, 0, 64), 0)
                ledger.micro_step_end()
            ledger.window_close(stepped=True, min_micro_steps=4, max_micro_steps=4)

        job.run(body)
        shown: dict[str, Any] = {}

        def all_there() -> bool:
            shown.update(self.shown("status", "job"))
            return len(shown.get("ranks", ())) == 2

        self.assertTrue(until(all_there))
        for rank in shown["ranks"]:
            self.assertEqual(rank["sync_mode"], "SYNC_MODE_WINDOW_REPLICA")
            self.assertEqual(
                [(r["group"], r["intended_count"], r["issued_count"], r["suppressed_count"]) for r in rank["roles"]],
                [("GROUP_ROLE_SHARD", "4", "4", "0"), ("GROUP_ROLE_REPLICATE", "1", "1", "3")],
            )
            self.assertEqual([c["op"] for c in rank["collectives"]], ["COLLECTIVE_OP_REDUCE_SCATTER", "COLLECTIVE_OP_ALL_REDUCE"])
        totals = shown["totals"]
        names = ("reduction_issued_count", "gradient_collective_count", "gradient_bytes", "window_full_count", "window_mismatched_count")
        self.assertEqual([totals[name] for name in names], ["10", "10", "640", "2", "0"])
        for ledger in filter(None, ledgers):
            ledger.close()


if __name__ == "__main__":
    unittest.main()
