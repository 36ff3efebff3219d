"""With the daemon, without it, and when it ends or freezes in the middle: the same bytes, no count lost. N9 and N10 of CASES.md."""

from __future__ import annotations

import concurrent.futures
import datetime
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import exact
import gradgate
import launch
import pytest
import torch
import trainers as t
from parity_rows import batches, ddp_builder, loss, windows

sys.path.insert(0, str(launch.ROOT / "examples" / "demo"))
import processes  # noqa: E402

WINDOWS, N = 6, 4
COUNTED = ("windows", "micro_steps", "steps", "reductions", "suppressed", "late", "collectives", "gradient")


@pytest.fixture(scope="module")
def binaries() -> processes.Binaries:
    return processes.Binaries(os.environ.get("GRADGATE_BUILD_DIR", launch.ROOT / "build" / "debug"))


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory(prefix="gradgate-daemon-") as name:
        yield pathlib.Path(name)


def job(rank: int, world: int, name: str, folder: str, pid: int, number: int) -> dict[str, Any]:
    """Trains for some windows; after the second, rank 0 sends the daemon a signal."""
    os.environ["GRADGATE_DIR"] = folder
    model, optimizer = ddp_builder(world, N)()
    with gradgate.attach(model, optimizer, accumulate=N, job=name) as sync:
        linked = False
        for first, size in windows(WINDOWS * N - 1, N):
            for i in range(size):
                with sync.micro_step():
                    (loss(model, batches(rank, WINDOWS * N)[first + i]) / N).backward()
            if sync.boundary or sync.flush(divisor=N):
                optimizer.step()
                optimizer.zero_grad()
            linked = linked or sync.stats()["linked"]
            if first == N and rank == 0 and number:
                os.kill(pid, number)
        stats = sync.stats()
    return {"hash": exact.parameter_hash(model.parameters()), "linked": linked, **{key: stats[key] for key in COUNTED}}


def jobs(rank: int, world: int, plan: list[tuple[str, str, int, int]]) -> dict[str, Any]:
    return {name: job(rank, world, name, folder, pid, number) for name, folder, pid, number in plan}


def test_training_does_not_depend_on_the_daemon(binaries: processes.Binaries, folder: pathlib.Path) -> None:
    stale = folder / "stale"
    with (
        processes.Daemon(binaries, folder / "present") as present,
        processes.Daemon(binaries, folder / "killed") as killed,
        processes.Daemon(binaries, folder / "frozen") as frozen,
        processes.Daemon(binaries, stale) as dead,
    ):
        dead.kill()  # its sockets are left behind
        plan = [
            ("absent", str(folder / "nothing"), 0, 0),
            ("stale", str(stale), 0, 0),
            ("present", present.directory, 0, 0),
            ("killed", killed.directory, killed.process.popen.pid, signal.SIGKILL),
            ("frozen", frozen.directory, frozen.process.popen.pid, signal.SIGSTOP),
        ]
        results = launch.run(jobs, 2, args=(plan,))
        frozen.process.signal(signal.SIGCONT)
        told = {"present": present.wait_state("present", "FINISHED"), "frozen": frozen.wait_state("frozen", "FINISHED")}
    absent = results[0]["absent"]
    assert absent["steps"] == WINDOWS and absent["micro_steps"] == WINDOWS * N - 1 and absent["gradient"] == {"all_reduce": WINDOWS}
    for rank in results:
        for name, seen in rank.items():
            assert seen["linked"] == (name in ("present", "killed", "frozen")), name
            assert {k: v for k, v in seen.items() if k != "linked"} == {k: v for k, v in absent.items() if k != "linked"}, name
    for name, status in told.items():
        ranks = status["ranks"]
        assert [one["rank"] for one in ranks] == [0, 1], name
        for one in ranks:
            totals = one["totals"]
            assert int(totals["step_count"]) == WINDOWS, name
            assert int(totals["micro_step_count"]) == absent["micro_steps"], name


# N9: a trainer is killed while a data loader's workers live.


class Slow(torch.utils.data.Dataset[float]):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> float:
        return float(index)


def leave_session(worker: int) -> None:
    os.setsid()  # the launcher ends what is in the trainer's


