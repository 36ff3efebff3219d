"""The policy of a running job changes, as gradgatectl sets it: on all ranks at one window, with the counts that it says from there on and
the same gradients throughout."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import exact
import gradgate
import launch
import pytest
import torch
import torch.distributed as dist
import trainers as t
from torch import nn

sys.path.insert(0, str(launch.ROOT / "examples" / "demo"))
import processes  # noqa: E402

N = 4
ADOPTED = 0


@pytest.fixture(scope="module")
def binaries() -> processes.Binaries:
    return processes.Binaries(os.environ.get("GRADGATE_BUILD_DIR", launch.ROOT / "build" / "debug"))


@pytest.fixture
def daemon(binaries: processes.Binaries) -> Iterator[processes.Daemon]:
    with tempfile.TemporaryDirectory(prefix="gradgate-policy-") as folder, processes.Daemon(binaries, folder) as started:
        yield started


class Wide(nn.Module):
    """Four gradients of 8 KiB, 512 bytes, 8 KiB and 128 bytes, small integers all of them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.units = nn.ModuleList([nn.Linear(16, 64, dtype=torch.float64), nn.Linear(64, 16, dtype=torch.float64)])
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randint(-2, 3, p.shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.units[1](self.units[0](x).relu()))


def ddp(**options: Any) -> Callable[[], Any]:
    return lambda: t.ddp(Wide(), **options)


def hooked() -> Any:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    model = t.ddp(Wide())
    model.register_comm_hook(None, allreduce_hook)
    return model


MODELS: dict[str, Callable[[], Any]] = {
    "ddp": ddp(),
    "views": ddp(gradient_as_bucket_view=True),
    "static": ddp(static_graph=True),
    "unused": ddp(find_unused_parameters=True),
    "freezing": ddp(find_unused_parameters=True),
    "skipping": ddp(),
    "hook": hooked,
    "plain": Wide,
    "fsdp2": lambda: t.fsdp(Wide()),
    "hsdp": lambda: t.fsdp(Wide(), shape=(2, 2)),
}


class Seen(NamedTuple):
    """Of one window."""

    policy: int  # in force when it began
    reductions: int
    collectives: dict[str, int]  # of gradients
    gradients: str
    frozen: bool  # the first layer was


