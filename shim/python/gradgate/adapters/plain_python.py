"""The reducer of unwrapped parameters in Python: what gradgate/torch_reducer.hpp does in C++, where there is no compiler, and for tensor
subclasses. The protocol is written there; ranks of one job may use either."""

from __future__ import annotations

import functools
import threading
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group

from .base import Unreduced
from .comm_hooks import wire_type
from .plain_buckets import Bucket, plan

_SPARSE = 1 << 16  # in the map, of a rank's own entry; more ranks than that are not told apart


class PythonReducer:
    """States and calls as Reducer in gradgate/torch_reducer.hpp. Raises Unreduced, or what torch raises."""

    _next: int  # bucket to be sent
    _arrived: list[int]  # gradients since it was armed, by parameter
    _sent_again: int  # buckets, in the last reduction

    def __init__(self, parameters: list[torch.nn.Parameter], names: list[str], group_name: str, deadline_s: float, overlap: bool) -> None:
        self._parameters = parameters
        self._names = names
        self._group: Any = _resolve_process_group(group_name)  # type: ignore[arg-type]
        self._world: int = self._group.size()
        self._timeout = timedelta(seconds=deadline_s)
        self._overlap = overlap
        self._wire: torch.dtype | None = None
        self._handles: list[Any] = []
        self._lock = threading.Lock()  # hooks run on one thread per device
        self._complete = False  # since it was armed
        self._bucket_bytes = 25 * 2**20
        self._replan()

    def configure(self, bucket_bytes: int, wire: str | None) -> None:
        self._bucket_bytes, self._wire = bucket_bytes, wire_type(wire)
        self._replan()

    def state(self) -> tuple[bool, bool, bool, list[int], int]:
        """complete, launched, began, elements of each bucket, buckets that the last reduction sent again"""
        return self._complete, self._next > 0, any(self._arrived), [bucket.numel for bucket in self._buckets], self._sent_again

    def arm(self) -> None:
        if self._next:
            self.finish()  # the last micro-step reduced too, and nobody has asked since
        self._complete = False
        self._begin()
        if self._overlap and not self._handles:
            for index in self._bucket_of:
                hook = functools.partial(self._on_gradient, index)
                self._handles.append(self._parameters[index].register_post_accumulate_grad_hook(hook))

    def disarm(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def discard(self) -> None:
        for bucket in self._buckets[: self._next]:
            bucket.wait(self._timeout)
            bucket.drop()
        self._next = 0

    def finish(self) -> None:
        if not self._next and not any(self._arrived):
            self._begin()
        while self._next < len(self._buckets):
            self._send_next()
        where = "the map of used parameters"
        try:
            totals = self._totals()
            count = len(self._parameters)
            again = [bucket for bucket, changed in zip(self._buckets, totals[count:], strict=True) if changed]
            for bucket in again:
                bucket.wait(self._timeout)
                self._send(bucket)
            for bucket in self._buckets:
                where = f"a bucket of {len(bucket.indices)} parameters, {self._names[bucket.indices[0]]} first,"
                bucket.wait(self._timeout)
            # Frozen inside the window, with a gradient on some rank.
            left = [total > 0 and index not in self._bucket_of for index, total in enumerate(totals[:count])]
            frozen = plan(self._parameters, left, self._bucket_bytes)
            for bucket in frozen:
                where = f"a bucket of frozen parameters, {self._names[bucket.indices[0]]} first,"
                self._send(bucket)
                bucket.wait(self._timeout)
        except RuntimeError as error:
            raise Unreduced(f"{where} was not reduced within {self._timeout.total_seconds():g} s, or failed: {error}") from error
        for bucket in (*frozen, *self._buckets):
            bucket.write(self._parameters, [total > 0 for total in totals], [total >= _SPARSE for total in totals])
        if any(self._arrived):
            self._wanted, self._arrived = self._arrived, [0] * len(self._parameters)
        self._sent_again = len(again)
        self._next = 0
        self._complete = True

    def _facts(self) -> list[tuple[bool, torch.dtype, torch.device]]:
        return [(p.requires_grad, p.dtype, p.device) for p in self._parameters]

    def _replan(self) -> None:
        self._planned_for = self._facts()
        self._buckets: list[Bucket] = plan(self._parameters, [p.requires_grad for p in self._parameters], self._bucket_bytes)
        self._bucket_of = {index: bucket for bucket in self._buckets for index in bucket.indices}
        self._wanted = [1] * len(self._parameters)  # arrivals in a boundary
        self._arrived = [0] * len(self._parameters)
        self._next = 0
        self._sent_again = 0

    def _begin(self) -> None:
        """Freezing and unfreezing changes the buckets, on all ranks alike."""
        if self._planned_for != self._facts():
            self.disarm()
            self._replan()
        self._arrived = [0] * len(self._parameters)
        for bucket in self._buckets:
            bucket.missing = sum(self._wanted[index] > 0 for index in bucket.indices)

    def _on_gradient(self, index: int, parameter: torch.Tensor) -> None:
        with self._lock:
            self._arrived[index] += 1
            if self._arrived[index] != self._wanted[index]:
                return
            self._bucket_of[index].missing -= 1
            while self._next < len(self._buckets) and self._buckets[self._next].missing == 0:
                self._send_next()

    def _send_next(self) -> None:
        self._send(self._buckets[self._next])
        self._next += 1

    def _send(self, bucket: Bucket) -> None:
        bucket.launch(self._parameters, self._group, self._world, self._wire)

    def _totals(self) -> list[int]:
        """The map, summed: one entry per parameter, one per bucket."""
        gradients = [p.grad for p in self._parameters]
        mine = [0 if g is None else _SPARSE if g.is_sparse else 1 for g in gradients]
        mine += [int(bucket.stale(self._parameters)) for bucket in self._buckets]
        tensor = torch.tensor(mine, dtype=torch.int32, device=self._parameters[0].device)
        work: Any = dist.all_reduce(tensor, group=self._group, async_op=True)
        work.wait(self._timeout)
        totals: list[int] = tensor.tolist()
        return totals
