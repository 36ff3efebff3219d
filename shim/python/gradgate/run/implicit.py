"""Micro-steps of a loop that does not tell them: from a model's forward to the end of the backward through what it returned.

    forward of a root ──► a backward through its output begins ──► … ends: the micro-step is over
                          none comes: the next forward belongs to it; a step, a clip or an unscale ends it

Forwards without gradients, in evaluation, and inside a backward (recomputation) are none. Thread class: the loop's thread; the backward's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree

from ..adapters.base import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..sync import Sync
    from .tally import Tally


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


class Implicit:
    """Drives one attachment. `tally` is told of micro-steps that end; `failed` of what goes wrong, and the script goes on if it returns."""

    def __init__(self, sync: Sync, tally: Tally, failed: Callable[[Exception], None]) -> None:
        self._sync = sync
        self._window = sync.window
        self._tally = tally
        self._failed = failed
        self._ran = False  # a backward through this micro-step's output has begun
        roots = {id(adapter.module): adapter.module for adapter in sync.window.job.adapters if adapter.kind != "plain"}.values()
        self._busy_before = 0
        self._roles = [role for role in Role if sync.window.job.roles & (1 << role) and role is not Role.OTHER]
        self._window.leave = self._leave_if_ran
        self._handles = [root.register_forward_pre_hook(self._guarded(self._forward), prepend=True) for root in roots]
        self._handles += [root.register_forward_hook(self._guarded(self._forwarded)) for root in roots]

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._window.leave = None

    def _guarded(self, hook: Callable[..., None]) -> Callable[..., None]:
        def guarded(*args: Any) -> None:
            try:
                hook(*args)
            except Exception as error:
                self._failed(error)

        return guarded

    def _forward(self, module: torch.nn.Module, _args: Any) -> None:
        if not module.training or not torch.is_grad_enabled() or _in_backward():
            return
        if self._window.inside:
            if not self._ran and self._window.ledger.issued() == 0:
                return
            self.leave()
        self._ran = False
        self._busy_before = self._busy_ns()
        self._sync.enter(0)

    def _forwarded(self, _module: torch.nn.Module, _args: Any, output: Any) -> None:
        if not self._window.inside or _in_backward():
            return
        leaves, _ = _pytree.tree_flatten(output)
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                leaf.register_hook(self._backward)

    def _backward(self, _gradient: torch.Tensor) -> None:
        if self._ran or not self._window.inside:
            return
        self._ran = True
        # Behind whatever the wrappers queue for the end of this backward.
        engine = torch.autograd.Variable._execution_engine
        engine.queue_callback(lambda: engine.queue_callback(self._guarded(self.leave)))

    def _leave_if_ran(self) -> None:
        """Something reads gradients."""
        if self._window.inside and not _in_backward():
            self.leave()

    def leave(self) -> None:
        window = self._window
        if not window.inside:
            return
        place, issued = window.micro_steps, window.ledger.issued()
        busy_ns = self._busy_ns() - self._busy_before
        self._sync.leave(None, None)
        self._tally.micro_step(place, issued, busy_ns)

    def _busy_ns(self) -> int:
        """Time that collectives of the kinds that carry gradients have taken, on the groups that reduce."""
        ledger = self._window.ledger
        return sum(ledger.collective_stats(role, op).duration_ns for role in self._roles for op in ("all_reduce", "reduce_scatter"))
