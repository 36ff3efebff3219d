"""Parameters that no wrapper reduces: gradgate reduces them itself, through torch's process group.

    bucket 0, bucket 1, … as their last gradients arrive; [the rest]; the map; [buckets that some rank has changed since]; write

The map, one small all-reduce, holds which parameters a rank has gradients for, so that one that nobody used keeps None, and which
buckets have changed since they were sent: a second backward in the micro-step, gradients scaled after it. Those are sent again, by all.
How often each gradient arrives in a boundary is remembered, so that the next one sends a bucket at its last.

Values at the start are the caller's to make equal: nothing is broadcast.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from .base import Adapter, Group, NoEffect, Plan, Role, Unreduced
from .comm_hooks import wire_type
from .ddp_options import bucket_bytes
from .plain_buckets import Bucket, plan

_REDUCE = Plan.REDUCE
_SPARSE = 1 << 16  # in the map, of a rank's own entry; more ranks than that are not told apart
_DEFAULT_BUCKET = 25 * 2**20


class Plain(Adapter):
    """Late ranks pair with those that reduce in their backward: all issue the same collectives in the same order.

    overlap  buckets are sent inside the backward. False where another wrapper reduces over the same group: its collectives and these
             would mix in another order on a rank that is late. Then late() sends them all.
    """

    kind = "plain"
    flag_read = "backward"
    late_alone = True

    def __init__(
        self, named: Sequence[tuple[str, torch.nn.Parameter]], process_group: Any, deadline_s: float = 300.0, *, overlap: bool = True
    ) -> None:
        unique = list({id(p): (name, p) for name, p in named}.values())
        self._names = [name for name, _ in unique]
        self._parameters = [p for _, p in unique]
        self.module = torch.nn.ParameterList(self._parameters)
        self._group = process_group
        self._world = dist.get_world_size(process_group) if process_group is not None else 1
        self._timeout = timedelta(seconds=deadline_s)
        self._overlap = overlap
        self._bucket_bytes = _DEFAULT_BUCKET
        self._wire: torch.dtype | None = None
        self._handles: list[Any] = []
        self._lock = threading.Lock()  # hooks run on one thread per device
        self._complete = False  # since it was armed
        self._replan()

    # --- what it is ------------------------------------------------------------------------------------------------------

    def groups(self) -> list[Group]:
        return [Group(self._group, Role.DP)] if self._world > 1 else []

    def parameters(self) -> list[torch.nn.Parameter]:
        return [p for p in self._parameters if p.requires_grad]

    def no_effect(self, option: str, value: object) -> NoEffect | None:
        if option == "mode" and value == "window_replica":
            return NoEffect("no_shard_dimension", "plain: parameters are not sharded; window_replica is the same as window")
        if option == "keep_params" and value:
            return NoEffect("no_sharded_parameters", "plain: parameters are never sharded; there is nothing to keep")
        if option == "bucket_mb" and value is not None:
            bucket_bytes(value)
        if option == "wire" and value is not None:
            wire_type(str(value))
        return None

    def configure(self, *, bucket_mb: float | None, wire: str | None, keep_params: bool) -> None:
        if wire is not None:
            self._wire = wire_type(wire)
        if bucket_mb is not None:
            self._bucket_bytes = bucket_bytes(bucket_mb)
            self._replan()

    def expected(self) -> dict[tuple[Role, str], int] | None:
        """With the map, and what was sent twice in the last reduction."""
        return {(Role.DP, "all_reduce"): len(self._buckets) + 1 + self._sent_again} if self._world > 1 else {}

    def gradient_sizes(self) -> tuple[frozenset[int] | None, bool]:
        return frozenset(bucket.numel for bucket in self._buckets), False

    def _replan(self) -> None:
        self._trainable = [p.requires_grad for p in self._parameters]
        self._buckets: list[Bucket] = plan(self._parameters, self._bucket_bytes)
        self._bucket_of = {index: bucket for bucket in self._buckets for index in bucket.indices}
        self._wanted = [1] * len(self._parameters)  # arrivals in a boundary
        self._arrived = [0] * len(self._parameters)
        self._next = 0  # bucket to be sent
        self._sent_again = 0

    # --- a micro-step ----------------------------------------------------------------------------------------------------

    def arm(self, plan: Plan) -> None:
        if self._next:
            self._finish()  # the last micro-step reduced too, and nobody has asked since
        if plan is _REDUCE:
            self._about_to_reduce()

    def disarm(self) -> None:
        if self._handles:
            for handle in self._handles:
                handle.remove()
            self._handles = []

    def _about_to_reduce(self) -> None:
        self._complete = False
        self._begin()
        if self._overlap and self._world > 1 and not self._handles:
            for index in self._bucket_of:
                hook = functools.partial(self._on_gradient, index)
                self._handles.append(self._parameters[index].register_post_accumulate_grad_hook(hook))

    def _begin(self) -> None:
        """Freezing and unfreezing changes the buckets, on all ranks alike."""
        if self._trainable != [p.requires_grad for p in self._parameters]:
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
                self._send(self._buckets[self._next])
                self._next += 1

    def _send(self, bucket: Bucket) -> None:
        bucket.launch(self._parameters, self._group, self._world, self._wire)

    def reduced(self) -> bool | None:
        return self._complete

    def began(self) -> bool:
        return any(self._arrived)

    def check(self) -> None:
        """Finishes what the backward began, which is when all ranks know of it; what it did not begin is left to late()."""
        if self._next:
            self._finish()

    def late(self) -> None:
        self.disarm()
        if self._world == 1:
            return
        if not self._next and not any(self._arrived):
            self._begin()
        self._finish()

    def discard(self) -> None:
        for bucket in self._buckets[: self._next]:
            bucket.wait(self._timeout)
            bucket.drop()
        self._next = 0

    def self_test(self) -> None:
        """Nothing private is used."""

    def close(self) -> None:
        self.disarm()

    # --- the rest of a reduction -----------------------------------------------------------------------------------------

    def _finish(self) -> None:
        while self._next < len(self._buckets):
            self._send(self._buckets[self._next])
            self._next += 1
        where = "the map of used parameters"
        try:
            totals = self._totals()
            count = len(self._parameters)
            again = [bucket for bucket, changed in zip(self._buckets, totals[count:], strict=True) if changed]
            for bucket in again:
                bucket.wait(self._timeout)
                self._send(bucket)
            for bucket in self._buckets:
                where = f"a bucket of {len(bucket.indices)} parameters, {self._names[bucket.indices[0]]} first"
                bucket.wait(self._timeout)
        except RuntimeError as error:
            raise Unreduced(f"plain: {where} was not reduced within {self._timeout.total_seconds():g} s, or failed: {error}") from error
        for bucket in self._buckets:
            bucket.write(self._parameters, [total > 0 for total in totals], [total >= _SPARSE for total in totals])
        if any(self._arrived):
            self._wanted, self._arrived = self._arrived, [0] * len(self._parameters)
        self._sent_again = len(again)
        self._next = 0
        self._complete = True

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
