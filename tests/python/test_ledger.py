"""class Ledger, one rank: what it decides and counts, and how it fails."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading
import unittest
from datetime import timedelta

from gradgate import _abi
from gradgate.ledger import GradgateError, InvalidArgument, Ledger, Refused, Vote
from gradgate.rendezvous import StoreBridge
from ranks import MapStore, issue, micro_step


def alone(**options: object) -> Ledger:
    return Ledger(**{"accumulate": 4, "daemon_dir": "", **options})  # type: ignore[arg-type]


class Alone(unittest.TestCase):
    def test_one_window(self) -> None:
        ledger = alone()
        self.assertEqual([micro_step(ledger) for _ in range(4)], [0, 0, 0, 1])
        self.assertEqual((ledger.window_index, ledger.micro_steps, ledger.in_micro_step, ledger.mode), (0, 4, False, "window"))
        verdict = ledger.verdict_alone(Vote(contributes=True, parity=-5, staged=3))
        self.assertEqual((verdict.differs, verdict.all_contribute, verdict.max_micro_steps, verdict.staged), (False, True, 4, 3))
        self.assertIs(verdict.staged_equal, True)
        self.assertEqual(verdict.min_headroom_bytes, _abi.HEADROOM_UNKNOWN)
        window = ledger.window_close(stepped=True, min_micro_steps=4, max_micro_steps=4, items=7, global_items=9, skipped=1)
        self.assertEqual((window.kind, window.window_index, window.micro_steps, window.item_count), (_abi.WINDOW_FULL, 0, 4, 9))
        stats = ledger.stats()
        self.assertEqual((stats.windows_full, stats.steps, stats.items, stats.micro_steps_skipped, stats.micro_steps), (1, 1, 7, 1, 4))
        ledger.close()
        ledger.close()
        self.assertEqual(ledger.stats().windows_full, 1)
        ledger.destroy()

    def test_the_ballot_is_a_buffer_to_reduce_in_place(self) -> None:
        ledger = alone()
        view = memoryview(ledger.ballot_words).cast("B").cast("q")
        self.assertEqual(len(view), 2 * ledger.row_words)
        ledger.vote(Vote(skipped=3))
        self.assertEqual(list(view[: ledger.row_words]), ledger.ballot_row())
        self.assertEqual([-word for word in view[ledger.row_words :]], ledger.ballot_row())
        row = ledger.ballot_row()
        view[row.index(3)] = 8
        self.assertEqual(ledger.verdict().max_skipped, 8)
        self.assertEqual(ledger.ballot_row(), row)

    def test_collectives_are_counted_by_role_and_operation(self) -> None:
        ledger = alone()
        ledger.micro_step_begin(_abi.LAST_YES)
        issue(ledger, 3)
        at = ledger.collective_issued(_abi.GROUP_SHARD, _abi.OP_ALL_GATHER, _abi.TRAFFIC_OTHER, 50, 2)
        self.assertGreater(at, 0)
        ledger.collective_done(_abi.GROUP_SHARD, _abi.OP_ALL_GATHER, _abi.TRAFFIC_OTHER, at, _abi.OUTCOME_UNKNOWN)
        ledger.micro_step_end()
        self.assertEqual((ledger.issued(), ledger.issued(_abi.GROUP_DP), ledger.issued(_abi.GROUP_SHARD)), (3, 3, 0))
        cell = ledger.collective_stats(_abi.GROUP_DP, "all_reduce")
        self.assertEqual((cell.gradient_issued, cell.gradient_bytes, cell.completed, cell.other_issued), (3, 300, 3, 0))
        cell = ledger.collective_stats(_abi.GROUP_SHARD, _abi.OP_ALL_GATHER)
        self.assertEqual((cell.other_issued, cell.tensors, cell.unknown), (1, 2, 1))
        self.assertEqual(ledger.role_stats(_abi.GROUP_DP).issued, 1)

    def test_statuses_are_exceptions(self) -> None:
        ledger = alone()
        with self.assertRaisesRegex(Refused, "no micro-step has begun") as refused:
            ledger.micro_step_end()
        self.assertEqual(refused.exception.status, _abi.FAILED_PRECONDITION)
        with self.assertRaisesRegex(ValueError, "last is 7"):
            ledger.micro_step_begin(7)
        with self.assertRaises(KeyError):
            ledger.set_mode("sometimes")
        with self.assertRaisesRegex(InvalidArgument, "use GG_MODE_EVERY_MICRO_STEP"):
            ledger.set_mode("auto")
        with self.assertRaisesRegex(InvalidArgument, "each is name=value"):
            alone(facts={"a": "b=c"})
        with self.assertRaisesRegex(InvalidArgument, "more than one rank needs a store"):
            alone(world_size=2)
        with self.assertRaisesRegex(GradgateError, "count is 3"):
            ledger.describe([1, 2, 3])
        ledger.fail("enough")
        with self.assertRaisesRegex(Refused, "failed before"):
            ledger.micro_step_begin()

    def test_warnings_are_logged_once_by_reason(self) -> None:
        ledger = alone()
        with self.assertLogs("gradgate", logging.WARNING) as logs:
            ledger.warn("no_effect", "naïve")
            ledger.warn("no_effect", "again")
        self.assertEqual([(r.getMessage(), r.reason) for r in logs.records], [("gradgate [no_effect], rank 0: naïve", "no_effect")])  # type: ignore[attr-defined]
        self.assertEqual(ledger.told, {"no_effect": "naïve"})
        self.assertEqual(ledger.stats().warnings, 2)

    def test_other_threads_may_count(self) -> None:
        ledger = alone()
        ledger.micro_step_begin()
        threads = [threading.Thread(target=issue, args=(ledger, 500)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ledger.micro_step_end()
        self.assertEqual(ledger.issued(), 2000)
        self.assertEqual(ledger.stats().gradient_collectives, 2000)

    def test_a_forked_child_is_refused_and_counts_nothing_here(self) -> None:
        ledger = alone()
        ledger.micro_step_begin()
        child = os.fork()
        if child == 0:
            try:
                ledger.micro_step_end()
            except Refused as refused:
                os._exit(0 if "belongs to the parent process" in str(refused) else 2)
            os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        ledger.micro_step_end()
        self.assertEqual(ledger.stats().micro_steps, 1)

    def test_enforcement_comes_from_the_environment(self) -> None:
        code = "from gradgate.ledger import Ledger; l = Ledger(accumulate=2, daemon_dir=''); print(l.enforcement, l.mode)"
        for value, told in (("off", "1 every_micro_step"), ("audit", "2 every_micro_step"), ("enforce", "3 window")):
            done = subprocess.run(
                [sys.executable, "-B", "-c", code],
                env={**os.environ, "GRADGATE": value},
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            )
            self.assertEqual(done.stdout.strip(), told)

    def test_a_missing_library_is_told_with_the_remedy(self) -> None:
        for given, told in (
            ("/nowhere/libgradgate.so", "/nowhere/libgradgate.so is not a libgradgate.so"),
            ("", "pip install ./shim/python"),
        ):
            done = subprocess.run(
                [sys.executable, "-B", "-c", "import gradgate._abi as a; a.library()"],
                env={**os.environ, "GRADGATE_LIBRARY": given},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            self.assertIn(told, done.stderr)


class Broken(MapStore):
    def __init__(self, failure: BaseException) -> None:
        super().__init__()
        self.failure = failure

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        raise self.failure

    def set(self, key: str, value: bytes) -> None:
        raise self.failure


class Stores(unittest.TestCase):
    def test_no_exception_crosses_and_an_interrupt_is_not_lost(self) -> None:
        for failure in (KeyboardInterrupt(), SystemExit(3)):
            with self.assertRaises(type(failure)):
                alone(world_size=2, store=Broken(failure), handshake_deadline_s=0.2)
        with self.assertRaisesRegex(GradgateError, "the caller's store: set"):
            alone(world_size=2, store=Broken(RuntimeError("gone")), handshake_deadline_s=0.2)

    def test_values_larger_than_the_first_buffer_come_whole(self) -> None:
        store = MapStore()
        facts = {f"fact{i}": "x" * 200 for i in range(40)}
        errors: list[BaseException] = []

        def rank(number: int, given: dict[str, str]) -> None:
            try:
                alone(world_size=2, rank=number, store=store, facts=given)
            except GradgateError as error:
                errors.append(error)

        threads = [threading.Thread(target=rank, args=(n, {**facts, "last": str(n)})) for n in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertGreater(len(store.values["gradgate/0/0/hello/1"]), 8000)
        for error in errors:
            self.assertIn("rank 1 has last=1 where rank 0 has 0", str(error))
        self.assertEqual(len(errors), 2)

    def test_a_bridge_frees_its_store(self) -> None:
        bridge = StoreBridge(MapStore())
        self.assertTrue(bridge.handle)
        del bridge
        gc.collect()


if __name__ == "__main__":
    unittest.main()
