"""What torch's own profiler saw: the second opinion on every count of gradgate's."""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections import Counter
from collections.abc import Iterator

import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "examples/demo"))
from profiler import OPERATIONS, collectives  # noqa: E402

__all__ = ["OPERATIONS", "profiled"]


@contextlib.contextmanager
def profiled() -> Iterator[Counter[str]]:
    """Counts this process's collectives by operation: `with profiled() as counts: ...`; `counts` is filled when the block is left."""
    counts: Counter[str] = Counter()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        yield counts
    counts.update(collectives(profile))
