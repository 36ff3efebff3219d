"""Some of a launch's ranks as a job of their own: groups and meshes of the first ones, and a folder that all know."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from typing import Any

import torch
import torch.distributed as dist
import trainers as t
from torch.distributed.device_mesh import DeviceMesh

_meshes: dict[tuple[int, ...], Any] = {}


def group(size: int) -> Any:
    """Of the first ranks, a new one each time. The others get one, too: torch names some groups by their ranks and by how many groups a
    rank is in. Collective, as mesh is."""
    world = dist.get_world_size()
    if size == world:
        return dist.group.WORLD
    made = [dist.new_group(ranks) for ranks in (list(range(size)), list(range(size, world)))]
    t.KEPT.append(made)
    return made[0]


def mesh(*shape: int) -> Any:
    size, world = torch.Size(shape).numel(), dist.get_world_size()
    if shape not in _meshes:
        names = ("replicate", "shard")[-len(shape) :]
        _meshes[shape] = DeviceMesh("cpu", torch.arange(size).view(shape), mesh_dim_names=names)
        if size < world:
            DeviceMesh("cpu", torch.arange(size, world), mesh_dim_names=names)
    return _meshes[shape]


def folder() -> str:
    names = [tempfile.mkdtemp(prefix="gradgate-checkpoint-") if dist.get_rank() == 0 else ""]
    if names[0]:
        atexit.register(shutil.rmtree, names[0], ignore_errors=True)
    dist.broadcast_object_list(names, src=0)
    return names[0]


def inside(size: int) -> bool:
    return dist.get_rank() < size
