"""The job script with a stand-in for srun, which runs one task: it counts, cleans up, and ends as the training did."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import tools
from tools import processes

SCRIPT = tools.DEPLOY / "slurm" / "train.sbatch"
STAND_IN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
exec "$@"
"""


class Slurm(unittest.TestCase):
    def setUp(self) -> None:
        self.binaries = processes.Binaries(tools.build_folder(), "digits")
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="gradgate-deploy-")))
        (self.folder / "srun").write_text(STAND_IN, encoding="utf-8")
        (self.folder / "srun").chmod(0o755)
        self.run_folder = pathlib.Path(f"/tmp/gradgate-{self.folder.name}")

    def run_job(self, *command: str) -> subprocess.CompletedProcess[str]:
        env = {
            "PATH": f"{self.folder}:{self.binaries.folder}:{os.environ['PATH']}",
            "SLURM_JOB_NAME": "train",
            "SLURM_JOB_ID": self.folder.name,
            "SLURM_JOB_NUM_NODES": "1",
        }
        return subprocess.run(["bash", str(SCRIPT), *command], env=env, capture_output=True, text=True, timeout=60, check=False)

    def test_counts_and_cleans_up(self) -> None:
        # Ranks look for a daemon again after a second.
        done = self.run_job("digits", "--ranks", "2", "--epochs", "1", "--throttle", "40", "--job", "train", "--quiet")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("[healthy]", done.stdout)
        self.assertIn("1 issued, 1 intended", done.stdout)
        self.assertFalse(self.run_folder.exists())

    def test_ends_as_the_training_did(self) -> None:
        done = self.run_job("sh", "-c", "exit 7")
        self.assertEqual(done.returncode, 7, done.stdout + done.stderr)
        self.assertFalse(self.run_folder.exists())

    def test_trains_without_a_daemon_in_somebody_elses_directory(self) -> None:
        self.run_folder.symlink_to(self.folder)
        self.addCleanup(self.run_folder.unlink, missing_ok=True)
        done = self.run_job("digits", "--ranks", "2", "--epochs", "1", "--job", "train", "--quiet")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("is somebody else's: no gradgated on", done.stderr)
        self.assertTrue(self.folder.exists())

    def test_starts_again_in_its_own_directory(self) -> None:
        """A job that was requeued has the number that it had."""
        self.run_folder.mkdir()
        self.addCleanup(shutil.rmtree, self.run_folder, ignore_errors=True)
        done = self.run_job("sleep", "1")
        self.assertIn(" ready: ", done.stdout)
        self.assertFalse(self.run_folder.exists())

    def test_script_is_clean(self) -> None:
        done = subprocess.run(
            [tools.program("shellcheck", "Debian's package shellcheck"), str(SCRIPT)], capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
