"""Runs scripts on ranks that are forks of one process with torch loaded: plainly, or observed as `gradgate run` observes them.

    with Nursery() as nursery:
        done = nursery.run([script, …], how="enforce", ranks=2)

A launch by torchrun takes seconds for torch alone; what the command itself does is tested by other means. The script is `__main__`, with
its folder in front of sys.path, and its exit handlers run.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import importlib
import json
import os
import pathlib
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from typing import Any, Self

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SCRIPTS = HERE / "run_scripts"


@dataclass
class Done:
    """`report`: the JSON of --report, None where none was written. By rank: exit statuses, and what was printed."""

    statuses: list[int]
    stdout: list[str]
    stderr: list[str]
    report: dict[str, Any] | None
    folder: pathlib.Path

    def __str__(self) -> str:
        return f"exit statuses {self.statuses}\n" + "\n".join(f"--- rank {rank}:\n{text[-6000:]}" for rank, text in enumerate(self.stderr))


class Nursery:
    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="gradgate-run-")
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(HERE), str(ROOT / "shim/python")]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "KINETO_LOG_LEVEL": "6",  # the profiler announces itself otherwise
            "GRADGATE_LIBRARY": os.environ.get("GRADGATE_LIBRARY", str(ROOT / "build/debug/lib/libgradgate.so")),
            "GRADGATE_DIR": str(pathlib.Path(self._folder.name) / "no-daemon"),
            "MASTER_ADDR": "127.0.0.1",
        }
        command = [sys.executable, str(HERE / "forked_runs.py")]
        self._server = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self._number = 0
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()
        self._server.wait()
        for pipe in (self._server.stdin, self._server.stdout):
            assert pipe is not None
            pipe.close()
        self._folder.cleanup()

    def run(
        self,
        arguments: list[str],
        *,
        how: str = "plain",
        mode: str = "auto",
        ranks: int = 2,
        timeout_s: float = 60,
        env: dict[str, str] | None = None,
    ) -> Done:
        """`arguments`: the script and its own, in which {folder} is an empty folder."""
        folder = pathlib.Path(self._folder.name) / str(self._number)
        self._number += 1
        folder.mkdir()
        job = {
            **{"folder": str(folder), "how": how, "mode": mode, "ranks": ranks, "timeout_s": timeout_s},
            "arguments": [argument.format(folder=folder) for argument in arguments],
            "env": env or {},
        }
        assert self._server.stdin is not None and self._server.stdout is not None
        print(json.dumps(job), file=self._server.stdin, flush=True)
        answer = self._server.stdout.readline()
        assert answer, "the nursery has ended"
        told = {name: [(folder / f"{name}.{r}").read_text(errors="replace") for r in range(ranks)] for name in ("stdout", "stderr")}
        report = folder / "report.json"
        held = json.loads(report.read_text()) if report.exists() else None
        return Done(json.loads(answer), told["stdout"], told["stderr"], held, folder)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def serve() -> None:
    """One job a line, until the input ends."""
    for name in ("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.optim"):  # what scripts, and the profiler, would import
        importlib.import_module(name)
    gc.freeze()  # a collection in a fork would copy what they share
    answers = os.dup(1)
    for line in sys.stdin:
        job = json.loads(line)
        port = free_port()
        pids = []
        for rank in range(job["ranks"]):
            pid = os.fork()
            if pid == 0:
                os._exit(become(job, rank, port))
            pids.append(pid)
        os.write(answers, (json.dumps(await_end(pids, job["timeout_s"])) + "\n").encode())


def await_end(pids: list[int], timeout_s: float) -> list[int]:
    """Exit statuses, negative for signals. At the deadline, those that still run print their stacks and end."""
    deadline, statuses = time.monotonic() + timeout_s, dict[int, int]()
    signals = [signal.SIGABRT, signal.SIGKILL]
    while len(statuses) < len(pids):
        for pid in set(pids) - set(statuses):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                statuses[pid] = os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
        if time.monotonic() > deadline and signals:
            number, deadline = signals.pop(0), deadline + 5
            for pid in set(pids) - set(statuses):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
    return [statuses[pid] for pid in pids]


def become(job: dict[str, Any], rank: int, port: int) -> int:
    """This process is the script's from here on, up to its exit handlers. Its exit status."""
    folder = pathlib.Path(job["folder"])
    os.setsid()
    for number, name in enumerate((os.devnull, f"{folder}/stdout.{rank}", f"{folder}/stderr.{rank}")):
        opened = os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0)  # noqa: SIM115 - the former one's buffer holds the next jobs
    faulthandler.enable()
    ranks = str(job["ranks"])
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=ranks, LOCAL_WORLD_SIZE=ranks, MASTER_PORT=str(port))
    if job["how"] != "plain":
        from gradgate.run import command, observer  # noqa: PLC0415

        os.environ.update(command.environment(os.environ, job["how"], job["mode"], str(folder / "report.json"), None, job["env"]))
        observer.install()
    sys.argv = job["arguments"]
    sys.path[0] = os.path.dirname(sys.argv[0])
    status = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    except BaseException:
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


if __name__ == "__main__":
    serve()
