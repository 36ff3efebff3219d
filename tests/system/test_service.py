"""gradgated as a service: what it tells a service manager, and the unit that systemd is given."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SYSTEMD = ROOT / "deploy" / "systemd"
GRADGATED = pathlib.Path(os.environ.get("GRADGATE_BUILD_DIR", ROOT / "build" / "debug")).resolve() / "bin" / "gradgated"
DEADLINE = 30.0


class Manager:
    """The service manager's end of $NOTIFY_SOCKET."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)

    def next(self, seconds: float = DEADLINE) -> list[str]:
        """The lines of the next message; none if it does not come in time."""
        self.socket.settimeout(seconds)
        try:
            return self.socket.recv(4096).decode().splitlines()
        except TimeoutError:
            return []

    def until(self, line: str) -> list[str]:
        """The first message with that line, others left out."""
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            lines = self.next(end - time.monotonic())
            if line in lines:
                return lines
        raise AssertionError(f"no {line} in {DEADLINE:.0f} s")

    def pending(self) -> list[str]:
        """What has come already."""
        lines: list[str] = []
        self.socket.setblocking(False)
        try:
            while True:
                lines += self.socket.recv(4096).decode().splitlines()
        except BlockingIOError:
            return lines


class Service(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="gradgate-service-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.manager = Manager(str(self.folder / "notify"))
        self.addCleanup(self.manager.socket.close)

    def start(self, *flags: str, **environment: str) -> subprocess.Popen[str]:
        command = [str(GRADGATED), f"--dir={self.folder}", "--metrics_listen=127.0.0.1:0", "--store=memory", *flags]
        daemon = subprocess.Popen(
            command,
            env={**os.environ, "NOTIFY_SOCKET": str(self.folder / "notify"), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.addCleanup(self.end, daemon)
        return daemon

    @staticmethod
    def end(daemon: subprocess.Popen[str]) -> None:
        daemon.kill()
        daemon.communicate(timeout=DEADLINE)

    def connects(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as trainer:
            return trainer.connect_ex(str(self.folder / "shim.sock")) == 0

    def stopped(self, process_id: int) -> bool:
        return pathlib.Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"

    def test_ready_when_it_serves_and_stopping_when_it_is_told_to_end(self) -> None:
        daemon = self.start()
        first = self.manager.next()
        self.assertTrue(self.connects())
        self.assertEqual(first[0], "READY=1")
        assert daemon.stdout
        self.assertEqual(first[1:], [f"STATUS={daemon.stdout.readline().rstrip()}"])
        self.assertIn(f"ready: shim {self.folder}/shim.sock", first[1])
        daemon.send_signal(signal.SIGTERM)
        self.assertEqual(self.manager.next(), ["STOPPING=1", "STATUS=shutting down"], "without a watchdog there are no pings between")
        self.assertEqual(daemon.wait(DEADLINE), 0)
        self.assertFalse(self.connects())

    def test_a_daemon_that_cannot_serve_is_never_ready(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            daemon = self.start(f"--metrics_listen=127.0.0.1:{taken.getsockname()[1]}")
            self.assertEqual(daemon.wait(DEADLINE), 1)
        self.assertEqual(self.manager.pending(), [])

    def test_the_watchdog_is_fed_by_a_daemon_that_runs_alone(self) -> None:
        daemon = self.start("--poll_interval=10ms", WATCHDOG_USEC="200000", WATCHDOG_PID="")
        self.manager.until("READY=1")
        for _ in range(3):
            self.assertEqual(self.manager.next(), ["WATCHDOG=1"])
        daemon.send_signal(signal.SIGSTOP)
        end = time.monotonic() + DEADLINE
        while not self.stopped(daemon.pid) and time.monotonic() < end:
            time.sleep(0.01)
        self.manager.pending()
        self.assertEqual(self.manager.next(1.0), [], "five periods in which nothing comes")
        daemon.send_signal(signal.SIGCONT)
        self.assertEqual(self.manager.next(), ["WATCHDOG=1"])

    def test_pings_come_four_times_a_period(self) -> None:
        self.start("--poll_interval=1ms", WATCHDOG_USEC="4000000", WATCHDOG_PID="")
        self.manager.until("WATCHDOG=1")
        begin = time.monotonic()
        self.manager.until("WATCHDOG=1")
        self.assertGreater(time.monotonic() - begin, 0.5, "not at every turn of the loop")
        self.assertLess(time.monotonic() - begin, 3.0)

    def test_another_processes_watchdog_is_left_alone(self) -> None:
        daemon = self.start("--poll_interval=1ms", WATCHDOG_USEC="1000", WATCHDOG_PID=str(os.getpid()))
        self.manager.until("READY=1")
        self.assertEqual(self.manager.next(0.5), [])
        daemon.send_signal(signal.SIGTERM)
        self.assertEqual(self.manager.next()[0], "STOPPING=1")


@unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
class Unit(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="gradgate-unit-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def analyze(self, *arguments: str) -> str:
        done = subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_unit_is_well_formed(self) -> None:
        unit = (SYSTEMD / "gradgated.service").read_text(encoding="utf-8")
        document = self.folder / "README.md"
        document.touch()
        text = unit.replace("/usr/bin/gradgated", str(GRADGATED)).replace("/usr/share/doc/gradgated/README.md", str(document))
        (self.folder / "gradgated.service").write_text(text, encoding="utf-8")
        said = self.analyze("verify", "--man=no", "--recursive-errors=no", str(self.folder / "gradgated.service"))
        self.assertNotIn("gradgated.service", said)

    def test_unit_exposes_little(self) -> None:
        said = self.analyze("security", "--offline=true", "--threshold=20", "--no-pager", str(SYSTEMD / "gradgated.service"))
        level = re.search(r"exposure level for gradgated.service: ([0-9.]+)", said)
        assert level, said
        self.assertLessEqual(float(level.group(1)), 2.0)

    def test_unit_says_what_the_rest_relies_on(self) -> None:
        unit = (SYSTEMD / "gradgated.service").read_text(encoding="utf-8")
        user = (SYSTEMD / "gradgate.sysusers").read_text(encoding="utf-8").splitlines()[-1].split()[1]
        directory = (SYSTEMD / "gradgate.tmpfiles").read_text(encoding="utf-8").splitlines()[-1].split()[1]
        for line in (
            "Type=notify",
            "NotifyAccess=main",
            f"User={user}",
            f"RuntimeDirectory={directory.removeprefix('/run/')}",
            "RuntimeDirectoryPreserve=yes",
            "Restart=on-failure",
        ):
            self.assertIn(f"\n{line}\n", unit)
        watchdog = re.search(r"^WatchdogSec=(\d+)s$", unit, re.MULTILINE)
        assert watchdog
        self.assertGreater(int(watchdog.group(1)), 2 * 10, "twice the longest --poll_interval")

    @unittest.skipUnless(shutil.which("systemd-sysusers"), "systemd-sysusers is not installed")
    def test_user_and_directory_can_be_made(self) -> None:
        (self.folder / "etc").mkdir()
        for command in (
            ["systemd-sysusers", f"--root={self.folder}", str(SYSTEMD / "gradgate.sysusers")],
            ["systemd-tmpfiles", f"--root={self.folder}", "--create", str(SYSTEMD / "gradgate.tmpfiles")],
        ):
            if os.geteuid() != 0:
                self.skipTest("needs root")
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        users = (self.folder / "etc/passwd").read_text(encoding="utf-8").splitlines()
        user = next(line.split(":") for line in users if line.startswith("gradgate:"))
        self.assertEqual(user[6], "/usr/sbin/nologin")
        made = (self.folder / "run/gradgate").stat()
        self.assertEqual((made.st_uid, made.st_gid, made.st_mode & 0o7777), (int(user[2]), int(user[3]), 0o755))

    def test_the_flags_that_are_shipped_are_taken(self) -> None:
        shipped = (SYSTEMD / "gradgated.flags").read_text(encoding="utf-8")
        active = [line for line in shipped.splitlines() if line and not line.startswith("#")]
        self.assertEqual(active, [], "what is shipped is the default")
        known = subprocess.run([GRADGATED, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
        for flag in re.findall(r"^#(--\w+)=", shipped, re.MULTILINE):
            self.assertIn(f"\n  {flag} ", known)
        flags = self.folder / "flags"
        flags.write_text(f"{shipped}--poll_interval=1us\n", encoding="utf-8")
        done = subprocess.run([GRADGATED, f"--flagfile={flags}"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, "gradgated: --poll_interval is 1us, must be between 1ms and 10s\n"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
