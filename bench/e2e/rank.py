"""One rank of a benchmark job: `python3 rank.py JOB OPTIONS`, with torchrun's variables. run.py starts it.

A job is a function `run(bench)` in the module of its name. It measures arms in turn, A B C A B C …, each turn twice, and prints
series as figures.py reads them; what it cannot do itself (the link's rate, the daemon's state) it asks run.py for.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

Arm = Callable[[], object]


class Bench:
    """The job's options and clock. Every method is called by all ranks, in the same order."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()

    def ask(self, what: str, argument: object) -> None:
        """Has run.py do something; returns on all ranks when it is done."""
        dist.barrier()
        if self.rank == 0:
            print(f"rank 0 {what} {argument}", flush=True)
            if sys.stdin.readline() != "ok\n":
                sys.exit("run.py is gone")
        dist.barrier()

    def timed(self, arm: Arm) -> tuple[float, float]:
        """Milliseconds on this rank from a common start, and of CPU time of all its threads."""
        dist.barrier()
        begin, cpu = time.perf_counter(), time.process_time()
        arm()
        return 1000 * (time.perf_counter() - begin), 1000 * (time.process_time() - cpu)

    def in_turn(self, arms: Mapping[str, Arm], rounds: int, warm_up: int = 1) -> dict[str, dict[str, list[float]]]:
        """{arm: {"samples": [...], "again": [...]}} in milliseconds of the slowest rank; as ARM_cpu the CPU time of all ranks."""
        for _ in range(warm_up):
            for arm in arms.values():
                self.timed(arm)
        took = [[[self.timed(arm) for arm in arms.values()] for _ in range(2)] for _ in range(rounds)]
        slowest, cpu = (t.contiguous() for t in torch.tensor(took, dtype=torch.float64).unbind(-1))
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        dist.all_reduce(cpu, dist.ReduceOp.SUM)
        series = {}
        for i, name in enumerate(arms):
            for suffix, values in (("", slowest), ("_cpu", cpu)):
                series[name + suffix] = {"samples": values[:, 0, i].tolist(), "again": values[:, 1, i].tolist()}
        return series

    def measure(self, arms: Mapping[str, Arm], rounds: int, warm_up: int = 1) -> None:
        for name, values in self.in_turn(arms, rounds, warm_up).items():
            self.series(name, values["samples"], values["again"])

    def medians(self, arms: Mapping[str, Arm], rounds: int) -> dict[str, float]:
        """The same on all ranks."""
        return {name: statistics.median(v["samples"] + v["again"]) for name, v in self.in_turn(arms, rounds).items()}

    def series(self, name: str, samples: list[float], again: list[float], unit: str = "ms") -> None:
        if self.rank == 0:
            print(json.dumps({"name": name, "unit": unit, "samples": samples, "again": again}), flush=True)

    def figure(self, name: str, value: float) -> None:
        if self.rank == 0:
            print("figure " + json.dumps([name, value]), flush=True)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        importlib.import_module(sys.argv[1]).run(Bench(json.loads(sys.argv[2])))
        dist.barrier()
        if dist.get_rank() == 0:
            print("rank 0 done", flush=True)
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stdout.flush()
        os._exit(1)  # torch's threads may be waiting for the other ranks
    sys.stdout.flush()
    os._exit(0)  # wrappers freed after their group can wait for it at exit


if __name__ == "__main__":
    main()
