#!/usr/bin/env python3
"""What the tap costs: a collective on a group that sends nothing, with and without it; the calls of a micro-step.

    GRADGATE_LIBRARY=…/libgradgate.so python3 bench/torch/tap.py [native|python] [ROUNDS]

One process; the group's backend is torch's "fake", whose collectives return at once, so that what is left is the dispatcher and the
tap. `without` leaves the key out that the tap is registered on; `unbound` has it registered and counting nothing; `bound` counts, into a
real ledger, one gradient all-reduce each. In turn, block by block; figures are of the median round, `quiet` of the tenth best, which says
more on a busy machine. `without again` beside `without` is the noise. The last rows are Gloo's way, with a future that calls back.
Prints series as the other programs do, after the table.
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import sys
import timeit
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "shim" / "python"))
KIND = sys.argv[1] if len(sys.argv) > 1 else "native"
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 300
os.environ["GRADGATE_TAP"] = KIND

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from gradgate import tap  # noqa: E402
from gradgate.ledger import Ledger  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

Samples = dict[str, list[float]]
WITHOUT = torch._C.DispatchKeySet(torch._C.DispatchKey.BackendSelect)


def block(issue: Callable[[], Any], calls: int) -> float:
    begun = perf_counter_ns()
    for _ in range(calls):
        issue()
    return (perf_counter_ns() - begun) / calls


def collectives(seen: tap.Tap, ledger: Ledger, group: Any, calls: int, wait: bool) -> Samples:
    options, tensors = dist.AllreduceOptions(), [torch.ones(16)]

    def issue() -> None:
        work = group.allreduce(tensors, options)
        if wait:
            work.wait()

    def without() -> float:
        with torch._C._ExcludeDispatchKeyGuard(WITHOUT):
            return block(issue, calls)

    samples: Samples = {name: [] for name in ("without", "unbound", "bound", "without again")}
    without()
    for _ in range(ROUNDS):
        samples["without"].append(without())
        samples["unbound"].append(block(issue, calls))
        seen.bind(ledger)
        seen.role(ledger, group.group_name, 0)
        seen.late(True)
        samples["bound"].append(block(issue, calls))
        seen.late(False)
        seen.unbind(ledger)
        samples["without again"].append(without())
    return samples


def report(title: str, samples: Samples) -> None:
    print(f"{title:28} {'median':>9} {'quiet':>9}   ns a collective; beyond `without`, round by round")
    for name, values in samples.items():
        beyond = statistics.median([value - base for value, base in zip(values, samples["without"], strict=True)])
        print(f"  {name:26} {statistics.median(values):9.0f} {quiet(values):9.0f}   {beyond:+.0f}")


def quiet(values: list[float]) -> float:
    return sorted(values)[len(values) // 10]


def calls_of_a_micro_step(seen: tap.Tap, ledger: Ledger) -> Samples:
    seen.bind(ledger)
    begin, end = seen.steps(ledger)

    def both() -> None:
        begin(1)
        end()

    number = 2000
    rows: dict[str, Callable[[], Any]] = {
        "nothing": lambda: None,
        "active(ledger)": lambda: seen.active(ledger),
        "poll()": lambda: seen.poll(),
        "begin(last) and end()": both,
    }
    samples = {name: [t / number * 1e9 for t in timeit.repeat(call, number=number, repeat=100)] for name, call in rows.items()}
    seen.unbind(ledger)
    return samples


def main() -> None:
    seen, ledger = tap.load(), Ledger(accumulate=0)
    if seen.native != (KIND == "native"):
        raise SystemExit(f"the {KIND} tap is not to be had here")
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    print(f"torch {torch.__version__}, {KIND} tap, {ROUNDS} rounds")
    fake = collectives(seen, ledger, dist.group.WORLD, 100 if seen.native else 20, wait=False)
    report("all-reduce, sends nothing", fake)
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    gloo = collectives(seen, ledger, dist.group.WORLD, 20, wait=True)
    report("all-reduce, Gloo, world 1", gloo)
    steps = calls_of_a_micro_step(seen, ledger)
    for name, values in steps.items():
        print(f"  {name:26} {statistics.median(values):9.0f} {quiet(values):9.0f}   ns, with the call of a lambda")
    series = {**{f"fake {n}": v for n, v in fake.items()}, **{f"gloo {n}": v for n, v in gloo.items()}, **steps}
    for name, values in series.items():
        half = len(values) // 2
        print(json.dumps({"name": name, "unit": "ns", "samples": values[:half], "again": values[half : 2 * half]}))


if __name__ == "__main__":
    main()
