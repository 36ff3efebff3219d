"""A forked child counts nothing of its parent's, while its own work goes on; it may bind anew."""

from __future__ import annotations

import os
from typing import Any

import launch
import pytest
from test_tap import environment


def forking(rank: int, world: int, kind: str) -> dict[str, Any]:
    import ctypes

    import torch
    import torch.distributed as dist
    from gradgate import _abi, tap

    calls: list[int] = []

    class Fake:
        """Counts in this process's own memory, which a child has a copy of: the library's ledger would drop the child's calls itself."""

        handle = 4096
        micro_step_begin: Any = None
        micro_step_end: Any = None

        def collective_issued(self, *_: int) -> int:
            calls.append(1)
            return 1

        def collective_done(self, *_: int) -> None:
            pass

    issued = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_uint32] * 3, ctypes.c_uint64, ctypes.c_uint32)(
        Fake().collective_issued
    )
    done = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_uint32] * 3, ctypes.c_int64, ctypes.c_uint32)(Fake().collective_done)
    addresses: dict[str, Any] = {"gg_ledger_collective_issued": issued, "gg_ledger_collective_done": done}
    _abi.address = lambda name: ctypes.cast(addresses[name], ctypes.c_void_p).value or 0

    seen, fake = tap.load(), Fake()
    assert seen.native == (kind == "native")
    seen.bind(fake)
    seen.active(fake)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            value = torch.ones(2)
            dist.all_reduce(value)
            alone = len(calls)
            seen.bind(fake)
            dist.all_reduce(value)
            seen.unbind(fake)
            os.write(writer, bytes([alone, len(calls), int(value.sum())]))
        finally:
            os._exit(0)
    os.close(writer)
    told = list(os.read(reader, 3))
    os.waitpid(child, 0)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(torch.ones(2))
    seen.unbind(fake)
    dist.destroy_process_group()
    return {"child": told, "parent": len(calls)}


@pytest.mark.parametrize("kind", ["native", "python"])
def test_a_forked_child_counts_nothing(kind: str) -> None:
    (outcome,) = launch.launch(forking, 1, args=(kind,), env=environment(kind), group=False)
    assert outcome.error is None, outcome
    assert outcome.value == {"child": [0, 1, 2], "parent": 1}
