"""Faults for a daemon beside a running trainer, drawn from a seed.

    deck of all faults, shuffled ──► one fault: break, let the trainer run on, mend ──► look: what the daemon tells so far
              ▲                                                                              │
              └──────────────────────────── until the trainer says that it is done ──────────┘

Each fault leaves a running daemon behind, which is seldom the one it found. Time passes only in rest(), which ends early when the
trainer is done. What a daemon says when it refuses to start is checked here, and that it never ends by itself, memory apart.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator

from case import processes, sources

MAX_CLIENTS = 48
FLAGS = ("--metrics_listen=127.0.0.1:0", f"--max_clients={MAX_CLIENTS}", "--hello_timeout=1s")
SHUTDOWN_S = 15.0
SOCKETS = ("shim.sock", "api.sock")
MIB = 1 << 20


class Refused(Exception):
    """A gradgated that did not start: its exit status and what it said."""

    def __init__(self, process: processes.Process) -> None:
        super().__init__(f"{process.command} ended with {process.popen.returncode}:\n{process.output}")
        self.status = process.popen.returncode
        self.lines = process.lines


class Gradgated(processes.Daemon):
    """As Daemon, with limits that a test reaches; `prefix` is a command that becomes it. Raises Refused."""

    def __init__(self, binaries: processes.Binaries, directory: pathlib.Path, *prefix: str) -> None:
        self.binaries = binaries
        self.directory = str(directory)
        self.process = processes.Process([*prefix, binaries.path("gradgated"), f"--dir={directory}", *FLAGS])
        try:
            self.metrics_url = self.process.wait_line(" ready: ").split("metrics ")[1]
        except RuntimeError:
            self.process.__exit__()
            raise Refused(self.process) from None
        except BaseException:
            self.process.__exit__()
            raise
        self.limit(resource.RLIMIT_CORE, 0)

    @property
    def pid(self) -> int:
        return self.process.popen.pid

    def limit(self, what: int, soft: int) -> None:
        resource.prlimit(self.pid, what, (soft, resource.prlimit(self.pid, what)[1]))

    def unlimit(self, what: int) -> None:
        hard = resource.prlimit(self.pid, what)[1]
        resource.prlimit(self.pid, what, (hard, hard))

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def memory_bytes(self, what: int) -> int:
        """What now counts against RLIMIT_AS or RLIMIT_DATA."""
        pages = pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()
        return int(pages[0 if what == resource.RLIMIT_AS else 5]) * resource.getpagesize()


class Chaos:
    """The daemon of `directory` and what befalls it. Valid in its `with` block, which ends every daemon."""

    trainer: processes.Process
    job: str
    done_line: str
    daemon: Gradgated

    def __init__(self, binaries: processes.Binaries, directory: pathlib.Path) -> None:
        self.binaries, self.directory = binaries, directory
        self.seed = int(os.environ.get("GRADGATE_TEST_SEED") or int.from_bytes(os.urandom(4), "little"))
        self.random = random.Random(self.seed)
        self.done = False
        self.mounted = False
        self.counts: collections.Counter[str] = collections.Counter()
        self.deck: list[Callable[[], None]] = []
        self.windows: dict[int, int] = {}  # rank → the most windows that a daemon told in this run
        self.stack = contextlib.ExitStack()
        directory.mkdir()

    def __enter__(self) -> Chaos:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def mount(self) -> str | None:
        """Makes the directory a disk of its own; returns why that is not possible. The caller is in mounts of its own."""
        size = ["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=32", "gradgate-chaos", str(self.directory)]
        done = subprocess.run(size, capture_output=True, text=True, timeout=30, check=False)
        if done.returncode != 0:
            return done.stderr.strip()
        self.stack.callback(subprocess.run, ["umount", "--lazy", str(self.directory)], timeout=30, check=True)
        self.mounted = True
        return None

    def faults(self) -> list[Callable[[], None]]:
        always = [
            self.killed,
            self.terminated,
            self.stopped,
            self.stopped_and_killed,
            self.stuttering,
            self.without_descriptors,
            self.started_with_few_descriptors,
            self.without_memory,
            self.nice,
            self.flooded,
            self.flooded_at_its_start,
            self.sockets_removed,
            self.replaced_while_alive,
            self.path_taken,
            self.impostor,
        ]
        if self.mounted:
            return [*always, self.disk_full, self.read_only]
        return always if os.geteuid() == 0 else [*always, self.read_only]

    def run(self, trainer: processes.Process, job: str, done_line: str, deadline_s: float) -> None:
        """Fault after fault until the trainer says that it is done; a daemon is there before and after."""
        self.trainer, self.job, self.done_line, self.done, self.windows = trainer, job, done_line, False, {}
        end = time.monotonic() + deadline_s
        while not self.done:
            if time.monotonic() > end:
                raise TimeoutError(f"the trainer did not say {done_line!r} within {deadline_s:g} s:\n{trainer.output}")
            if not self.deck:
                self.deck = self.faults()
                self.random.shuffle(self.deck)
            fault = self.deck.pop()
            self.counts[fault.__name__] += 1
            fault()
            if self.daemon.process.popen.poll() is not None:
                raise AssertionError(f"{fault.__name__}: the daemon ended by itself, {self.ending()}")
            self.rest(0.2, 1.6)
            self.look()

    # Steps that faults are made of.

    def rest(self, least_s: float, most_s: float) -> None:
        """Lets the trainer run on, until it is done."""
        seconds = self.random.uniform(least_s, most_s)
        if not self.done:
            with contextlib.suppress(TimeoutError):
                self.trainer.wait_line(self.done_line, seconds)
                self.done = True

    def start(self, *prefix: str) -> None:
        self.daemon = Gradgated(self.binaries, self.directory, *prefix)
        self.stack.enter_context(self.daemon.process)
        self.counts["daemons started"] += 1

    def kill(self) -> None:
        if self.daemon.process.popen.poll() is None:
            self.daemon.kill()

    def terminate(self, daemon: Gradgated) -> None:
        daemon.process.signal(signal.SIGTERM)
        status = daemon.process.popen.wait(timeout=SHUTDOWN_S)
        if status != 0:
            raise AssertionError(f"SIGTERM ended the daemon with {status}:\n{daemon.process.output}")

    def ending(self) -> str:
        return f"status {self.daemon.process.popen.poll()}:\n{self.daemon.process.output}"

    def refuses(self, text: str) -> None:
        """A daemon started now ends with one line that has `text` in it."""
        try:
            self.start()
        except Refused as refused:
            if refused.status != 1 or len(refused.lines) != 1 or text not in refused.lines[0]:
                raise AssertionError(f"expected one line with {text!r}") from refused
            self.counts["daemons refused to start"] += 1
        else:
            raise AssertionError(f"the daemon started, where {text!r} was expected")

    def remove_sockets(self) -> None:
        for name in SOCKETS:
            (self.directory / name).unlink(missing_ok=True)

    def connect(self) -> socket.socket | None:
        """A connection that says nothing yet, or None where nobody takes it."""
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.setblocking(False)
        try:
            client.connect(str(self.directory / SOCKETS[0]))
        except OSError:
            client.close()
            return None
        self.counts["connections of the flood"] += 1
        return client

    def garbage(self) -> bytes:
        head = self.random.choice([b"", b"GGLK", b"GGLK\1\0\0\0", b"GGLK\1\0\0\0\1\0\0\0\x28\0\0\0"])
        return head + self.random.randbytes(self.random.choice([0, 1, 12, 24, 40, 240, 511, 512, 513, 4000]))

    def flood(self, connections: int) -> None:
        """Some speak nonsense, some with descriptors, some never; none reads. All have gone afterwards."""
        with contextlib.ExitStack() as clients:
            for number in range(connections):
                client = self.connect()
                if client is None:
                    self.rest(0.01, 0.01)  # the backlog is full
                    continue
                clients.callback(client.close)
                with contextlib.suppress(OSError):
                    for _ in range(self.random.randrange(4)):
                        descriptors = [0] * self.random.choice([0, 0, 1, 3, 12])
                        socket.send_fds(client, [self.garbage() or b"\0"], descriptors, socket.MSG_NOSIGNAL)
                if number % 3 == 0:
                    client.close()
            self.rest(0.2, 1.5)

    def look(self) -> None:
        """What the newest daemon tells: windows never go back, whichever daemon counts them; the scrape can be read."""
        status = self.daemon.status(self.job)
        for rank in status["ranks"] if status else []:
            number, windows = rank["rank"], int(rank["totals"]["step_count"])
            if windows < self.windows.get(number, 0):
                raise AssertionError(f"rank {number}: {windows} windows, after {self.windows[number]} were told")
            self.windows[number] = windows
        self.counts["looks at a daemon that has the job" if status else "looks at a daemon without the job"] += 1
        if not any(name == "gradgate_clients" for name, _, _ in sources.parse_metrics(self.daemon.scrape())):
            raise AssertionError("a scrape without gradgate_clients")

    def connected(self) -> int:
        status = self.daemon.status(self.job)
        return int(status["job"]["running_rank_count"]) if status else 0

    @contextlib.contextmanager
    def full_disk(self) -> Iterator[None]:
        """No block and no inode is left."""
        files = []
        try:
            for number in itertools.count():
                files.append(self.directory / f"full-{number}")
                try:
                    files[-1].write_bytes(bytes(65536))
                except OSError:
                    if not files[-1].exists():
                        break
            yield
        finally:
            for file in files:
                file.unlink(missing_ok=True)

    def remount(self, mode: str) -> None:
        if self.mounted:
            subprocess.run(["mount", "-o", f"remount,{mode}", str(self.directory)], timeout=30, check=True)
        else:
            self.directory.chmod(0o555 if mode == "ro" else 0o755)

    # The faults.

    def killed(self) -> None:
        self.kill()
        self.rest(0, 2)
        self.start()

    def terminated(self) -> None:
        self.terminate(self.daemon)
        self.rest(0, 2)
        self.start()

    def stopped(self) -> None:
        self.daemon.process.signal(signal.SIGSTOP)
        self.rest(0.2, 2.5)
        self.daemon.process.signal(signal.SIGCONT)

    def stopped_and_killed(self) -> None:
        self.daemon.process.signal(signal.SIGSTOP)
        self.rest(0, 2)
        self.killed()

    def stuttering(self) -> None:
        """A tenth of a processor, in slices."""
        for _ in range(self.random.randrange(10, 30)):
            self.daemon.process.signal(signal.SIGSTOP)
            self.rest(0.04, 0.08)
            self.daemon.process.signal(signal.SIGCONT)
            self.rest(0.004, 0.008)

    def without_descriptors(self) -> None:
        self.daemon.limit(resource.RLIMIT_NOFILE, self.daemon.open_files() + self.random.randrange(3))
        self.flood(30)
        self.daemon.unlimit(resource.RLIMIT_NOFILE)

    def started_with_few_descriptors(self) -> None:
        """So few that gRPC may fail, which ends the process, or that trainers cannot be taken."""
        self.kill()
        few = self.random.randrange(5, 24)
        try:
            self.start("prlimit", "--core=0", f"--nofile={few}:")
        except Refused as refused:
            if not refused.lines:
                raise
            self.counts["daemons refused to start"] += 1
        else:
            self.rest(0.5, 2.5)
            self.kill()
        self.start()

    def without_memory(self) -> None:
        """The only fault that the daemon need not live through: an allocation that fails aborts it, a page that does not fit is refused."""
        if self.random.randrange(2):
            self.killed()
        what = self.random.choice([resource.RLIMIT_AS, resource.RLIMIT_DATA])
        self.daemon.limit(what, self.daemon.memory_bytes(what) + self.random.choice([0, MIB // 8, MIB]))
        self.flood(40)
        self.rest(0.5, 1.5)
        for ask in (lambda: self.daemon.ctl("--timeout", "2", "status", self.job), self.daemon.scrape):
            with contextlib.suppress(RuntimeError, OSError):
                ask()
        with contextlib.suppress(ProcessLookupError):
            self.daemon.unlimit(what)
        try:
            self.connected()
        except RuntimeError:
            if self.daemon.process.popen.wait(timeout=SHUTDOWN_S) != -signal.SIGABRT:
                raise AssertionError(f"without memory: {self.ending()}") from None
            self.counts["daemons ended by lack of memory"] += 1
            self.start()

    def nice(self) -> None:
        os.setpriority(os.PRIO_PROCESS, self.daemon.pid, 19)
        self.rest(0.5, 2)
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, self.daemon.pid, 0)

    def flooded(self) -> None:
        """Those who are connected stay so."""
        before = self.connected()
        self.flood(self.random.randrange(100, 400))
        if not self.done and self.connected() < before:
            raise AssertionError(f"{before} ranks were connected before the flood, {self.connected()} after it")

    def flooded_at_its_start(self) -> None:
        """The trainer's next try may be turned away."""
        self.kill()
        self.start()
        self.flood(self.random.randrange(100, 400))

    def sockets_removed(self) -> None:
        """Nobody can come, those who are there stay; then it is replaced."""
        self.remove_sockets()
        self.rest(0.2, 1.5)
        self.terminate(self.daemon)
        self.start()

    def replaced_while_alive(self) -> None:
        """Two daemons: the old one keeps its trainers until it goes, and must not take the new one's sockets with it."""
        old = self.daemon
        self.remove_sockets()
        self.start()
        self.rest(0.2, 1.5)
        self.terminate(old)
        for name in SOCKETS:
            if not (self.directory / name).is_socket():
                raise AssertionError(f"{name} of the living daemon has gone with the old one")

    def path_taken(self) -> None:
        self.kill()
        self.remove_sockets()
        path = self.directory / SOCKETS[0]
        kind = self.random.choice(["file", "folder", "stream"])
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
            if kind == "file":
                path.touch()
            elif kind == "folder":
                path.mkdir()
            else:
                stream.bind(str(path))
                stream.listen()
            self.refuses("is another program's socket" if kind == "stream" else "is in the way and is no socket")
            self.rest(0.5, 2)
        if kind == "folder":
            path.rmdir()
        else:
            path.unlink()
        self.start()

    def impostor(self) -> None:
        """A program in the daemon's place that takes trainers and their pages and answers with nonsense."""
        self.kill()
        self.remove_sockets()
        path = self.directory / SOCKETS[0]
        with contextlib.ExitStack() as sockets:
            listener = sockets.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            listener.bind(str(path))
            listener.listen()
            listener.setblocking(False)
            for _ in range(self.random.randrange(10, 30)):
                with contextlib.suppress(BlockingIOError):
                    client = sockets.enter_context(listener.accept()[0])
                    client.setblocking(False)
                    self.counts["trainers fooled by the impostor"] += 1
                    with contextlib.suppress(OSError):
                        socket.send_fds(client, [self.garbage() or b"\0"], [0] * self.random.randrange(2), socket.MSG_NOSIGNAL)
                self.rest(0.1, 0.1)
        path.unlink()
        self.start()

    def disk_full(self) -> None:
        with self.full_disk():
            self.rest(0.2, 1)  # the daemon that is there needs no disk
            if not self.done:
                self.look()
            self.kill()
            self.remove_sockets()
            with self.full_disk():  # and the sockets' inodes
                self.refuses("No space left on device")
                self.rest(0, 1)
        self.start()

    def read_only(self) -> None:
        self.remount("ro")
        try:
            self.rest(0.2, 1)
            self.kill()
            self.refuses("Read-only file system" if self.mounted else "Permission denied")
            self.rest(0, 1)
        finally:
            self.remount("rw")
        self.start()


def in_own_mounts(argv: list[str]) -> None:
    """Runs this program again where a mount is nobody else's, if that is possible; no mount outlives it."""
    variable = "GRADGATE_OWN_MOUNTS"
    if variable in os.environ or not shutil.which("unshare"):
        return
    command = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*command, "true"], capture_output=True, timeout=30, check=False).returncode == 0:
        os.execvpe(command[0], [*command, *argv], {**os.environ, variable: "1"})
