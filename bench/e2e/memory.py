"""How much more memory a window needs at its peak than between windows, by mode, on HSDP 2 × 2.

The process's resident memory, which run.py makes true: its allocator returns each freed tensor to the kernel.
"""

from __future__ import annotations

import gc
import pathlib
from collections.abc import Callable
from typing import Any

import gradgate
import torch
import torch.distributed as dist
from hsdp import sharded
from torch.distributed.device_mesh import init_device_mesh

MODES = {"replica": ("window_replica", False), "window": ("window", False), "kept": ("window", True)}


def resident(field: str) -> float:
    for line in pathlib.Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {field} in /proc/self/status")


def peak_mib(window: Callable[[], object]) -> float:
    """Of the third window, on the rank that needed most."""
    window()
    window()
    gc.collect()
    before = resident("VmRSS")
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the peak so far
    window()
    most = torch.tensor([resident("VmHWM") - before], dtype=torch.float64)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return float(most.item())


def run(bench: Any) -> None:
    options = bench.options
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    trainer = sharded(options, mesh)
    module: Any = trainer.module
    bench.figure("every", peak_mib(trainer.every))
    bench.figure("replica_by_hand", peak_mib(lambda: trainer.flagged(module.set_requires_all_reduce)))
    bench.figure("window_by_hand", peak_mib(lambda: trainer.flagged(module.set_requires_gradient_sync)))
    for name, (mode, keep) in MODES.items():
        trainer = sharded(options, mesh)
        sync = gradgate.attach(trainer.module, trainer.optimizer, accumulate=len(trainer.data), mode=mode, keep_params=keep)
        bench.figure(name, peak_mib(trainer.gated(sync)))
        sync.close()
    bench.figure("gradients", sum(p.numel() * p.element_size() for p in trainer.module.parameters()) / 2**20)
