"""Two machines, as two network namespaces with a cable between them. Needs root; skipped, and said so, without."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import unittest

import case
from case import processes


class TwoNodes(case.SystemCase):
    def ip(self, *arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30)

    def setUp(self) -> None:
        super().setUp()
        if os.geteuid() != 0 or not shutil.which("ip"):
            raise unittest.SkipTest("needs root and the ip command")
        self.spaces = [f"gg{os.getpid()}{side}" for side in "ab"]
        self.cables = [f"v{os.getpid()}{side}" for side in "ab"]
        for space in self.spaces:
            try:
                self.ip("netns", "add", space)
            except subprocess.CalledProcessError as error:
                raise unittest.SkipTest(f"no network namespaces here: {error.stderr.strip()}") from None
            self.addCleanup(self.ip, "netns", "del", space)
        here, there = zip(self.spaces, self.cables, strict=True)
        self.ip("link", "add", here[1], "netns", here[0], "type", "veth", "peer", "name", there[1], "netns", there[0])
        for number, (space, cable) in enumerate((here, there), 1):
            self.ip("-n", space, "addr", "add", f"10.213.7.{number}/24", "dev", cable)
            self.ip("-n", space, "link", "set", cable, "up")
            self.ip("-n", space, "link", "set", "lo", "up")

    def command(self, rank: int, *options: str) -> list[str]:
        common = ("--world-size", "2", "--rendezvous", "tcp://10.213.7.1:29400", "--epochs", "2", "--deadline", "30")
        own = ("--rank", str(rank), "--report", str(self.folder / f"rank-{rank}.json"))
        return [
            "ip",
            "netns",
            "exec",
            self.spaces[rank],
            self.binaries.path("digits"),
            *common,
            *own,
            *case.EXACT,
            *case.NO_DAEMON,
            *options,
        ]

    def test_same_bytes_as_one_process(self) -> None:
        with contextlib.ExitStack() as stack:
            ranks = [
                stack.enter_context(processes.Process(self.command(rank), env={"GLOO_SOCKET_IFNAME": self.cables[rank]}))
                for rank in range(2)
            ]
            for process in ranks:
                self.assertEqual(process.finish(), 0, process.output)
        reports = [case.read_report(self.folder / f"rank-{rank}.json") for rank in range(2)]
        alone = self.one_hash(self.train("--as-world", "2", "--epochs", "2", *case.EXACT, *case.NO_DAEMON))
        self.assertEqual([self.one_hash(report) for report in reports], [alone, alone])
        for report in reports:
            self.assert_own_counts(report)

    def test_without_an_interface_the_remedy_is_told(self) -> None:
        with contextlib.ExitStack() as stack:
            ranks = [
                stack.enter_context(processes.Process(self.command(rank, "--deadline", "3"), env={"GLOO_SOCKET_IFNAME": "lo"}))
                for rank in range(2)
            ]
            for process in ranks:
                self.assertEqual(process.finish(), 1, process.output)
                self.assertRegex(process.output, "set GLOO_SOCKET_IFNAME to the interface between them")


if __name__ == "__main__":
    case.main()
