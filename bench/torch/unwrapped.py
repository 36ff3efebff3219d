#!/usr/bin/env python3
"""A module without wrapper, reduced by gradgate, against DistributedDataParallel: two ranks over Gloo on loopback.

    python3 bench/torch/unwrapped.py [--rounds N] [--accumulate N] [--build-dir build/release]

One pair of processes, a copy of the model for each way on a group of its own, in turn, one window at a time: forward, backward, reduction,
zero_grad; no optimizer. A figure is the median window; a ratio is the median of ratios of the same round, and A/A is DDP against a second
DDP. CPU time is that of both ranks, all threads.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "shim/python")]

WAYS = ("DDP", "unwrapped", "DDP, gradients as bucket views", "unwrapped, in Python", "DDP, again")
WARM = 5


def square() -> tuple[Any, Any]:
    """6 layers of 512: 12 tensors, 1.6 million elements."""
    import torch

    layers = [part for _ in range(6) for part in (torch.nn.Linear(512, 512), torch.nn.GELU())]
    return torch.nn.Sequential(*layers), torch.ones(32, 512)


def transformer() -> tuple[Any, Any]:
    """12 layers of 128: 146 tensors, 2.4 million elements."""
    import torch

    layer = torch.nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 12, norm=torch.nn.LayerNorm(128), enable_nested_tensor=False), torch.ones(2, 32, 128)


MODELS = {"6 layers of 512": square, "transformer, 12 layers of 128": transformer}


def windows(way: str, make: Callable[[], tuple[Any, Any]], accumulate: int) -> Callable[[], None]:
    """A window of one way, to be called again and again."""
    import gradgate
    import torch
    import torch.distributed as dist
    from gradgate import tap
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    model, data = make()
    group = dist.new_group(backend="gloo")
    if way.startswith("DDP"):
        wrapped = DistributedDataParallel(model, process_group=group, gradient_as_bucket_view="views" in way)

        def of_ddp() -> None:
            for place in range(accumulate):
                with wrapped.no_sync() if place < accumulate - 1 else contextlib.nullcontext():
                    wrapped(data).square().mean().backward()
            model.zero_grad()

        return of_ddp
    in_python: Any = mock.patch.object(tap.load(), "reducer", lambda: None) if "Python" in way else contextlib.nullcontext()
    with in_python:
        sync = gradgate.attach(model, accumulate=accumulate, group=group)

    def of_gradgate() -> None:
        for _ in range(accumulate):
            with sync.micro_step():
                model(data).square().mean().backward()
        assert sync.boundary
        model.zero_grad()

    return of_gradgate


def rank(number: int, store: str, rounds: int, accumulate: int) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=number, world_size=2)
    out: dict[str, dict[str, list[list[float]]]] = {}
    for name, make in MODELS.items():
        run = {way: windows(way, make, accumulate) for way in WAYS}
        taken: dict[str, list[list[float]]] = {way: [] for way in WAYS}
        for turn in range(WARM + rounds):
            order = WAYS if turn % 2 == 0 else tuple(reversed(WAYS))
            for way in order:
                dist.barrier()
                wall, cpu = time.perf_counter(), time.process_time()
                run[way]()
                spent = [1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - cpu)]
                if turn >= WARM:
                    taken[way].append(spent)
        out[name] = taken
    print(json.dumps(out), flush=True)
    dist.barrier()
    os._exit(0)  # attachments stay open


def ratio(mine: list[float], base: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(mine, base, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        rank(options.rank, options.store, options.rounds, options.accumulate)
        return
    import figures
    import report
    from figures import Series

    library = (options.build_dir / "lib/libgradgate.so").resolve()
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "GRADGATE_LIBRARY": str(library), "GRADGATE_DIR": "/nowhere"}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        given = ["--store", f"{folder}/store", "--rounds", str(options.rounds), "--accumulate", str(options.accumulate)]
        command = [sys.executable, __file__, *given, "--rank"]
        ranks = [subprocess.Popen([*command, str(r)], env=env, stdout=subprocess.PIPE, text=True) for r in range(2)]
        told = [json.loads(process.communicate(timeout=900)[0].splitlines()[-1]) for process in ranks]
    here = report.machine()
    print(f"{here['cores']} cores of {here['cpu']}, load of others when it began {load:.1f}, {options.rounds} rounds, ", end="")
    print(f"windows of {options.accumulate}\n")
    print("| model | a window | ms | of DDP | A/A | verdict | CPU ms | of DDP | A/A |")
    print("| --- " * 9 + "|")
    for name in MODELS:
        wall = {way: [spent[0] for spent in told[0][name][way]] for way in WAYS}
        cpu = {way: [a[1] + b[1] for a, b in zip(told[0][name][way], told[1][name][way], strict=True)] for way in WAYS}
        noise, noise_cpu = (figures.noise(Series("DDP", "ms", of["DDP"], of["DDP, again"])) for of in (wall, cpu))
        shown = name
        for way in WAYS:
            part = ratio(wall[way], wall["DDP"])
            verdict = "" if way == "DDP" else "none" if abs(part - 1) <= noise else "faster" if part < 1 else "slower"
            row = f"| {shown} | {way} | {statistics.median(wall[way]):.2f} | {100 * part:.1f} % | ±{100 * noise:.1f} % | {verdict} "
            print(row + f"| {statistics.median(cpu[way]):.2f} | {100 * ratio(cpu[way], cpu['DDP']):.1f} % | ±{100 * noise_cpu:.1f} % |")
            shown = ""


if __name__ == "__main__":
    main()
