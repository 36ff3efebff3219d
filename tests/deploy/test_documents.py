"""What documents tell people to type: every command parses, those of TROUBLESHOOTING.md print what it says on jobs that have the fault, and
the guide's program in C++ compiles, runs and prints what is promised."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Iterator

import tools
from tools import processes

sys.path.append(str(tools.DEPLOY / "reference"))

import from_programs  # noqa: E402

BLOCK = re.compile(r"^```(?:console|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN = re.compile(r"<!-- run: ([\w ]+) -->\n```console\n\$ (.*?)\n```\n```text\n(.*?)\n```", re.DOTALL)
UNFINISHED = r"(JOB|DIR|CHANGE|--node) is required|name a JOB|1 required \w+ missing|a command is missing"  # in running text
PROGRAMS = ("gradgated", "gradgatectl", "gradgate")
MANUAL = tools.DEPLOY / "TROUBLESHOOTING.md"


def documents() -> list[pathlib.Path]:
    return [
        p for p in sorted(tools.ROOT.rglob("*.md")) if not {"build", ".venv", ".cache", "shared"} & set(p.relative_to(tools.ROOT).parts)
    ]


def typed() -> Iterator[tuple[str, list[str]]]:
    """Where, and each command of ours: in blocks for a shell, and complete ones in running text, without what stands for something else."""
    for path in documents():
        text = path.read_text(encoding="utf-8")
        commands = re.findall(r"`((?:gradgatectl|gradgated|gradgate) [^`\n]+)`", text)
        for block in BLOCK.findall(text):
            commands += [line.removeprefix("$ ") for line in block.replace("\\\n", " ").splitlines()]
        for command in commands:
            each = itertools.count()
            filled = re.sub(r"(--[\w-]+) …", lambda option: f"{option[1]} x{next(each)}", command.replace("=…", "=given"))  # noqa: B023
            try:
                words = shlex.split(re.sub(r"[…\[\]]", "", filled), comments=True)
            except ValueError:  # a quotation over several lines
                continue
            for at, word in enumerate(words):
                if word in PROGRAMS and (at == 0 or words[at - 1] in ("|", "--", "&&", "timeout", "sudo")):
                    yield f"{path.relative_to(tools.ROOT)}: {command}", words[at:]
                    break


def skeleton(text: str) -> str:
    """Without what differs from run to run: numbers, units, blanks, paths, this machine's name."""
    text = re.sub(r"/\S+/(shim|api)\.sock", r"/x/\1.sock", text)
    text = re.sub(r" on [\w.-]+(?=$|[,;\n])", " on HOST", text)
    text = re.sub(r"\d[\d.,]*\d|\d", "#", text)
    return re.sub(r"\s+", " ", re.sub(r"# (ns|us|ms|s|B|kB|MB)\b", "# u", text))


