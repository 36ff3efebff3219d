"""Runs a function on every rank of a job of real processes over Gloo on loopback, and brings back what each returned.

    results = run(worker, ranks=2, args=(7,))        # worker(rank, world, 7) in each process; results[r] is what rank r returned

The function is a module-level one and its arguments and results can be pickled. Nothing outlives a launch: each rank is a session of
its own, ended with whatever it forked. Where a rank fails or the deadline passes, the error holds each rank's traceback, the stacks of
those that were still running, and what they printed.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import importlib.util
import inspect
import os
import pathlib
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GRACE_S = 15.0  # for the other ranks once one has failed: long enough to name it, as they should
KEPT_OUTPUT = 8000


@dataclass
class Outcome:
    """How one rank ended."""

    rank: int
    value: Any  # None unless it returned
    error: str | None  # traceback, or how the process died
    output: str  # what it printed, and its stacks if it was ended here

    def __str__(self) -> str:
        return f"--- rank {self.rank}: {self.error or 'returned'}\n{self.output[-KEPT_OUTPUT:]}"


class RankFailed(AssertionError):
    """At least one rank did not return. The text holds all ranks."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        self.outcomes = outcomes
        super().__init__("\n" + "\n".join(map(str, outcomes)))


def run(
    function: Callable[..., Any], ranks: int = 2, *, args: Sequence[Any] = (), timeout: float = 120, env: Mapping[str, str] | None = None
) -> list[Any]:
    """What function(rank, world, *args) returned on each rank; RankFailed unless all of them did."""
    outcomes = launch(function, ranks, args=args, timeout=timeout, env=env)
    if any(outcome.error for outcome in outcomes):
        raise RankFailed(outcomes)
    return [outcome.value for outcome in outcomes]


def launch(
    function: Callable[..., Any],
    ranks: int = 2,
    *,
    args: Sequence[Any] = (),
    timeout: float = 120,
    env: Mapping[str, str] | None = None,
    group: bool = True,
) -> list[Outcome]:
    """As run, for tests in which ranks are to fail: raises for none. group=False leaves init_process_group to the function."""
    source = inspect.getsourcefile(function)
    assert source and function.__qualname__.isidentifier(), "the function must be a module-level one"
    with tempfile.TemporaryDirectory(prefix="gradgate-torch-") as name:
        folder = pathlib.Path(name)
        job = (os.path.abspath(source), function.__qualname__, tuple(args), group, timeout)
        (folder / "job").write_bytes(pickle.dumps(job))
        begun = time.monotonic()
        processes = [start(folder, rank, ranks, env or {}) for rank in range(ranks)]
        try:
            await_end(processes, begun + timeout)
        finally:
            for process in processes:
                end(process)
        return [outcome_of(folder, rank, process) for rank, process in enumerate(processes)]


def start(folder: pathlib.Path, rank: int, world: int, extra: Mapping[str, str]) -> subprocess.Popen[bytes]:
    path = [str(HERE), str(ROOT / "shim/python"), os.environ.get("PYTHONPATH", "")]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "KINETO_LOG_LEVEL": "6",  # the profiler announces itself otherwise
        "GRADGATE_LIBRARY": os.environ.get("GRADGATE_LIBRARY", str(ROOT / "build/debug/lib/libgradgate.so")),
        "GRADGATE_DIR": os.environ.get("GRADGATE_DIR", str(folder / "no-daemon")),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        **extra,
    }
    with open(folder / f"output.{rank}", "wb") as output:
        command = [sys.executable, str(HERE / "launch.py"), str(folder)]
        return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)


def await_end(processes: list[subprocess.Popen[bytes]], deadline: float) -> None:
    """Until all have ended, or the deadline; one that failed shortens it for the others."""
    shortened = False
    while any(process.poll() is None for process in processes):
        if not shortened and any(process.returncode for process in processes):
            deadline, shortened = min(deadline, time.monotonic() + GRACE_S), True
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def end(process: subprocess.Popen[bytes]) -> None:
    """The child and what it forked. A rank that still runs prints the stacks of its threads first: SIGABRT is faulthandler's."""
    if process.poll() is None:
        process.send_signal(signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def outcome_of(folder: pathlib.Path, rank: int, process: subprocess.Popen[bytes]) -> Outcome:
    output = (folder / f"output.{rank}").read_text(errors="replace")
    result = folder / f"result.{rank}"
    value, error = pickle.loads(result.read_bytes()) if result.exists() else (None, None)
    if not error and process.returncode == -signal.SIGABRT and not result.exists():
        error = "ended at the deadline, or aborted"
    elif not error and process.returncode != 0:
        error = f"exit status {process.returncode}" + (" after it had returned" if result.exists() else "")
    return Outcome(rank, value, error, output)


@contextlib.contextmanager
def process_group(folder: pathlib.Path, rank: int, world: int, timeout: float) -> Iterator[None]:
    """The default group, over a TCP store whose port the kernel chose."""
    import torch.distributed as dist

    port, deadline = folder / "port", timedelta(seconds=timeout)
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, world, is_master=True, timeout=deadline, wait_for_workers=False)
        (folder / "port.new").write_text(str(store.port))
        (folder / "port.new").rename(port)
    else:
        end_of_wait = time.monotonic() + timeout
        while not port.exists() and time.monotonic() < end_of_wait:
            time.sleep(0.01)
        store = dist.TCPStore("127.0.0.1", int(port.read_text()), world, is_master=False, timeout=deadline)
    os.environ["MASTER_PORT"] = port.read_text()
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=deadline)
    yield
    if dist.is_initialized():
        dist.barrier()  # rank 0 serves the store: nobody is left without it
        dist.destroy_process_group()


def child(folder: pathlib.Path) -> NoReturn:
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    result: tuple[Any, str | None]
    try:
        path, name, args, group, timeout = pickle.loads((folder / "job").read_bytes())
        function = getattr(module_of(path), name)
        with process_group(folder, rank, world, timeout) if group else contextlib.nullcontext():
            value = function(rank, world, *args)
        result = (value, None)
        data = pickle.dumps(result)
    except BaseException:
        result = (None, traceback.format_exc())
        data = pickle.dumps(result)
    (folder / f"result.{rank}").write_bytes(data)
    # No interpreter shutdown: a group with peers in flight may wait in it for ever, and a model in DDP is never freed, nor the group's
    # threads with it; one that lets go of a tensor as the interpreter ends aborts the process.
    if not result[1]:
        atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if result[1] else 0)


def module_of(path: str) -> Any:
    name = pathlib.Path(path).stem
    if name in sys.modules:
        return sys.modules[name]
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    child(pathlib.Path(sys.argv[1]))
