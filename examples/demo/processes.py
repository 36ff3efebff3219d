"""The daemon and the trainer as child processes, for the demo and the tests. Standard library only.

Every wait has a deadline; whatever was started is ended when its `with` block is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import queue
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

DEADLINE_S = 60.0
T = TypeVar("T")


def wait_for(what: str, condition: Callable[[], T | None], deadline_s: float = DEADLINE_S) -> T:
    """Asks an outside process again and again until it answers with something, as there is no event to wait for."""
    end = time.monotonic() + deadline_s
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > end:
            raise TimeoutError(f"not within {deadline_s:g} s: {what}")
        time.sleep(0.02)


class Process:
    """A child whose lines of output are kept and can be waited for."""

    def __init__(self, command: list[str], env: dict[str, str] | None = None) -> None:
        self.command = command
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self.popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout
        for line in self.popen.stdout:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def _next(self, end: float) -> str | None:
        try:
            line = self._queue.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            raise TimeoutError(f"no further output from {self.command}:\n{self.output}") from None
        if line is not None:
            self.lines.append(line)
        return line

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def wait_line(self, text: str, deadline_s: float = DEADLINE_S) -> str:
        """The next line that has `text` in it."""
        end = time.monotonic() + deadline_s
        while (line := self._next(end)) is not None:
            if text in line:
                return line
        raise RuntimeError(f"ended without saying {text!r}: {self.command}\n{self.output}")

    def say(self, line: str = "") -> None:
        assert self.popen.stdin
        self.popen.stdin.write(line + "\n")
        self.popen.stdin.flush()

    def finish(self, deadline_s: float = DEADLINE_S) -> int:
        """Waits for the end; returns the exit status."""
        with contextlib.suppress(BrokenPipeError):
            assert self.popen.stdin
            self.popen.stdin.close()
        status = self.popen.wait(timeout=deadline_s)
        end = time.monotonic() + deadline_s
        while self._next(end) is not None:
            pass
        return status

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self.popen.poll() is None:
            self.popen.kill()  # also when stopped
        self.popen.wait()
        for stream in (self.popen.stdin, self.popen.stdout):
            with contextlib.suppress(BrokenPipeError):
                if stream:
                    stream.close()


class Binaries:
    """The programs of one build folder: the daemon, its tool, and what else is named."""

    def __init__(self, build_dir: str | pathlib.Path, *others: str) -> None:
        self.folder = pathlib.Path(build_dir).resolve() / "bin"
        for name in ("gradgated", "gradgatectl", *others):
            if not (self.folder / name).exists():
                raise FileNotFoundError(f"{self.folder / name} is not there: build it first")

    def path(self, name: str) -> str:
        return str(self.folder / name)


class Daemon:
    """A gradgated with its sockets in `directory` and its metrics on a free port; started by what `enter` begins a command with."""

    def __init__(self, binaries: Binaries, directory: str | pathlib.Path, *flags: str, enter: tuple[str, ...] = ()) -> None:
        self.binaries = binaries
        self.directory = str(directory)
        command = [*enter, binaries.path("gradgated"), f"--dir={directory}", "--metrics_listen=127.0.0.1:0", *flags]
        self.process = Process(command)
        self.metrics_url = self.process.wait_line(" ready: ").split("metrics ")[1]

    def ctl(self, *arguments: str) -> Any:
        """What gradgatectl --json answers, or None if the daemon knows no such job."""
        command = [self.binaries.path("gradgatectl"), "--dir", self.directory, "--json", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        if done.returncode == 4:
            return None
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def status(self, job: str) -> Any:
        return self.ctl("status", job)

    def wait_state(self, job: str, state: str, deadline_s: float = DEADLINE_S) -> Any:
        """The job's status once it is in `state`."""

        def reached() -> Any:
            status = self.status(job)
            return status if status and status["job"]["state"] == f"STATE_{state}" else None

        return wait_for(f"job {job} is {state}", reached, deadline_s)

    def scrape(self) -> str:
        with urllib.request.urlopen(self.metrics_url, timeout=DEADLINE_S) as answer:
            return str(answer.read().decode())

    def kill(self) -> None:
        self.process.signal(signal.SIGKILL)
        self.process.popen.wait()

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None and self.process.popen.poll() is None:
            self.process.signal(signal.SIGCONT)
            self.process.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.popen.wait(timeout=15)
        self.process.__exit__()


@contextlib.contextmanager
def trainer(binaries: Binaries, *options: str, env: dict[str, str] | None = None) -> Iterator[Process]:
    """digits with these options, running."""
    with Process([binaries.path("digits"), *options], env) as process:
        yield process


def train(binaries: Binaries, report: pathlib.Path, *options: str, deadline_s: float = DEADLINE_S) -> Any:
    """Runs digits to its end and returns its report; raises if it fails."""
    with trainer(binaries, *options, "--report", str(report)) as process:
        if process.finish(deadline_s) != 0:
            raise RuntimeError(f"{' '.join(process.command)} failed:\n{process.output}")
    return json.loads(report.read_text())
