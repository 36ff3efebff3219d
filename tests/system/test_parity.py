"""Parameters are the same bytes, reduced at every micro-step, once per window, or by one process on the whole batch."""

from __future__ import annotations

import itertools
from typing import Any

import case

WORLDS = (1, 2, 3, 4)
LENGTHS = (1, 2, 4, 7)
MODES = ("every_micro_step", "window")


class Parity(case.SystemCase):
    def run_exact(self, world: int, length: int, *options: str) -> Any:
        report = self.train(*("--ranks", str(world), "--accumulate", str(length), "--epochs", "2", *options), *case.EXACT, *case.NO_DAEMON)
        self.assert_own_counts(report)
        return report

    def alone(self, world: int, length: int, *options: str) -> str:
        """One process that does the work of `world` ranks."""
        options = ("--as-world", str(world), "--accumulate", str(length), "--epochs", "2", *options)
        report = self.train(*options, *case.EXACT, *case.NO_DAEMON)
        self.accuracy = report["ranks"][0]["held_out_accuracy"]
        return self.one_hash(report)

    def test_every_world_and_length(self) -> None:
        seen = {"windows_partial": 0, "windows_empty": 0, "uneven": 0}
        references = set()
        for world, length in itertools.product(WORLDS, LENGTHS):
            reference = self.alone(world, length)
            references.add(reference)
            if world * length == 1:
                self.assertGreater(self.accuracy, 0.4, "the network learns, so its gradients are worth comparing")
            for mode in MODES:
                with self.subTest(world=world, length=length, mode=mode):
                    report = self.run_exact(world, length, "--mode", mode)
                    self.assertEqual(self.one_hash(report), reference)
                    counts = [rank["counted"] for rank in report["ranks"]]
                    for kind in ("windows_partial", "windows_empty"):
                        seen[kind] += sum(count[kind] for count in counts)
                    seen["uneven"] += len({count["micro_steps"] for count in counts}) > 1
        # Windows of equal length are the same however many ranks share them, so fewer references than rows; but training moved.
        self.assertGreater(len(references), len(LENGTHS))
        for what, count in seen.items():
            self.assertGreater(count, 0, f"the table has no {what}: choose another batch")

    def test_every_way_to_divide(self) -> None:
        for divide, (world, length), mode in itertools.product(("world", "active"), ((2, 4), (3, 4), (4, 7)), MODES):
            with self.subTest(divide=divide, world=world, length=length, mode=mode):
                reference = self.alone(world, length, "--divide", divide)
                self.assertEqual(self.one_hash(self.run_exact(world, length, "--divide", divide, "--mode", mode)), reference)

    def test_own_memory_and_small_buckets(self) -> None:
        reference = self.alone(3, 4)
        for options, mode in itertools.product((("--copy",), ("--bucket-bytes", "64"), ("--copy", "--bucket-bytes", "64")), MODES):
            with self.subTest(options=options, mode=mode):
                self.assertEqual(self.one_hash(self.run_exact(3, 4, "--mode", mode, *options)), reference)

    def test_partial_windows_reduced_late(self) -> None:
        """A loop that does not look ahead: nobody says which micro-step is the last."""
        for world, length in ((2, 4), (3, 2), (4, 7)):
            with self.subTest(world=world, length=length):
                report = self.run_exact(world, length, "--boundary", "count")
                self.assertEqual(self.one_hash(report), self.alone(world, length))
                for rank in report["ranks"]:
                    cut_short = rank["counted"]["windows_partial"] + rank["counted"]["windows_empty"]
                    self.assertEqual(rank["stats"]["reductions_late"], cut_short)
                    self.assertEqual(rank["stats"]["windows_late"], cut_short)
                self.assertGreater(sum(rank["stats"]["windows_late"] for rank in report["ranks"]), 0)

    def test_shim_switched_off_or_watching(self) -> None:
        reference = self.alone(2, 4)
        for setting in ("off", "audit", "enforce"):
            with self.subTest(GRADGATE=setting):
                options = ("--ranks", "2", "--accumulate", "4", "--epochs", "2", "--report", str(self.folder / "report.json"))
                environment = {"GRADGATE": setting}
                with case.processes.trainer(self.binaries, *options, *case.EXACT, *case.NO_DAEMON, env=environment) as process:
                    self.assertEqual(process.finish(), 0, process.output)
                    hashes = {line.split()[3] for line in process.lines if line.startswith("rank ")}
                self.assertEqual(hashes, {reference})

    def test_one_micro_step_less_shows(self) -> None:
        """The comparison is sharp: a single micro-batch left out changes the bytes."""
        self.assertNotEqual(self.one_hash(self.train("--ranks", "2", "--epochs", "2", "--drop", "1:1", *case.EXACT)), self.alone(2, 4))


if __name__ == "__main__":
    case.main()
