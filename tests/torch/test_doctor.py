"""The doctor on PyTorch trainers: what each loop does wrong is told, and nothing else."""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import gradgate
import launch
import pytest
import torch
import torch.distributed as dist

sys.path.insert(0, str(launch.ROOT / "examples" / "demo"))
import processes  # noqa: E402

RANKS, N, WINDOWS = 3, 4, 26
# Long against what a busy machine adds to a micro-step.
PACE_S = 0.03
MARGIN_S = 5.0


@pytest.fixture(scope="module")
def binaries() -> processes.Binaries:
    return processes.Binaries(os.environ.get("GRADGATE_BUILD_DIR", launch.ROOT / "build" / "debug"))


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory(prefix="gradgate-doctor-") as name:
        yield pathlib.Path(name)


def train(rank: int, name: str, folder: str, windows: int) -> None:
    """`name` is what the loop does; windows 0: until the file `enough` is there."""
    os.environ["GRADGATE_DIR"] = folder
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 64) for _ in range(4)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.02)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, go_on = torch.randn(8, 64), torch.ones(1)
    with gradgate.attach(model, optimizer, accumulate=N, job=name) as sync:
        window = 0
        while go_on.item():
            for _ in range(N):
                with sync.micro_step():
                    time.sleep(PACE_S * (1.3 if name == "slow" and rank == 1 else 1))
                    loss = model(inputs).square().mean()
                    if name == "logs":
                        dist.all_reduce(loss.detach().clone())
                    (loss / N).backward()
            optimizer.step()
            optimizer.zero_grad()
            window += 1
            if windows:
                go_on.fill_(window < windows)
            elif window % 20 == 0:
                go_on.fill_(not (pathlib.Path(folder) / "enough").exists())
                dist.broadcast(go_on, 0)


def loops(rank: int, world: int, names: list[str], folder: str, windows: int) -> int:
    for name in names:
        train(rank, name, folder, windows)
    return world


def diagnose(daemon: processes.Daemon, job: str) -> list[Any]:
    command = [daemon.binaries.path("gradgatectl"), "--dir", daemon.directory, "doctor", job]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 5), done.stderr
    return list(json.loads(done.stdout)["verdicts"])


def kinds(verdicts: list[Any]) -> list[str]:
    return [verdict["kind"].removeprefix("VERDICT_KIND_") for verdict in verdicts]


def test_loops(binaries: processes.Binaries, folder: pathlib.Path) -> None:
    with processes.Daemon(binaries, folder) as daemon:
        launch.run(loops, RANKS, args=(["plain", "slow", "logs"], str(folder), WINDOWS))
        told = {}
        for name in ("plain", "slow", "logs"):
            daemon.wait_state(name, "FINISHED")
            told[name] = diagnose(daemon, name)
    assert kinds(told["plain"]) == ["HEALTHY"]
    assert kinds(told["slow"]) == ["STRAGGLER"]
    assert (told["slow"][0]["ranks"], told["slow"][0]["cause"]) == ([1], "DELAY_CAUSE_COMPUTE")
    assert kinds(told["logs"]) == ["LOGGING_COLLECTIVES"]
    assert "4 small all_reduce per optimizer step of 4 micro-steps" in told["logs"][0]["evidence"][0]


def test_stopped_rank(binaries: processes.Binaries, folder: pathlib.Path) -> None:
    with processes.Daemon(binaries, folder) as daemon, concurrent.futures.ThreadPoolExecutor(1) as pool:
        run = pool.submit(launch.run, loops, RANKS, args=(["endless"], str(folder), 0))

        def after_windows() -> Any:
            status = daemon.status("endless")
            return status if status and int(status["job"]["window_count"]) >= 10 else None

        pid = 0
        try:
            seen: Any = processes.wait_for("some windows", after_windows)
            pid = int(seen["ranks"][1]["process_id"])
            os.kill(pid, signal.SIGSTOP)
            verdict: Any = processes.wait_for(
                "the stop is told",
                lambda: next((v for v in diagnose(daemon, "endless") if v["kind"] == "VERDICT_KIND_STOPPED"), None),
                MARGIN_S,
            )
        finally:
            if pid:
                os.kill(pid, signal.SIGCONT)
            (folder / "enough").touch()
        assert verdict["ranks"] == [1]
        run.result(timeout=60)
