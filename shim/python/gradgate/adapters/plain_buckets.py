"""Flat buckets of gradients, and the sums that carry them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from .comm_hooks import narrows


class Bucket:
    """Gradients of one type and device. States: empty -> launched (any number of times) -> written, which is empty again."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype = dtype
        self.device = device
        self.indices: list[int] = []
        self.bytes = 0
        self.numel = 0
        self.missing = 0  # parameters whose gradient has not arrived
        self._sent: torch.Tensor | None = None
        self._work: Any = None
        self._seen: list[tuple[torch.Tensor | None, int]] = []

    def add(self, index: int, parameter: torch.Tensor) -> None:
        self.indices.append(index)
        self.bytes += parameter.numel() * parameter.element_size()
        self.numel += parameter.numel()

    def launch(self, parameters: Sequence[torch.Tensor], group: Any, world: int, wire: torch.dtype | None) -> None:
        """Sends the mean's part of this rank: gradients as they are now, zeros for None. Does not wait."""
        with torch.inference_mode(False), torch.no_grad():
            flat = torch.zeros(self.numel, dtype=self.dtype, device=self.device)
            gradients = [parameters[i].grad for i in self.indices]
            views = [view for view, g in zip(self._views(flat, parameters), gradients, strict=True) if g is not None]
            dense = [g.to_dense() if g.is_sparse else g for g in gradients if g is not None]
            if views:
                torch._foreach_copy_(views, dense)
            flat.mul_(1.0 / world)
            self._sent = flat.to(wire) if wire is not None and narrows(self.dtype, wire) else flat
            self._seen = [(g, g._version if g is not None else 0) for g in gradients]
            self._work = dist.all_reduce(self._sent, group=group, async_op=True)

    def stale(self, parameters: Sequence[torch.Tensor]) -> bool:
        """Whether a gradient has changed since it was sent: another backward, or the loop's own arithmetic."""
        now = [parameters[i].grad for i in self.indices]
        return any(g is not old or (g is not None and g._version != version) for g, (old, version) in zip(now, self._seen, strict=True))

    def wait(self, timeout: Any) -> None:
        self._work.wait(timeout)

    def write(self, parameters: Sequence[torch.Tensor], used: Sequence[bool], sparse: Sequence[bool]) -> None:
        """Into p.grad in place where there is one; a parameter that no rank used keeps what it has."""
        assert self._sent is not None
        with torch.inference_mode(False), torch.no_grad():
            for index, view in zip(self.indices, self._views(self._sent, parameters), strict=True):
                parameter = parameters[index]
                if not used[index]:
                    continue
                if sparse[index]:
                    parameter.grad = view.to(self.dtype).to_sparse(1)
                elif parameter.grad is None:
                    parameter.grad = torch.empty_like(parameter).copy_(view)
                else:
                    parameter.grad.copy_(view)
        self.drop()

    def drop(self) -> None:
        self._sent, self._work, self._seen = None, None, []

    def _views(self, flat: torch.Tensor, parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        parts = flat.split([parameters[i].numel() for i in self.indices])
        return [part.view(parameters[i].shape) for i, part in zip(self.indices, parts, strict=True)]


def plan(parameters: Sequence[torch.Tensor], wanted: Sequence[bool], cap: int) -> list[Bucket]:
    """Wanted parameters from the last to the first, as a backward brings them; buckets in the order in which they are filled."""
    opened: dict[tuple[torch.dtype, torch.device], Bucket] = {}
    buckets: list[Bucket] = []
    for index in reversed(range(len(parameters))):
        parameter = parameters[index]
        if not wanted[index]:
            continue
        key = (parameter.dtype, parameter.device)
        bucket = opened.get(key)
        if bucket is None or bucket.bytes + parameter.numel() * parameter.element_size() > cap:
            bucket = opened[key] = Bucket(*key)
            buckets.append(bucket)
        bucket.add(index, parameter)
    return buckets
