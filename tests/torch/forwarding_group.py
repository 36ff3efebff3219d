"""A process group in Python, as torchft's and others' are: its collectives are another group's, and pass no dispatcher."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist


class Forwarding(dist.ProcessGroup):
    def __init__(self, inner: Any) -> None:
        super().__init__(inner.rank(), inner.size())  # type: ignore[call-arg]
        self._inner = inner

    def allreduce(self, *args: Any) -> Any:
        return self._inner.allreduce(*args)

    def allgather(self, *args: Any) -> Any:
        return self._inner.allgather(*args)

    def broadcast(self, *args: Any) -> Any:
        return self._inner.broadcast(*args)

    def getBackendName(self) -> str:  # noqa: N802
        return "forwarding"

    @property
    def group_name(self) -> Any:
        return "forwarding"
