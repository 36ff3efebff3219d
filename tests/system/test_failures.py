"""What cannot work ends in an error that names the rank, within the deadline given: never a hang, never silence."""

from __future__ import annotations

import contextlib
import pathlib
import signal
import socket
import time
from collections.abc import Iterator, Mapping

import case
from case import processes

DEADLINE_S = 4.0
# Beyond the deadline a rank still has to start, to give up and to say so, on a machine that may be busy.
MARGIN_S = 15.0
Options = tuple[str, ...]


class Separate(case.SystemCase):
    """Ranks started one by one, as on several machines."""

    @contextlib.contextmanager
    def ranks(
        self, world: int, options: Mapping[int, Options], url: str = "", env: dict[int, str] | None = None
    ) -> Iterator[list[processes.Process]]:
        """Starts the ranks that `options` has, with what it says; env: GRADGATE of some."""
        common = ("--world-size", str(world), "--rendezvous", url or f"file://{self.folder}/meet", "--deadline", str(DEADLINE_S))
        with contextlib.ExitStack() as stack:
            yield [
                stack.enter_context(
                    processes.trainer(
                        self.binaries,
                        *("--rank", str(rank), *common, "--job", self.job, *case.EXACT, *case.NO_DAEMON, *own),
                        env={"GRADGATE": (env or {}).get(rank, "enforce")},
                    )
                )
                for rank, own in options.items()
            ]

    def assert_gives_up(self, process: processes.Process, pattern: str) -> None:
        """It ends with one line that matches, within the deadline."""
        begin = time.monotonic()
        self.assertEqual(process.finish(), 1, process.output)
        self.assertLess(time.monotonic() - begin, DEADLINE_S + MARGIN_S)
        errors = [line for line in process.lines if line.startswith("digits: rank ")]
        self.assertEqual(len(errors), 1, process.output)
        self.assertRegex(errors[0], pattern)

    def test_peer_that_never_comes(self) -> None:
        with self.ranks(3, {0: (), 2: ()}) as started:
            for process in started:
                self.assert_gives_up(process, r"DEADLINE_EXCEEDED: ranks \[1\] did not come within 4")

    def test_peer_that_never_comes_over_tcp(self) -> None:
        with self.ranks(3, {0: (), 1: ()}, f"tcp://127.0.0.1:{free_port()}") as started:
            for process in started:
                self.assert_gives_up(process, r"DEADLINE_EXCEEDED: ranks \[2\] did not come within 4")

    def test_host_that_never_comes(self) -> None:
        url = f"tcp://127.0.0.1:{free_port()}"
        with self.ranks(2, {1: ()}, url) as started:
            self.assert_gives_up(started[0], rf"(DEADLINE_EXCEEDED|UNAVAILABLE): .*{url.removeprefix('tcp://')}")

    def test_other_configuration(self) -> None:
        for own, what in ((("--accumulate", "3"), "accumulate=3"), (("--bucket-bytes", "64"), "bucket"), (("--hidden", "18"), "tensors")):
            with self.subTest(what), self.ranks(2, {0: (), 1: own}, f"file://{self.folder}/meet-{what}") as started:
                for process in started:
                    self.assert_gives_up(process, rf"ABORTED: .*rank 1 has .*{what}")

    def test_switched_off_on_one_rank(self) -> None:
        with self.ranks(2, {0: (), 1: ()}, env={1: "off"}) as started:
            for process in started:
                self.assert_gives_up(process, "ABORTED: .*rank 1 has GRADGATE=off where rank 0 has enforce")

    def test_rank_dies_in_a_reduction(self) -> None:
        for mode in ("window", "every_micro_step"):
            options: Options = ("--mode", mode, "--crash", "1:2")
            with self.subTest(mode), self.ranks(3, dict.fromkeys(range(3), options), f"file://{self.folder}/meet-{mode}") as started:
                for rank in (0, 2):
                    self.assert_gives_up(started[rank], r"(UNAVAILABLE|DEADLINE_EXCEEDED): window 2\b.*ranks \[1\] did not come")
                self.assertEqual(started[1].finish(), -signal.SIGKILL)

    def test_rank_that_stops(self) -> None:
        """Frozen, not dead: its connections stand, only the deadline tells."""
        with self.ranks(2, {0: ("--pause-at-window", "2"), 1: ()}) as started:
            started[0].wait_line("paused at window 2")
            started[1].signal(signal.SIGSTOP)
            started[0].say()
            self.assert_gives_up(started[0], r"DEADLINE_EXCEEDED: window [23]\b.*ranks \[1\] did not come")

    def test_ranks_that_disagree_about_the_boundary(self) -> None:
        options: Options = ("--windows", "equal", "--strict", "--drop", "1:2", "--epochs", "1", "--batch", "30")
        with self.ranks(2, {0: options, 1: options}) as started:
            for process in started:
                self.assert_gives_up(process, r"ABORTED: window 2: .*different micro-steps.*ranks \[0\] have 4.*ranks \[1\] have 3")

    def test_ranks_over_tcp(self) -> None:
        url = f"tcp://127.0.0.1:{free_port()}"
        own = {rank: ("--epochs", "1", "--report", str(self.folder / f"rank-{rank}.json")) for rank in range(2)}
        with self.ranks(2, own, url) as started:
            for process in started:
                self.assertEqual(process.finish(), 0, process.output)
        hashes = [case.read_report(self.folder / f"rank-{rank}.json")["ranks"][0]["parameter_hash"] for rank in range(2)]
        alone = self.one_hash(self.train("--as-world", "2", "--epochs", "1", *case.EXACT, *case.NO_DAEMON))
        self.assertEqual(hashes, [alone, alone])