class Commands(unittest.TestCase):
    binaries = processes.Binaries(tools.build_folder())

    def test_every_one_parses(self) -> None:
        flags = set(re.findall(r"^  (--\w+)", self.says("gradgated", "--help").stdout, re.MULTILINE))
        seen = 0
        for where, (program, *words) in typed():
            with self.subTest(where):
                seen += 1
                if program == "gradgate":
                    parser = from_programs.python_parser()
                    with contextlib.redirect_stderr(io.StringIO()) as error:
                        try:
                            parser.parse_args(words)
                        except SystemExit:
                            self.assertNotRegex(error.getvalue(), "unrecognized|invalid|ambiguous")
                    continue
                if program == "gradgated":
                    given = [word.split("=")[0] for word in words if word.startswith("--")]
                    self.assertLessEqual(set(given), flags)
                    continue
                done = self.says(program, *(["--dir", "/nowhere"] if "--target" not in words else []), *words)
                unfinished = re.search(UNFINISHED, done.stderr)
                stands_for = re.search(r'"(COMMAND|[A-Z]+…?)"', done.stderr)
                self.assertTrue(done.returncode != 2 or unfinished or stands_for, done.stderr)
        self.assertGreater(seen, 60)

    def says(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryDirectory(prefix="gg-doc-") as folder:
            return subprocess.run(
                [self.binaries.path(program), *words], capture_output=True, text=True, timeout=60, check=False, cwd=folder
            )


class Links(unittest.TestCase):
    def test_each_leads_somewhere(self) -> None:
        for path in documents():
            text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
            for target in re.findall(r"\]\(([^)\s]+)\)", text):
                if re.match(r"[a-z]+:", target):
                    continue
                name, _, anchor = target.partition("#")
                page = path.parent / name if name else path
                with self.subTest(f"{path.relative_to(tools.ROOT)}: {target}"):
                    self.assertTrue(page.exists())
                    self.assertTrue(not anchor or anchor in self.anchors(page), "no such heading")

    def anchors(self, page: pathlib.Path) -> set[str]:
        """Of headings, as the web pages of repositories make them."""
        titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


class Troubleshooting(unittest.TestCase):
    binaries = processes.Binaries(tools.build_folder(), "digits")

    def setUp(self) -> None:
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="gg-doc-"))

    def shown(self, name: str) -> list[tuple[list[str], str]]:
        found = [(shlex.split(command), text) for what, command, text in RUN.findall(MANUAL.read_text(encoding="utf-8")) if what == name]
        self.assertTrue(found, name)
        return found

    def prints(self, program: str, *words: str) -> str:
        environment = {**os.environ, "GRADGATE_DIR": self.folder}
        command = [self.binaries.path(program), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
        return done.stdout + done.stderr

    def check(self, name: str) -> None:
        """Runs what the page shows under this name until each of its lines was printed in one go."""
        for command, text in self.shown(name):
            end = time.monotonic() + processes.DEADLINE_S
            while True:
                printed = self.prints(*command)
                missing = [line for line in text.splitlines() if skeleton(line) not in skeleton(printed)]
                if not missing or time.monotonic() > end:
                    break
                time.sleep(0.1)
            self.assertEqual(missing, [], printed)

    @contextlib.contextmanager
    def job(self, mode: str) -> Iterator[processes.Daemon]:
        options = ("--ranks", "2", "--epochs", "100000", "--throttle", "2", "--job", "train", "--quiet")
        with (
            processes.Daemon(self.binaries, self.folder, "--store=memory") as daemon,
            processes.trainer(self.binaries, *options, env={"GRADGATE": mode, "GRADGATE_DIR": self.folder}) as trainer,
        ):
            processes.wait_for("windows", lambda: int((daemon.status("train") or {"job": {"window_count": 0}})["job"]["window_count"]) > 50)
            yield daemon
            trainer.signal(signal.SIGTERM)
            trainer.finish()

    def test_job_that_is_audited(self) -> None:
        with self.job("audit"):
            self.check("audited")
            self.check("rejected")

    def test_job_with_a_stopped_rank(self) -> None:
        with self.job("enforce") as daemon:
            process_id = int(daemon.status("train")["ranks"][1]["process_id"])
            os.kill(process_id, signal.SIGSTOP)
            try:
                self.check("stopped")
            finally:
                os.kill(process_id, signal.SIGCONT)

    def test_no_daemon_and_no_job(self) -> None:
        self.check("no daemon")
        with processes.Daemon(self.binaries, self.folder, "--store=memory"):
            self.check("no job")
            self.check("second daemon")

    def test_every_shown_output_is_tried(self) -> None:
        tried = set(re.findall(r'self\.check\("([\w ]+)"\)', pathlib.Path(__file__).read_text(encoding="utf-8")))
        self.assertEqual({name for name, _, _ in RUN.findall(MANUAL.read_text(encoding="utf-8"))}, tried)


class Guide(unittest.TestCase):
    def test_program_of_the_guide_runs(self) -> None:
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="gg-doc-")))
        text = (tools.ROOT / "shim/GUIDE.md").read_text(encoding="utf-8")
        program = re.search(r"```cpp\n(.*?)```", text, re.DOTALL)
        promised = re.search(r"Each rank prints `(.*?)`", text)
        assert program and promised
        (folder / "trainer.cc").write_text(program[1], encoding="utf-8")
        library = tools.build_folder().resolve() / "lib"
        command = ["c++", "-std=c++17", "-Wall", f"-I{tools.ROOT / 'shim/include'}", "trainer.cc", f"-L{library}", f"-Wl,-rpath,{library}"]
        subprocess.run([*command, "-lgradgate", "-o", "trainer"], cwd=folder, check=True, timeout=120)
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "GRADGATE_DIR": "/nowhere"}
        ranks = [
            subprocess.Popen(
                ["./trainer", str(rank), "2", f"file://{folder}/store"], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
            )
            for rank in range(2)
        ]
        said = [rank.communicate(timeout=120)[0].strip() for rank in ranks]
        self.assertEqual(said, [promised[1]] * 2)
        self.assertEqual([rank.returncode for rank in ranks], [0, 0])


if __name__ == "__main__":
    unittest.main()
