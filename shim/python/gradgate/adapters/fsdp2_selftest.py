"""Tries on a model of three numbers, alone in a group of its own, what the adapter for FSDP2 does with private names."""

from __future__ import annotations

import torch
import torch.distributed as dist

from .base import Plan, Unreduced

_passed = False


def self_test() -> None:
    """Once a process; takes some milliseconds. Issues all-reduces in a group of one rank that is gone afterwards: run it before
    collectives are counted."""
    global _passed  # noqa: PLW0603
    if _passed:
        return
    try:
        wrong = _differences()
    except Exception as error:
        wrong = [f"{type(error).__name__}: {error}"]
    if wrong:
        raise Unreduced(
            f"FSDP2 of torch {torch.__version__} does not defer and reduce gradients as this gradgate expects ({'; '.join(wrong)}): "
            "use GRADGATE=off, or another torch"
        )
    _passed = True


class _Three(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for name in "abc":
            setattr(self, name, torch.nn.Parameter(torch.zeros(2)))

    def forward(self, factor: torch.Tensor, name: str) -> torch.Tensor:
        value: torch.Tensor = getattr(self, name)
        return (value * factor).sum()


def _differences() -> list[str]:
    alone = dist.new_group([dist.get_rank()], backend="gloo", use_local_synchronization=True)
    try:
        with torch.enable_grad(), torch.device("cpu"):
            wrong = _run(alone, Plan.ACCUMULATE, "aab", {"a": 3.0, "b": 4.0, "c": None})
            return wrong + _run(alone, Plan.SHARD, "aba", {"a": 5.0, "b": 2.0, "c": None})
    finally:
        dist.destroy_process_group(alone)


def _run(alone: dist.ProcessGroup, plan: Plan, used: str, right: dict[str, float | None]) -> list[str]:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    from .fsdp2 import Fsdp2

    mesh = DeviceMesh.from_group([alone, alone], "cpu", mesh=[[dist.get_rank()]], mesh_dim_names=("replicate", "shard"))
    net = _Three()
    fully_shard(net, mesh=mesh)
    adapter = Fsdp2(net)
    for step, name in enumerate(used):
        adapter.arm(plan)
        net(torch.tensor(2.0**step), name).backward()
        adapter.disarm()
    wrong = [] if adapter.pending() else [f"{plan.name} defers nothing"]
    adapter.late()
    for name, value in right.items():
        gradient = getattr(net, name).grad
        found = None if gradient is None else gradient.to_local().tolist()
        if found != (None if value is None else [value, value]):
            wrong.append(f"{plan.name} leaves {found} where {value} is right")
    adapter.close()
    return wrong
