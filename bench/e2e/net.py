"""Two nodes on one machine: two network namespaces joined by a veth pair whose ends are as slow as wanted.

    with net.Nodes() as nodes:
        nodes.rate(400e6)                                   # bits a second, both ways; may be called while traffic flows
        subprocess.run([*nodes.enter(0), "python3", ...])   # a process of node 0, whose nodes.interface has nodes.address(0)

Traffic inside a node does not pass the link. Needs root, iproute2 and the kernel's tbf queue: `unavailable()` says what is missing.
What is made is removed when the block is left, whatever ends it; what a killed run left is removed by the next.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess

PREFIX = "gradgate-e2e"
BURST_BYTES = 64 * 1024  # the largest packet that a veth pair hands on in one piece
LATENCY = "200ms"


class NetworkError(RuntimeError):
    """A command of iproute2 failed."""


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode != 0:
        raise NetworkError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def unavailable() -> str | None:
    """Why there can be no nodes here; None if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "tc", "setpriv") if not shutil.which(tool)]
    if missing:
        return f"{', '.join(missing)} not installed (iproute2, util-linux)"
    try:
        with Nodes() as nodes:
            nodes.rate(1e9)
    except NetworkError as error:
        return str(error)
    return None


def remove_stale() -> None:
    """Namespaces whose makers are gone; the links go with them."""
    for line in run("ip", "netns", "list").splitlines():
        name = line.split()[0] if line else ""
        maker = name.removeprefix(PREFIX + "-").split("-")[0]
        if name.startswith(PREFIX + "-") and not pathlib.Path(f"/proc/{maker}").exists():
            run("ip", "netns", "delete", name)


class Nodes:
    """Node 0 and node 1. Thread class: one thread."""

    interface = "node"

    def __init__(self) -> None:
        self._names = [f"{PREFIX}-{os.getpid()}-{node}" for node in (0, 1)]
        self._shaped = False

    def __enter__(self) -> Nodes:
        remove_stale()
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _make(self) -> None:
        for name in self._names:
            run("ip", "netns", "add", name)
        first, second = self._names
        run("ip", "link", "add", self.interface, "netns", first, "type", "veth", "peer", "name", self.interface, "netns", second)
        for node, name in enumerate(self._names):
            run("ip", "-netns", name, "address", "add", f"{self.address(node)}/30", "dev", self.interface)
            for interface in ("lo", self.interface):
                run("ip", "-netns", name, "link", "set", interface, "up")

    def _remove(self) -> None:
        for name in self._names:
            with contextlib.suppress(NetworkError):
                run("ip", "netns", "delete", name)

    def address(self, node: int) -> str:
        return f"10.213.77.{1 + node}"

    def enter(self, node: int) -> list[str]:
        """What to put before a command so that it runs on that node, and ends when this thread does."""
        return ["ip", "netns", "exec", self._names[node], "setpriv", "--pdeathsig", "KILL"]

    def rate(self, bits_per_second: float) -> None:
        """Of each direction. At most `LATENCY` of traffic waits in the queue; more is dropped, as by a switch."""
        what = "change" if self._shaped else "add"
        bucket = max(BURST_BYTES, int(bits_per_second / 8 / 250))  # what passes in a tick of the slowest kernel clock
        for name in self._names:
            shape = ["rate", f"{bits_per_second:.0f}bit", "burst", f"{bucket}b", "latency", LATENCY]
            run("tc", "-netns", name, "qdisc", what, "dev", self.interface, "root", "tbf", *shape)
        self._shaped = True