def killed_with_workers(rank: int, world: int, note: str) -> None:
    model = t.Units()
    with gradgate.attach(model, t.sgd(model), accumulate=2, job="killed-with-workers") as sync:
        options: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": "fork", "worker_init_fn": leave_session}
        loader = iter(torch.utils.data.DataLoader(Slow(), batch_size=None, **options))
        for _ in range(6):
            with sync.micro_step():
                model(float(next(loader))).backward()
            sync.step()
        while not sync.stats()["linked"]:
            with sync.micro_step():
                model(1.0).backward()
            sync.step()
        workers = [worker.pid for worker in loader._workers]  # type: ignore[attr-defined]
        pathlib.Path(note).write_text(f"{time.time()} {' '.join(map(str, workers))}")
        os.kill(os.getpid(), signal.SIGKILL)


def alive(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_killed_trainer_is_seen_within_a_second_though_its_loaders_live(binaries: processes.Binaries, folder: pathlib.Path) -> None:
    note = folder / "note"
    with processes.Daemon(binaries, folder / "run") as daemon:
        env = {"GRADGATE_DIR": daemon.directory}
        with concurrent.futures.ThreadPoolExecutor() as pool:
            launched = pool.submit(launch.launch, killed_with_workers, 1, args=(str(note),), env=env, group=False)
            status = daemon.wait_state("killed-with-workers", "LOST")
            killed_at, *workers = note.read_text().split()
            living = [pid for pid in map(int, workers) if alive(pid)]
            outcome = launched.result()[0]
    assert outcome.error == "exit status -9", outcome
    assert living, "the workers ended first; nothing was tried"
    assert int(status["ranks"][0]["totals"]["step_count"]) >= 3
    assert seconds(status["job"]["end_time"]) - float(killed_at) < 1.0


def seconds(timestamp: str) -> float:
    """A protobuf timestamp, as seconds since 1970."""
    whole, _, fraction = timestamp.removesuffix("Z").partition(".")
    return datetime.datetime.fromisoformat(whole + "+00:00").timestamp() + float(f"0.{fraction or 0}")


# N10: two jobs of a launcher that gives all of them the same run id.


def one_of_two_jobs(rank: int, world: int) -> int:
    model = t.ddp()
    with gradgate.attach(model, t.sgd(model), accumulate=2) as sync:
        for c in t.data(rank, 2):
            with sync.micro_step():
                model(c).backward()
        sync.step()
        return int(sync.stats()["windows"])


def test_two_jobs_with_the_same_run_id_of_the_launcher_are_two(binaries: processes.Binaries, folder: pathlib.Path) -> None:
    with processes.Daemon(binaries, folder / "run") as daemon:
        env = {"GRADGATE_DIR": daemon.directory, "TORCHELASTIC_RUN_ID": "none", "GRADGATE_JOB": "same"}
        with concurrent.futures.ThreadPoolExecutor() as pool:
            both = [pool.submit(launch.run, one_of_two_jobs, 2, env=env) for _ in range(2)]
            assert [one.result() for one in both] == [[1, 1], [1, 1]]
        found = daemon.ctl("jobs")["jobs"]
    assert [one["job_name"] for one in found] == ["same", "same"]
    assert len({one["run_id"] for one in found}) == 2
    assert [int(one["world_size"]) for one in found] == [2, 2]


# What a job is called where nobody has named it.

SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
"""


def test_a_job_that_nobody_named_is_called_as_its_script(binaries: processes.Binaries, folder: pathlib.Path) -> None:
    script = folder / "finetune.py"
    script.write_text(SCRIPT)
    unset = ("GRADGATE_JOB", "TORCHELASTIC_RUN_ID", "SLURM_JOB_NAME", "GRADGATE")
    with processes.Daemon(binaries, folder / "run") as daemon:
        env = {name: value for name, value in os.environ.items() if name not in unset}
        env |= {"GRADGATE_DIR": daemon.directory, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
        command = [sys.executable, "-m", "gradgate", "run", "--enforce", "--", *torchrun]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=150, check=False)
        assert done.returncode == 0, done.stderr
        names = {one["job_name"] for one in daemon.ctl("jobs")["jobs"]}
        status = daemon.wait_state("finetune", "FINISHED")
    assert names == {"finetune"}, "counted first, then enforced, under one name"
    assert {rank["sync_mode"] for rank in status["ranks"]} == {"SYNC_MODE_WINDOW"}, "the name means the last"
