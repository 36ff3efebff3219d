"""Loops over FSDP2, HSDP and FSDP1."""

from __future__ import annotations

from typing import Any

import exact
import models
import torch
from loops import Loop, Run
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard


def train(run: Run, model: Any, *sizes: int) -> Any:
    optimizer = run.sgd(model.parameters(), lr=0.5)
    grid = exact.grid_of(run.world, models.N)
    for step, batches in enumerate(run.windows(*sizes)):
        for i in range(len(batches)):
            model((1 + i + 10 * run.rank - step) * grid).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.parameters()


def sharded(mesh: Any) -> Any:
    model = models.Known()
    for weight in model.weights:
        fully_shard(weight, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def fsdp2(run: Run) -> Any:
    return train(run, sharded(init_device_mesh("cpu", (run.world,))), 4, 4, 2, 4)


def hybrid(run: Run) -> Any:
    return sharded(init_device_mesh("cpu", (2, run.world // 2), mesh_dim_names=("replicate", "shard")))


def hsdp(run: Run) -> Any:
    return train(run, hybrid(run), 4, 4, 2, 4)


def _fsdp1(run: Run, **options: Any) -> Any:
    model = FullyShardedDataParallel(models.Known(), device_id=torch.device("cpu"), **options)
    train(run, model, 4, 4, 4, 4)
    with FullyShardedDataParallel.summon_full_params(model):
        return [p.detach().clone() for p in model.parameters()]


def fsdp1(run: Run) -> Any:
    return _fsdp1(run, use_orig_params=True)


def fsdp1_flat(run: Run) -> Any:
    return _fsdp1(run)


LOOPS: dict[str, Loop] = {loop.__name__: loop for loop in (fsdp2, hsdp, fsdp1, fsdp1_flat)}
