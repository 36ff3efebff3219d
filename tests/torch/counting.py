"""What torch's own profiler saw: the second opinion on every count of gradgate's."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

import torch

# The operator of c10d by gradgate's name of the operation.
OPERATIONS = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "allgather_": "all_gather",
    "allgather_coalesced_": "all_gather",
    "_allgather_base_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "broadcast_": "broadcast",
    "reduce_": "reduce",
    "gather_": "gather",
    "scatter_": "scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "barrier": "barrier",
    "monitored_barrier_": "barrier",
    "send": "send",
    "recv_": "recv",
    "recv_any_source_": "recv",
}


@contextlib.contextmanager
def profiled() -> Iterator[Counter[str]]:
    """Counts this process's collectives by operation: `with profiled() as counts: ...`; `counts` is filled when the block is left."""
    counts: Counter[str] = Counter()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
        yield counts
    for event in profile.events() or ():
        if event.name.startswith("c10d::"):
            name = event.name.removeprefix("c10d::")
            counts[OPERATIONS.get(name, name)] += 1