class Disagreement(case.SystemCase):
    def test_told_but_exact_when_not_strict(self) -> None:
        options = (*case.EXACT, *case.NO_DAEMON, "--ranks", "2", "--epochs", "1", "--batch", "30", "--drop", "1:2")
        equal = self.train(*options, "--windows", "equal")
        self.assertEqual(self.one_hash(equal), self.one_hash(self.train(*options, "--windows", "variable")))
        for rank in equal["ranks"]:
            self.assertEqual(rank["stats"]["windows_disagreed"], 1)
            self.assertEqual(rank["stats"]["warnings"], 1)


class Launcher(case.SystemCase):
    """The trainer's own launcher leaves nobody behind."""

    def left(self) -> list[str]:
        """Living processes of this test's job."""
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if self.job in entry.read_text().split("\0"):
                    found.append(entry.parent.name)
        return found

    def test_rank_that_dies(self) -> None:
        options = ("--ranks", "3", "--job", self.job, "--crash", "2:1", "--deadline", str(DEADLINE_S), *case.EXACT, *case.NO_DAEMON)
        with processes.trainer(self.binaries, *options) as process:
            self.assertEqual(process.finish(), 1)
            self.assertIn("rank 2 was killed by signal 9", process.output)
            self.assertRegex(process.output, r"digits: rank 0: .*ranks \[2\] did not come")
            self.assertEqual(self.left(), [])

    def test_killed_or_terminated(self) -> None:
        for number, status in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 1), (signal.SIGINT, 1)):
            options = ("--ranks", "3", "--job", self.job, "--pause-at-window", "1", *case.EXACT, *case.NO_DAEMON)
            with self.subTest(number.name), processes.trainer(self.binaries, *options) as process:
                process.wait_line("paused at window 1")
                self.assertEqual(len(self.left()), 4)
                process.signal(number)
                self.assertEqual(process.popen.wait(timeout=processes.DEADLINE_S), status)
                processes.wait_for("no rank is left", lambda: not self.left())

    def test_wrong_option(self) -> None:
        for options, text in (
            (("--divide", "wrld"), "digits: --divide: wrld not in {items,world,active}"),
            (("--exact",), "digits: --exact: needs --dtype float64"),
            (("--data", "/nonexistent"), "digits: rank 0: cannot read /nonexistent: give the CSV with --data"),
            (("--rank", "2", "--world-size", "2"), "digits: --rank: 2 is not below --world-size 2"),
        ):
            with self.subTest(options), processes.trainer(self.binaries, *options) as process:
                self.assertEqual(process.finish(), 1)
                self.assertEqual(process.lines, [text])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    case.main()
