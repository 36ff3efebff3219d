"""Whether the reduce-scatter of this torch's Gloo averages when it is told to. Some releases sum, in silence: gradients of FSDP are
then too large by the number of shards."""

from __future__ import annotations

import contextlib
import functools
import threading
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

SUMS = (
    "gloo_reduce_scatter_sums",
    "the Gloo of this torch ignores ReduceOp.AVG in a reduce-scatter, so FSDP2's gradients are too large by the number of shards: call "
    "set_force_sum_reduction_for_comms(True) and set_gradient_divide_factor(), or use another torch",
)


@functools.cache
def gloo_reduce_scatter_averages() -> bool:
    """Tried between two threads of this process, in a group that nothing else sees; true also where it could not be tried."""
    if not dist.is_gloo_available():
        return True
    store, found = dist.HashStore(), [0.0, 0.0]
    threads = [threading.Thread(target=_reduce_scatter, args=(store, rank, found), daemon=True) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    return found != [4.0, 4.0]


def _reduce_scatter(store: Any, rank: int, found: list[float]) -> None:
    with contextlib.suppress(RuntimeError):
        group: Any = dist.ProcessGroupGloo(store, rank, 2, timedelta(seconds=10))
        options: Any = dist.ReduceScatterOptions()
        options.reduceOp = dist.ReduceOp.AVG
        output = torch.zeros(1)
        group._reduce_scatter_base(output, torch.full((2,), 1.0 + 2 * rank), options).wait()
        found[rank] = output.item()
