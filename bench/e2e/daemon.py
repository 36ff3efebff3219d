"""One trainer whose daemon is alive, then stopped, then killed, then alive again: the same attachment all along."""

from __future__ import annotations

import time
from typing import Any

import gradgate
import torch
import torch.distributed as dist
from loopback import repeat
from loops import Trainer, model
from torch.nn.parallel import DistributedDataParallel

LINK_S = 20


def link(sync: Any, window: Any) -> None:
    """Windows until every rank has found the daemon: it is tried once a second, when a window begins."""
    end = time.monotonic() + LINK_S
    while time.monotonic() < end:
        window()
        linked = torch.tensor([int(sync.stats()["linked"])])
        dist.all_reduce(linked, dist.ReduceOp.MIN)
        if linked.item():
            return
    raise RuntimeError(f"not linked to the daemon within {LINK_S} s")


def run(bench: Any) -> None:
    options = bench.options
    trainer = Trainer(DistributedDataParallel(model(options["layers"], options["width"])), options["width"], options["batch"])
    sync = gradgate.attach(trainer.module, trainer.optimizer, accumulate=len(trainer.data), mode="window")
    window = trainer.gated(sync)
    block = repeat(window, options["times"])
    took: dict[str, list[list[float]]] = {state: [] for state in ("alive", "stopped", "killed")}
    for _ in range(options["rounds"] + 1):
        for state, values in took.items():
            bench.ask("daemon", state)
            if state == "alive":
                link(sync, window)
            block()
            values.append([bench.timed(block)[0], bench.timed(block)[0]])
    for state, values in took.items():
        slowest = torch.tensor(values[1:], dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        bench.series(state, slowest[:, 0].tolist(), slowest[:, 1].tolist())
    sync.close()
