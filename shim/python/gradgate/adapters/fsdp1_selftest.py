"""Tries on a model of two numbers, alone in a group of its own, what the adapter for FSDP1 does with private names. One rank has
nothing to shard: that part is told by late() itself, which refuses where a gradient is left."""

from __future__ import annotations

import warnings

import torch
import torch.distributed as dist

from .base import Plan, Unreduced

_passed = False


class _Two(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Parameter(torch.zeros(2))

    def forward(self, factor: torch.Tensor) -> torch.Tensor:
        return (self.a * factor).sum()


def self_test() -> None:
    """Once a process. Issues an all-reduce in a group of one rank that is gone afterwards."""
    global _passed  # noqa: PLW0603
    if _passed:
        return
    try:
        found = _late_gradient()
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    if found != [[3.0, 3.0], True, False]:
        raise Unreduced(
            f"FSDP1 of torch {torch.__version__} does not defer and reduce gradients as this gradgate expects ({found}): use GRADGATE=off, "
            "or another torch"
        )
    _passed = True


def _late_gradient() -> object:
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    from .fsdp1 import Fsdp1

    alone = dist.new_group([dist.get_rank()], backend="gloo", use_local_synchronization=True)
    try:
        with torch.enable_grad(), torch.device("cpu"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module, cpu = _Two(), torch.device("cpu")
            net = FullyShardedDataParallel(module, alone, ShardingStrategy.NO_SHARD, device_id=cpu, use_orig_params=True)
            adapter = Fsdp1(net)
            for step in (1.0, 2.0):
                adapter.arm(Plan.ACCUMULATE)
                net(torch.tensor(step)).backward()
                adapter.disarm()
            deferred = adapter.pending()
            adapter.late()
            assert module.a.grad is not None
            return [module.a.grad.tolist(), deferred, adapter.pending()]
    finally:
        dist.destroy_process_group(alone)
