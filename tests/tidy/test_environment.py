"""environment.py with a stand-in for the commands it runs: what it installs, when it does nothing, what it says when it cannot."""

import contextlib
import io
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

import environment


class EnvironmentTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name, text in zip(environment.REQUIREMENTS, ("# tests\ntorch==2.13.0\npytest==9.2.0\n", "ruff==0.6.9\n"), strict=True):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text, encoding="utf-8")
        self.failing: dict[str, str] = {}  # last word of a command: what it prints when it fails

    def make(self, *arguments: str) -> tuple[int, list[list[str]], str]:
        commands: list[list[str]] = []

        def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
            commands.append(command)
            if command[1:3] == ["-m", "venv"]:
                (self.root / command[-1]).mkdir(exist_ok=True)
            said = self.failing.get(command[-1])
            return subprocess.CompletedProcess(command, 1 if said else 0, said or "")

        output = io.StringIO()
        with (
            mock.patch.object(environment, "ROOT", self.root),
            mock.patch("subprocess.run", run),
            mock.patch("sys.argv", ["environment.py", *arguments]),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
        ):
            return environment.main(), commands, output.getvalue()

    def test_installs_the_cpu_build_and_the_rest_once(self) -> None:
        status, commands, _ = self.make()
        self.assertEqual(status, 0)
        self.assertEqual(commands[0][1:], ["-m", "venv", "--clear", ".venv"])
        self.assertEqual(commands[1][-1], "torch==2.13.0+cpu")
        self.assertEqual(commands[2][-3:], ["torch==2.13.0", "pytest==9.2.0", "ruff==0.6.9"])
        self.assertEqual(self.make(), (0, [], ""))

    def test_again_when_the_requirements_change(self) -> None:
        self.make()
        (self.root / environment.REQUIREMENTS[1]).write_text("ruff==0.7.0\n", encoding="utf-8")
        self.assertEqual(self.make()[1][-1][-1], "ruff==0.7.0")

    def test_another_torch_has_a_folder_of_its_own(self) -> None:
        _, commands, _ = self.make("--torch", "2.9.1")
        self.assertEqual(commands[0][-1], ".venv-torch-2.9.1")
        self.assertEqual(commands[1][-1], "torch==2.9.1+cpu")
        self.assertIn("torch==2.9.1", commands[2])
        self.assertNotIn("torch==2.13.0", commands[2])

    def test_an_index_without_cpu_builds(self) -> None:
        for version, reason in (("2.9.0", "ERROR: No matching distribution found"), ("2.9.1", "ERROR: ResolutionImpossible")):
            self.failing = {f"torch=={version}+cpu": reason}
            status, commands, said = self.make("--torch", version)
            self.assertEqual((status, len(commands)), (0, 3))
            self.assertIn(f"has no torch=={version}+cpu: the build with GPU libraries is several GB", said)

    def test_other_failures_are_shown_and_tried_again_next_time(self) -> None:
        self.failing = {"torch==2.13.0+cpu": "ERROR: no route to the index"}
        status, commands, said = self.make()
        self.assertEqual((status, len(commands)), (1, 2))
        self.assertIn("no route to the index", said)
        self.failing = {}
        self.assertEqual(self.make()[0], 0)

    def test_dry_run(self) -> None:
        _, commands, said = self.make("-n")
        self.assertEqual(commands, [])
        self.assertIn("pip install", said)
        self.assertFalse((self.root / ".venv").exists())


if __name__ == "__main__":
    unittest.main()
