#!/usr/bin/env python3
"""What `gradgate run` costs a script that knows nothing of it: a step of DDP on two ranks over loopback, with 4 micro-steps.

    python3 bench/torch/run_cost.py [--rounds N] [--build-dir build/release]

The same script is started again and again, in turn: as it is, under --audit, as it is, under --enforce, with a no_sync written by hand. A
figure is the median step of a run after its first 20; ratios are of the same round, and A/A is the script as it is against itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench")]

import figures  # noqa: E402
import report  # noqa: E402
from figures import Series  # noqa: E402

WAYS = {
    "as it is": ([], "naive"),
    "gradgate run --audit": (["--audit"], "naive"),
    "as it is, again": ([], "naive"),
    "gradgate run --enforce": (["--enforce"], "naive"),
    "no_sync by hand": ([], "hand"),
}
SKIPPED, STEPS, ACCUMULATE = 20, 80, 4
STEPPED = "stepped twice"


def train(way: str) -> None:
    """The script: prints milliseconds of a step and when the first ended, on rank 0."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    begun = time.perf_counter()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = torch.nn.Sequential(*(part for _ in range(6) for part in (torch.nn.Linear(256, 256), torch.nn.GELU())))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    taken = []
    for _ in range(SKIPPED + STEPS):
        dist.barrier()
        before = time.perf_counter()
        for place in range(ACCUMULATE):
            with model.no_sync() if way == "hand" and place < ACCUMULATE - 1 else contextlib.nullcontext():
                (model(torch.ones(32, 256)).square().mean() / ACCUMULATE).backward()
        optimizer.step()
        optimizer.zero_grad()
        taken.append(1e3 * (time.perf_counter() - before))
        if len(taken) == 2 and dist.get_rank() == 0:
            print(STEPPED, flush=True)
    if dist.get_rank() == 0:
        print(json.dumps({"ms": statistics.median(taken[SKIPPED:]), "seconds": time.perf_counter() - begun}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def launched(options: list[str], way: str, library: pathlib.Path, name: str = "run") -> tuple[list[str], dict[str, str]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", f"--master-port={port}", __file__, "--train", way]
    if options:
        command = [sys.executable, "-m", "gradgate", name, *options, "--", *command]
    return command, {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "shim/python"), "GRADGATE_LIBRARY": str(library)}


def started(options: list[str], way: str, library: pathlib.Path) -> float:
    command, env = launched(options, way, library)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=180, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["ms"])


def first_report(library: pathlib.Path) -> tuple[float, float]:
    """Seconds from the start of `gradgate explain` to the end of the script's second step, and to what is told after it."""
    command, env = launched(["--enforce"], "naive", library, "explain")
    begun, stepped = time.perf_counter(), 0.0
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout is not None
        for line in run.stdout:
            if line.startswith(STEPPED):
                stepped = time.perf_counter() - begun
            if line.startswith("gradgate found"):
                told = time.perf_counter() - begun
    return stepped, told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--train", choices=("naive", "hand"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.train)
        return
    library = (options.build_dir / "lib/libgradgate.so").resolve()
    taken: dict[str, list[float]] = {name: [] for name in WAYS}
    load = os.getloadavg()[0]
    for _ in range(options.rounds):
        for name, (given, way) in WAYS.items():
            taken[name].append(started(given, way, library))
    plain = Series("as it is", "ms", taken["as it is"], taken["as it is, again"])
    noise = figures.noise(plain)
    here = report.machine()
    about = f"{here['cores']} cores of {here['cpu']}, load of others when it began {load:.1f}, {options.rounds} rounds"
    print(f"{about}; A/A ±{100 * noise:.1f} %\n")
    print("| a step | ms | of the script as it is | verdict |\n| --- | --- | --- | --- |")
    for name in WAYS:
        ratio = statistics.median(a / b for a, b in zip(taken[name], taken["as it is"], strict=True))
        verdict = "" if name.startswith("as it is") else "none" if abs(ratio - 1) <= noise else "faster" if ratio < 1 else "slower"
        print(f"| {name} | {statistics.median(taken[name]):.2f} | {100 * ratio:.1f} % | {verdict} |")

    reports = [first_report(library) for _ in range(options.rounds)]
    stepped, told = (statistics.median(times) for times in zip(*reports, strict=True))
    print(f"\nfrom the command to the end of the second step {stepped:.1f} s, to the first report {told:.1f} s")


if __name__ == "__main__":
    main()
