"""Starts the ranks of one job, on two nodes or on this one, and answers what rank 0 asks for while they run.

Ranks are given the variables that torchrun gives them. Whatever was started has ended when launch() returns, or raises.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent), str(ROOT / "examples/demo")]
import figures  # noqa: E402
import net  # noqa: E402
import processes  # noqa: E402

PORT = 29555  # on a node of our own, where nobody else listens
Answers = Mapping[str, Callable[[str], None]]


class Place:
    """Where ranks run: `nodes` None is this machine's own loopback."""

    def __init__(self, nodes: net.Nodes | None, ranks_per_node: int) -> None:
        self.nodes = nodes
        self.ranks_per_node = ranks_per_node
        self.world = ranks_per_node * (2 if nodes else 1)

    def enter(self, rank: int) -> list[str]:
        return self.nodes.enter(rank // self.ranks_per_node) if self.nodes else ["setpriv", "--pdeathsig", "KILL"]

    def environment(self, rank: int, port: int) -> dict[str, str]:
        return {
            "MASTER_ADDR": self.nodes.address(0) if self.nodes else "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": self.nodes.interface if self.nodes else "lo",
            "RANK": str(rank),
            "LOCAL_RANK": str(rank % self.ranks_per_node),
            "WORLD_SIZE": str(self.world),
            "LOCAL_WORLD_SIZE": str(self.ranks_per_node),
        }


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Launcher:
    """What all jobs of a run share. `python` has torch."""

    def __init__(self, python: str, build_dir: pathlib.Path) -> None:
        self.python = python
        self.build_dir = build_dir

    def environment(self) -> dict[str, str]:
        return {
            "PYTHONPATH": os.pathsep.join([str(HERE), str(ROOT / "shim/python")]),
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
            "GRADGATE_LIBRARY": str(self.build_dir / "lib/libgradgate.so"),
            "GRADGATE_DIR": "/nonexistent",  # no daemon, unless a job is given one
        }

    def launch(
        self,
        job: str,
        options: Mapping[str, object],
        place: Place,
        answers: Answers,
        extra: Mapping[str, str] | None = None,
        deadline_s: float = 420,
    ) -> tuple[dict[str, figures.Series], dict[str, float]]:
        """Runs jobs/`job` on every rank; returns the series and the single figures that rank 0 printed."""
        port = PORT if place.nodes else free_port()
        command = [self.python, "-B", str(HERE / "rank.py"), job, json.dumps(options)]
        with contextlib.ExitStack() as stack:
            ranks = []
            for rank in range(place.world):
                env = {**self.environment(), **place.environment(rank, port), **(extra or {})}
                ranks.append(stack.enter_context(processes.Process([*place.enter(rank), *command], env)))
            serve(ranks, answers, time.monotonic() + deadline_s)
            statuses = [rank.finish(30) for rank in ranks]
            if any(statuses):
                raise RuntimeError(f"{job}: exit statuses {statuses}\n{told(ranks)}")
            lines = ranks[0].lines
        singles = [json.loads(line[7:]) for line in lines if line.startswith("figure ")]
        return figures.parse(lines), dict(singles)


def serve(ranks: list[processes.Process], answers: Answers, deadline: float) -> None:
    """Until rank 0 says that it is done. A rank that fails ends the job: rank 0 would wait for it."""
    while True:
        try:
            line = ranks[0].wait_line("rank 0 ", 1.0)
        except TimeoutError:
            failed = [rank for rank, process in enumerate(ranks) if process.popen.poll()]
            if failed or time.monotonic() > deadline:
                raise RuntimeError(f"ranks {failed} failed\n{told(ranks)}" if failed else f"not done in time\n{told(ranks)}") from None
            continue
        except RuntimeError:
            raise RuntimeError(f"rank 0 ended\n{told(ranks)}") from None
        if line == "rank 0 done":
            return
        _, _, what, argument = line.split(" ", 3)
        answers[what](argument)
        ranks[0].say("ok")


def told(ranks: list[processes.Process]) -> str:
    """The last of what each rank printed, once it has ended or been ended."""
    text = []
    for rank, process in enumerate(ranks):
        if process.popen.poll() is None:
            process.popen.kill()
        with contextlib.suppress(TimeoutError, subprocess.TimeoutExpired):
            process.finish(5)
        text.append(f"--- rank {rank}\n" + "\n".join(line for line in process.lines[-30:] if not line.startswith("{")))
    return "\n".join(text)