def window(model: Any, optimizer: Any, sync: gradgate.Sync, data: list[torch.Tensor], kind: str) -> Seen:
    before = sync.stats()
    first = model.module.units[0] if kind == "freezing" else None
    if first is not None:  # three windows trained, three frozen
        first.requires_grad_(before["windows"] // 3 % 2 == 0)
    for x in data:
        with sync.micro_step():
            ((model(x) - 1.0).square().sum() / 2 / N).backward()
    assert sync.boundary
    gradients = exact.parameter_hash([p.grad for p in model.parameters() if p.grad is not None])
    optimizer.step()
    optimizer.zero_grad()
    after = sync.stats()
    issued = {op: n - before["gradient"].get(op, 0) for op, n in after["gradient"].items() if n != before["gradient"].get(op, 0)}
    frozen = first is not None and not first.weight.requires_grad
    return Seen(before["policy"], after["reductions"] - before["reductions"], issued, gradients, frozen)


def skip_once(rank: int, model: Any, optimizer: Any, sync: gradgate.Sync, data: list[torch.Tensor]) -> None:
    """A window in which rank 1 contributes nothing to one micro-step."""
    for i, x in enumerate(data):
        with sync.micro_step():
            if rank == 1 and i == 1:
                sync.skip()
            else:
                model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def ended(process: subprocess.Popen[str] | None) -> bool:
    """The same on all ranks."""
    flag = torch.tensor([int(process is not None and process.poll() is not None)])
    dist.all_reduce(flag)
    return bool(flag.item())


def job(rank: int, world: int, kind: str, folder: str, ctl: str, plan: list[str], options: dict[str, Any]) -> dict[str, Any]:
    """Trains while rank 0 sets one policy after the other. By change: what gradgatectl said, and the windows until it had ended and four
    more."""
    os.environ["GRADGATE_DIR"] = folder
    generator = torch.Generator().manual_seed(50 + rank)
    data = [torch.randint(-2, 3, (2, 16), generator=generator).double() for _ in range(N)]
    model = MODELS[kind]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    told: list[tuple[int, str]] = []
    windows: list[list[Seen]] = []
    with gradgate.attach(model, optimizer, accumulate=N, job=kind, **options) as sync:
        while not sync.stats()["linked"] or ended(None):
            window(model, optimizer, sync, data, kind)
        if kind == "skipping":
            skip_once(rank, model, optimizer, sync, data)
        windows.append([window(model, optimizer, sync, data, kind) for _ in range(4)])
        for change in plan:
            process = None
            if rank == 0:
                command = [ctl, "--dir", folder, "--json", "policy", "set", kind, *change.split(), "--wait", "60"]
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            seen = []
            while not ended(process):
                seen.append(window(model, optimizer, sync, data, kind))
            windows.append(seen + [window(model, optimizer, sync, data, kind) for _ in range(4)])
            if process is not None:
                told.append((process.returncode, process.communicate()[0]))
        stats = sync.stats()
    return {"told": told, "windows": windows, "overrides": stats["overrides"], "mismatched": stats["windows_mismatched"], "stats": stats}


def run(daemon: processes.Daemon, kind: str, plan: list[str], ranks: int = 2, **options: Any) -> list[dict[str, Any]]:
    ctl = daemon.binaries.path("gradgatectl")
    results = launch.run(job, ranks=ranks, args=(kind, daemon.directory, ctl, plan, options), timeout=200)
    every = [seen for result in results for windows in result["windows"] for seen in windows]
    for frozen in (False, True):
        assert len({seen.gradients for seen in every if seen.frozen is frozen}) <= 1, "gradients changed with a policy"
    for result in results[1:]:
        for mine, firsts in zip(result["windows"], results[0]["windows"], strict=True):
            assert [(s.policy, s.reductions, s.collectives) for s in mine] == [(s.policy, s.reductions, s.collectives) for s in firsts]
    for windows in results[0]["windows"]:
        versions = [seen.policy for seen in windows]
        assert versions == sorted(versions)
    return results


def settled(results: list[dict[str, Any]], change: int) -> tuple[int, dict[str, int]]:
    """Of the last windows after that change (0: before any)."""
    last = results[0]["windows"][change][-2:]
    assert last[0][1:] == last[1][1:]
    return last[1].reductions, last[1].collectives


def codes(results: list[dict[str, Any]]) -> list[int]:
    return [code for code, _ in results[0]["told"]]


def states(results: list[dict[str, Any]], change: int) -> list[str]:
    lines = [line for line in results[0]["told"][change][1].splitlines() if line.startswith("{")]
    return [json.loads(line)["status"]["state"].removeprefix("POLICY_STATE_").lower() for line in lines]


DDP_PLAN = ["mode=every_micro_step", "mode=window", "bucket=4KiB", "bucket=given", "enforcement=audit", "enforcement=enforce"]


@pytest.mark.parametrize("kind", ["ddp", "views", "unused", "plain"])
def test_ddp(daemon: processes.Daemon, kind: str) -> None:
    results = run(daemon, kind, DDP_PLAN)
    assert codes(results) == [ADOPTED] * 6, results[0]["told"]
    assert states(results, 0)[-1] == "adopted"
    reductions, first = settled(results, 0)
    assert reductions == 1
    assert settled(results, 1)[0] == N
    assert settled(results, 2) == (1, first)
    assert settled(results, 3)[0] == 1
    assert settled(results, 3)[1]["all_reduce"] > first["all_reduce"], "of smaller buckets"
    assert settled(results, 4) == (1, first)
    assert settled(results, 5)[0] == N
    assert settled(results, 6) == (1, first)
    assert [result["overrides"] for result in results] == [0, 0]


def test_wire_type(daemon: processes.Daemon) -> None:
    """Small integers are exact in bfloat16 up to 256, which these gradients are not: they change, and change back."""
    with pytest.raises(AssertionError, match="gradients changed with a policy"):
        run(daemon, "ddp", ["wire=bf16"])


@pytest.mark.parametrize("kind", ["fsdp2"])
def test_fsdp2(daemon: processes.Daemon, kind: str) -> None:
    plan = ["mode=window", "reshard=window", "reshard=given", "mode=every_micro_step", "mode=window_replica", "bucket=1MiB"]
    results = run(daemon, kind, plan)
    assert codes(results) == [ADOPTED] * 4 + [1, 1], results[0]["told"]
    groups = settled(results, 0)[1]["reduce_scatter"] // N
    assert settled(results, 0)[0] == N
    assert settled(results, 1) == (1, {"reduce_scatter": groups})
    assert settled(results, 2) == (1, {"reduce_scatter": groups})
    assert settled(results, 4)[0] == N
    assert "NO_REPLICAS" in results[0]["told"][4][1]
    assert "NO_BUCKETS" in results[0]["told"][5][1]
    assert settled(results, 6) == settled(results, 4), "what was rejected changes nothing"


def test_hsdp(daemon: processes.Daemon) -> None:
    plan = ["mode=window", "mode=window_replica", "mode=every_micro_step", "mode=given"]
    results = run(daemon, "hsdp", plan, ranks=4)
    assert codes(results) == [ADOPTED] * 4, results[0]["told"]
    groups = settled(results, 1)[1]["reduce_scatter"]
    assert settled(results, 0)[1] == {"reduce_scatter": N * groups, "all_reduce": groups}
    assert settled(results, 1)[1] == {"reduce_scatter": groups, "all_reduce": groups}
    assert settled(results, 2)[1] == {"reduce_scatter": N * groups, "all_reduce": groups}
    assert settled(results, 3)[1] == {"reduce_scatter": N * groups, "all_reduce": N * groups}
    assert settled(results, 4)[1] == settled(results, 0)[1]


def test_what_cannot_be_is_rejected_with_its_reason(daemon: processes.Daemon) -> None:
    results = run(daemon, "static", ["bucket=4KiB", "mode=every_micro_step"])
    assert codes(results) == [1, ADOPTED]
    assert "FIXED" in results[0]["told"][0][1]
    assert settled(results, 2)[0] == N
    results = run(daemon, "hook", ["wire=bf16", "mode=every_micro_step"])
    assert codes(results) == [1, ADOPTED]
    assert "HOOK_HELD" in results[0]["told"][0][1]
    results = run(daemon, "ddp", ["mode=every_micro_step", "enforcement=audit"], windows="variable")
    assert codes(results) == [1, 1]
    assert "FIXED" in results[0]["told"][0][1]


def test_buckets_are_made_anew_of_the_same_parameters(daemon: processes.Daemon) -> None:
    """Whichever of them are frozen just then."""
    results = run(daemon, "freezing", ["bucket=4KiB", "bucket=given", "bucket=4KiB", "bucket=8KiB"])
    assert codes(results) == [ADOPTED] * 4
    assert {seen.frozen for windows in results[0]["windows"] for seen in windows} == {False, True}


def test_ranks_that_were_uneven_are_not_made_to_reduce_each_micro_step(daemon: processes.Daemon) -> None:
    results = run(daemon, "skipping", ["mode=every_micro_step", "enforcement=audit", "bucket=4KiB"])
    assert codes(results) == [1, 1, ADOPTED]
    assert "FIXED" in results[0]["told"][0][1]


def test_a_job_in_audit_is_made_to_enforce(daemon: processes.Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADGATE", "audit")
    for kind in ("ddp", "fsdp2"):
        results = run(daemon, kind, ["enforcement=enforce mode=window", "enforcement=given"])
        assert codes(results) == [ADOPTED, ADOPTED], results[0]["told"]
        assert settled(results, 0)[0] == N
        assert settled(results, 1)[0] == 1
        assert settled(results, 2)[0] == N


def restarted(daemon: processes.Daemon, folder: pathlib.Path, change: str | None) -> list[list[int]]:
    """Of the second attempt's windows: policy in force and reductions. In the first one `change` is set, and adopted."""
    folder.mkdir()
    # Every launch has the same id, as torchrun's default is; torch itself needs a store of its own for each attempt.
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1", "--monitor-interval", "0.1"]
    torchrun += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--rdzv-id", "none"]
    command = [*torchrun, str(launch.HERE / "restarted_job.py"), str(folder), "restarted"]
    env = {**os.environ, "GRADGATE_DIR": daemon.directory, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}
    env |= {"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.pathsep.join([str(launch.ROOT / "shim/python"), env.get("PYTHONPATH", "")])}
    env.setdefault("GRADGATE_LIBRARY", str(launch.ROOT / "build/debug/lib/libgradgate.so"))
    with open(folder / "output", "wb") as output:
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        status: Any = processes.wait_for("the first attempt trains", lambda: running(daemon), 90)
        if change is not None:
            job = f"{status['job']['user_id']}/{status['job']['run_id']}"
            command = [daemon.binaries.path("gradgatectl"), "--dir", daemon.directory, "policy", "set", job, change]
            subprocess.run(command, check=True, timeout=60, stdout=subprocess.DEVNULL)
        (folder / "die").touch()
        assert process.wait(timeout=150) == 0, (folder / "output").read_text()[-8000:]
    finally:
        process.terminate()  # its workers, in sessions of their own, end with it; killed, it would leave them
        process.wait(timeout=60)
    return [list(one) for one in json.loads((folder / "seen").read_text())]


def running(daemon: processes.Daemon) -> Any:
    status = daemon.status("restarted")
    whole = status and status["job"]["state"] == "STATE_RUNNING" and status["job"]["running_rank_count"] == 2
    return status if whole and status["job"]["attempt"] == 0 else None


def test_a_restart_by_the_launcher_inherits_what_was_in_force_and_another_run_does_not(
    daemon: processes.Daemon, tmp_path: pathlib.Path
) -> None:
    windows = restarted(daemon, tmp_path / "first", "mode=every_micro_step")
    version = windows[-1][0]
    assert version > 0, windows
    assert windows[-1] == [version, N]
    assert [policy for policy, _ in windows].index(version) <= 5, f"at the first window that it can: {windows}"
    told = daemon.ctl("policy", "get", "restarted")["status"]
    assert told["job"]["attempt"] == 1
    assert (told["state"], told["proposed"]["version"]) == ("POLICY_STATE_ADOPTED", str(version))
    assert told["proposed"]["inherited_from_attempt"] == 0

    windows = restarted(daemon, tmp_path / "second", None)
    assert windows == [[0, 1]] * 30, "another launch of the same name, its restart included"
    told = daemon.ctl("policy", "get", "restarted")["status"]
    assert told["job"]["attempt"] == 1
    assert told["proposed"]["version"] == "0"
