"""What torch's own profiler saw: the second opinion on every count of gradgate's."""

from __future__ import annotations

import contextlib
import pathlib
import re
import tempfile
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
EVENT = re.compile(r'"name": ?"c10d::(\w+)"')


@contextlib.contextmanager
def profiled() -> Iterator[Counter[str]]:
    """Counts this process's collectives by operation: `with profiled() as counts: ...`; `counts` is filled when the block is left."""
    counts: Counter[str] = Counter()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        yield counts
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace.json"  # read in a tenth of the time that profile.events() takes
        profile.export_chrome_trace(str(trace))
        for name in EVENT.findall(trace.read_text(encoding="utf-8", errors="replace")):
            counts[OPERATIONS.get(name, name)] += 1
