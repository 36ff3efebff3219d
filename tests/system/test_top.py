"""gradgatectl top on a terminal and on a pipe, beside a real job and a daemon that dies, freezes and comes back."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator

import case
import screen
from case import processes

RANKS = 3
ENDLESS = ("--epochs", "100000", "--throttle", "5", "--quiet", "--ranks", str(RANKS))


class Top(case.SystemCase):
    def setUp(self) -> None:
        super().setUp()
        self.daemon = self.start_daemon()

    @contextlib.contextmanager
    def training(self, name: str, mode: str = "enforce", *options: str) -> Iterator[processes.Process]:
        common = ("--job", name, "--daemon-dir", str(self.folder / "run"), *ENDLESS)
        with processes.trainer(self.binaries, *common, *options, env={"GRADGATE": mode}) as process:
            processes.wait_for(f"windows of {name}", lambda: self.windows_closed(name) > 0)
            yield process
            process.signal(signal.SIGTERM)
            process.finish()

    def windows_closed(self, name: str) -> int:
        status = self.daemon.status(name)
        return int(status["job"]["window_count"]) if status else 0

    def command(self, *arguments: str) -> list[str]:
        return [self.binaries.path("gradgatectl"), "--dir", self.daemon.directory, "top", "--interval", "0.5", *arguments]

    def top(self, *arguments: str, rows: int = 24, columns: int = 120, environment: dict[str, str] | None = None) -> screen.Terminal:
        terminal = screen.Terminal(self.command(*arguments), rows, columns, environment or {})
        self.addCleanup(terminal.__exit__, None, None, None)
        return terminal

    @staticmethod
    def has_help(row: int, s: screen.Screen) -> bool:
        return s.lines[row - 1].startswith("q quit")

    @staticmethod
    def has_snapshots(top: screen.Terminal, _: screen.Screen) -> bool:
        return top.output.count("gradgatectl top") >= 2

    @staticmethod
    def named_ranks(s: screen.Screen, kind: str) -> list[str]:
        return [line.split()[1] for line in s.lines if line.startswith("!") and line.endswith(kind)]

    @staticmethod
    def process_fields(top: screen.Terminal) -> list[str]:
        return pathlib.Path(f"/proc/{top.process.pid}/stat").read_text().rsplit(")", 1)[1].split()

    def ticks(self, top: screen.Terminal) -> int:
        return sum(int(number) for number in self.process_fields(top)[11:13])

    @staticmethod
    def columns(s: screen.Screen, job: str) -> list[str]:
        """Of a job's row, from its state on: state, ranks, steps/s, reductions per step, intended, …"""
        rows = [line.lstrip(">! ").split() for line in s.lines]
        return next((row[1:] for row in rows if len(row) > 5 and row[0] == job and "/" in row[2]), ["-"] * 10)

    def run_plain(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=processes.DEADLINE_S, check=False)

    def test_keys_sizes_and_the_end(self) -> None:
        with self.training("healthy"), self.training("wasteful", "audit"):
            top = self.top()
            top.wait("rates of both jobs", lambda s: all("-" not in self.columns(s, name)[2:5] for name in ("healthy", "wasteful")))
            self.assertGreater(float(self.columns(top.screen, "wasteful")[3]), 3)
            self.assertGreater(float(self.columns(top.screen, "wasteful")[2]), 0)
            self.assertTrue(top.screen.alternate and not top.screen.cursor_shown)
            print("\n" + top.screen.text)

            jobs = [line.lstrip(">! ").split()[0] for line in top.screen.lines[2:4]]
            selected = next(line for line in top.screen.lines if line.startswith(">")).split()[1]
            other = jobs[1 - jobs.index(selected)]
            top.type("\x1b[B" if other == jobs[1] else "k")
            top.wait("the other job", lambda s: any(line.startswith(">") and other in line for line in s.lines))
            top.wait("its ranks", lambda s: any(line.startswith(f"{other}  running  mode") for line in s.lines))
            top.type("s")
            top.wait_text("s sort: trouble")
            top.type("p")
            top.wait_text("PAUSED")
            top.type("p")
            top.wait("going on", lambda s: "PAUSED" not in s.text)

            for rows, columns in ((8, 40), (50, 200), (3, 20), (24, 80)):
                top.resize(rows, columns)
                top.wait(f"the help line in row {rows}", functools.partial(self.has_help, rows))
                self.assertTrue(all(len(line) <= columns for line in top.screen.lines), top.screen.text)
            top.type("q")
            self.assertEqual(top.finish(), 0)
            self.assertTrue(top.restored())

    def test_signals_restore_the_terminal(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            with self.subTest(number=number.name):
                top = self.top()
                top.wait_text("no job yet")
                top.signal(number)
                self.assertEqual(top.finish(), 0)
                self.assertTrue(top.restored())
        top = self.top()
        top.wait_text("no job yet")
        top.type("\x03")
        self.assertEqual(top.finish(), 0)
        self.assertTrue(top.restored())

    def test_stop_and_continue(self) -> None:
        top = self.top()
        top.wait_text("no job yet")
        top.type("\x1a")
        top.wait("the terminal is the shell's", lambda s: not s.alternate)
        processes.wait_for("the stop", lambda: self.process_fields(top)[0] == "T")
        self.assertTrue(top.restored())
        top.signal(signal.SIGCONT)
        top.wait("the screen again", lambda s: s.alternate and "no job yet" in s.text)
        top.type("q")
        self.assertEqual(top.finish(), 0)

    def test_a_terminal_that_goes_away(self) -> None:
        top = self.top()
        top.wait_text("no job yet")
        top.hang_up()
        self.assertEqual(top.process.wait(timeout=20), 0)

    def test_a_terminal_that_takes_nothing(self) -> None:
        """Nobody reads: top waits without spinning and still ends at a signal."""
        with self.training("healthy"):
            top = self.top(rows=200, columns=300)
            top.wait_text("healthy")
            top.type("\x13")  # Ctrl-S: output stops
            begin = time.monotonic()
            before = self.ticks(top)
            processes.wait_for("three seconds", lambda: time.monotonic() - begin > 3)
            self.assertLess((self.ticks(top) - before) / os.sysconf("SC_CLK_TCK"), 1.5)
            top.signal(signal.SIGTERM)
            self.assertEqual(top.process.wait(timeout=20), 0)

    def test_a_daemon_that_freezes_dies_and_comes_back(self) -> None:
        with self.training("healthy"):
            top = self.top("--timeout", "3")
            top.wait_text("healthy")
            self.daemon.process.signal(signal.SIGSTOP)
            top.wait_text("! no answer for")
            self.assertIn("healthy", top.screen.text)
            self.daemon.process.signal(signal.SIGCONT)
            top.wait("the answers again", lambda s: "no answer" not in s.text)
            self.daemon.kill()
            top.wait_text("! no answer for")
            self.daemon = self.start_daemon()
            top.wait("the new daemon's answers", lambda s: "no answer" not in s.text and "healthy" in s.text)
            top.type("q")
            self.assertEqual(top.finish(), 0)
            self.assertTrue(top.restored())

    def test_keys_beside_a_frozen_daemon(self) -> None:
        """None waits for the call that is under way, which lasts for ten minutes."""
        top = self.top("--timeout", "600")
        top.wait_text("no job yet")
        self.daemon.process.signal(signal.SIGSTOP)
        begin = time.monotonic()
        top.type("s")
        top.wait_text("s sort: trouble")
        top.type("q")
        self.assertEqual(top.finish(), 0)
        print(f"two keys: {1e3 * (time.monotonic() - begin):.0f} ms")
        self.assertTrue(top.restored())

    def test_straggler_is_marked(self) -> None:
        with self.training("lagging", "enforce", "--throttle", "20", "--slow", "1:10"):
            top = self.top("lagging", columns=140)
            top.wait(
                "the mark on rank 1 alone",
                lambda s: [line.split()[1] for line in s.lines if line.startswith("!") and "straggler" in line and "[" not in line]
                == ["1"],
            )
            print("\n" + top.screen.text)

    def test_words_and_colours(self) -> None:
        with self.training("wasteful", "audit"):
            for environment, utf8, colours in (({}, True, True), ({"LC_ALL": "C"}, False, True), ({"NO_COLOR": "1"}, True, False)):
                with self.subTest(environment=environment):
                    top = self.top(environment=environment)
                    top.wait("a bar", lambda s: set("█░#") & set(s.text))
                    top.wait_text("WARNING")
                    self.assertEqual(bool(set("█░") & set(top.screen.text)), utf8)
                    self.assertEqual(any(ord(c) > 126 for c in top.screen.text), utf8)
                    self.assertEqual(bool(top.screen.colours), colours, top.screen.colours)
                    top.type("q")
                    self.assertEqual(top.finish(), 0)

    def test_pipe_and_dumb_terminal(self) -> None:
        with self.training("healthy"):
            plain = self.run_plain("-n", "2", "healthy")
            self.assertEqual((plain.returncode, plain.stderr), (0, ""))
            self.assertNotIn("\x1b", plain.stdout)
            self.assertEqual(plain.stdout.count("gradgatectl top"), 2)
            rates = next(line for line in plain.stdout.splitlines() if line.startswith(">")).split()
            self.assertGreater(float(rates[4]), 0)
            for dumb in ({"TERM": "dumb"}, {"TERM": ""}):
                top = self.top("healthy", columns=60, environment=dumb)
                top.wait("two snapshots", functools.partial(self.has_snapshots, top))
                self.assertNotIn("\x1b", top.output)
                self.assertLessEqual(max(len(line) for line in top.output.splitlines()), 60)
                top.signal(signal.SIGINT)
                self.assertEqual(top.finish(), 0)
            reader = subprocess.Popen(self.command("healthy"), stdout=subprocess.PIPE, text=True)
            assert reader.stdout
            reader.stdout.readline()
            reader.stdout.close()
            self.assertEqual(reader.wait(timeout=processes.DEADLINE_S), 0)

    def test_errors_of_the_first_answer(self) -> None:
        nobody = self.run_plain("--once", "nobody")
        self.assertEqual(nobody.returncode, 4)
        self.assertIn('no job "nobody"', nobody.stderr)
        top = self.top("nobody")
        self.assertEqual(top.finish(), 4)
        self.assertIn('no job "nobody"', top.output)
        self.assertNotIn("\x1b", top.output)
        self.daemon.kill()
        self.assertEqual(self.run_plain("--once").returncode, 3)
        top = self.top()
        self.assertEqual(top.finish(), 3)
        self.assertNotIn("\x1b", top.output)


if __name__ == "__main__":
    case.main()
