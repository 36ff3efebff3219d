"""What the system tests share: the programs under test, a directory for each test, and the exact runs that parity is checked on."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import tempfile
import unittest
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples" / "digits"), str(ROOT / "examples" / "demo")]

import demo  # noqa: E402
import processes  # noqa: E402
import sources  # noqa: E402

__all__ = ["demo", "processes", "sources"]

# 31 micro-batches an epoch: no W × N of the tests divides it, so that every run has partial windows, and many have uneven and empty ones.
EXACT = ("--exact", "--dtype", "float64", "--hidden", "16", "--batch", "47", "--quiet")
NO_DAEMON = ("--no-daemon",)


class SystemCase(unittest.TestCase):
    binaries: processes.Binaries

    @classmethod
    def setUpClass(cls) -> None:
        cls.binaries = processes.Binaries(os.environ.get("GRADGATE_BUILD_DIR", ROOT / "build" / "debug"), "digits")

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory(prefix="gradgate-system-")
        self.addCleanup(directory.cleanup)
        self.folder = pathlib.Path(directory.name)
        self.job = f"{self.folder.name}-{self.id().rsplit('.', 1)[-1]}"

    def start_daemon(self) -> processes.Daemon:
        """One on self.folder / "run" that ends with the test."""
        daemon = processes.Daemon(self.binaries, self.folder / "run")
        self.addCleanup(daemon.__exit__, None, None, None)
        return daemon

    def train(self, *options: str) -> Any:
        return processes.train(self.binaries, self.folder / "report.json", "--job", self.job, *options)

    def one_hash(self, report: Any) -> str:
        """The parameter hash that all ranks share."""
        hashes = {rank["parameter_hash"] for rank in report["ranks"]}
        self.assertEqual(len(hashes), 1, f"ranks ended with different parameters: {hashes}")
        return str(hashes.pop())

    def assert_counts_agree(self, **told: sources.Ranks) -> None:
        self.assertIsNone(sources.first_difference(told))

    def assert_own_counts(self, report: Any) -> None:
        """What the loop counted by itself is what the library counted."""
        self.assert_counts_agree(loop=sources.from_loop(report), library=sources.from_library(report))


def read_report(path: pathlib.Path) -> Any:
    return json.loads(path.read_text())


def main() -> None:
    unittest.main(verbosity=2)
