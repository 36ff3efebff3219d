"""What memory an audit takes: a copy where it fits, cut tensors where it does not, nothing once it is over."""

from __future__ import annotations

import gc
import pathlib
from typing import Any

import audited
import pytest
import torch
from gradgate.param_groups import _memory
from gradgate.param_groups._rehearsal import Rehearsal
from gradgate.param_groups.audit import audit

SHORT = 0.01


def test_nothing_of_the_copy_outlives_the_call() -> None:
    optimizer = audited.optimizer("AdamW")
    gc.collect()
    gc.disable()
    try:
        before = sum(issubclass(type(held), torch.Tensor) for held in gc.get_objects())
        found = audit(optimizer, seconds=SHORT)
        left = sum(issubclass(type(held), torch.Tensor) for held in gc.get_objects()) - before
    finally:
        gc.enable()
    assert found.step_ms and left == 0


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("name", audited.PRESENT)
def test_tensors_are_cut_where_whole_ones_do_not_fit(name: str, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audited, "MATRICES", [(50, 40)])
    monkeypatch.setattr(audited, "SHAPES", [(50, 40), (2000,), (20, 10, 3, 3)])
    optimizer = audited.optimizer(name)
    for seed in range(steps):
        audited.backward(optimizer, seed)
        optimizer.step()
    monkeypatch.setattr(_memory, "free_bytes", lambda device: 10_000)
    rehearsal = Rehearsal(optimizer)
    assert rehearsal.cut == 1024 and all(0 < clone.numel() <= 1024 for clone in rehearsal._clones)
    assert [clone.dim() for clone in rehearsal._clones] == [parameter.dim() for parameter in audited.parameters(optimizer)]
    found = audit(optimizer, seconds=SHORT)
    assert found.cut == 1024 and found.unmeasured == "" and found.share is None
    assert "measured on tensors cut to 1,024 elements" in str(found) and "%" not in str(found)


def test_state_that_is_not_shaped_as_its_tensor_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    class Flat(torch.optim.SGD):
        @torch.no_grad()
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            for parameter in audited.parameters(self):
                assert parameter.grad is not None
                flat = self.state[parameter].setdefault("flat", torch.zeros(parameter.numel()))
                parameter.sub_(flat.add_(parameter.grad.reshape(-1)).view_as(parameter))

    optimizer = Flat(audited.groups(shapes=[(50, 40)]))
    audited.backward(optimizer)
    optimizer.step()
    monkeypatch.setattr(_memory, "free_bytes", lambda device: 10_000)
    found = audit(optimizer, seconds=SHORT)
    assert (found.cut, found.unmeasured) == (1024, "")


def test_whole_tensors_where_they_take_half_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = torch.optim.SGD(
        [torch.nn.Parameter(torch.ones(1000))]
    )  # 4000 bytes: parameters, gradients, a temporary, and state twice that
    for free, cut in ((40_000, None), (39_998, 1024)):
        monkeypatch.setattr(_memory, "free_bytes", lambda device, free=free: free)
        assert Rehearsal(optimizer).cut == cut


def _write(root: pathlib.Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


MEMINFO = {"proc/meminfo": "MemTotal:       100 kB\nMemAvailable:       50 kB\nHugePages_Total:       0\n"}
SECOND = {"proc/self/cgroup": "0::/a/b\n"}
FIRST = {"proc/self/cgroup": "9:cpu:/x\n4:memory,hugetlb:/a\n0::/\n"}


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, _memory.UNKNOWN_BYTES),
        (MEMINFO, 51200),
        ({**MEMINFO, **SECOND, "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/b/memory.current": "7\n"}, 51200),
        ({**MEMINFO, **SECOND, "sys/fs/cgroup/a/memory.max": "1000\n", "sys/fs/cgroup/a/memory.current": "700\n"}, 300),
        (
            {
                **MEMINFO,
                **SECOND,
                "sys/fs/cgroup/memory.max": "1000\n",
                "sys/fs/cgroup/memory.current": "1001\n",
                "sys/fs/cgroup/memory.stat": "anon 1\ninactive_file 100\nactive_file 101\n",
            },
            200,
        ),
        (
            {
                **MEMINFO,
                **FIRST,
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1000\n",
                "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "900\n",
                "sys/fs/cgroup/memory/a/memory.stat": "total_inactive_file 20\ntotal_active_file 3\n",
            },
            123,
        ),
    ],
    ids=["unknown", "machine", "no limit", "limit above", "in a container", "first version"],
)
def test_free_memory(files: dict[str, str], free: int, tmp_path: pathlib.Path) -> None:
    _write(tmp_path, files)
    assert _memory.host_free_bytes(tmp_path) == free


def test_free_memory_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("mem_get_info", (100, 1000)), ("memory_reserved", 50), ("memory_allocated", 20)):
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert _memory.free_bytes(torch.device("cuda:1")) == 130


def test_waits_for_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: waited.append(str(device)))
    rehearsal = Rehearsal(audited.optimizer("SGD"))
    rehearsal.synchronize()
    assert waited == []
    rehearsal.devices = [torch.device("cpu"), torch.device("cuda:0"), torch.device("cuda:1")]
    rehearsal.synchronize()
    assert waited == ["cuda:0", "cuda:1"]
