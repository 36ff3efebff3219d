"""Micro-steps of a loop that does not tell them: from a model's forward to the end of the backward through what it returned.

    forward of a root ──► a backward through its output begins ──► … ends: the micro-step is over
                          one ran inside the forward: the next forward, a step, a clip or an unscale ends it
                          none comes: the next forward belongs to it; at the step it was none

Forwards without gradients and inside a backward (recomputation) are none. Whether modules train or evaluate is not asked: frameworks
leave wrappers in either. Thread class: the loop's thread; the backward's.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree

from .. import closing
from ..adapters.base import Role
from . import backwards

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..sync import Sync
    from .tally import Tally


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


class _Hook:
    """One of a module's, left out of its copies: what is pickled or copied in its place does nothing, and needs no gradgate to be read."""

    __slots__ = ("_failed", "_hook")

    def __init__(self, hook: Callable[..., None], failed: Callable[[Exception], None]) -> None:
        self._hook = hook
        self._failed = failed

    def __call__(self, *args: Any) -> None:
        try:
            self._hook(*args)
        except Exception as error:
            self._failed(error)

    def __reduce__(self) -> Any:
        return functools.partial, (contextlib.nullcontext.__exit__, None)


class _NoBackward(Exception):
    """A forward whose output nobody went back through, or not to the end."""


class _Forward:
    """What is known of one micro-step's forwards."""

    __slots__ = ("abandoned", "before", "ended", "ran", "unhooked")

    def __init__(self) -> None:
        self.before = backwards.begun()
        self.ran = False  # a backward through its output has begun
        self.ended = False  # and came to its end
        self.unhooked = False  # or may have, untold
        self.abandoned = False  # something read gradients before any backward came


class Implicit:
    """Drives one attachment. `tally` is told of micro-steps that end; `failed` of what goes wrong, and the script goes on if it returns."""

    def __init__(self, sync: Sync, tally: Tally, failed: Callable[[Exception], None]) -> None:
        self._sync = sync
        self._window = sync.window
        self._tally = tally
        self._failed = failed
        self._now = _Forward()
        roots = {id(adapter.module): adapter.module for adapter in sync.window.job.adapters if adapter.kind != "plain"}.values()
        self._busy_before = 0
        self._roles = [role for role in Role if sync.window.job.roles & (1 << role) and role is not Role.OTHER]
        self._window.leave = self._leave_if_ran
        sync.window.job.micro_step.yield_to_script()
        backwards.count()
        self._begun = backwards.begun()
        self._ended = 0  # micro-steps
        self._closed_by = 0  # backwards begun when a window was closed in its own
        self._probes: list[tuple[int, int]] = []
        self._handles = [root.register_forward_pre_hook(_Hook(self._forward, failed), prepend=True) for root in roots]
        self._handles += [root.register_forward_hook(_Hook(self._forwarded, failed)) for root in roots]

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._window.leave = None
        backwards.ignore()

    def _guarded(self, hook: Callable[..., None]) -> Callable[..., None]:
        return _Hook(hook, self._failed)

    def holds_gradients(self) -> bool:
        """Whether a backward of the open window has run, and none has reduced it."""
        if self._window.closed:
            return False  # reduced where it was predicted to end
        return self._window.micro_steps > 0 or (self._window.inside and self._any_backward())

    def beside(self) -> int:
        """Backwards that were no micro-step's only one."""
        return backwards.begun() - self._begun - self._ended

    def _any_backward(self) -> bool:
        return self._now.ran or backwards.begun() > self._now.before or self._window.ledger.issued() > 0

    def _forward(self, _module: torch.nn.Module, _args: Any) -> None:
        if not torch.is_grad_enabled() or _in_backward():
            return
        if self._window.inside:
            now = self._now
            if not now.ran and self._window.ledger.issued() == 0 and not (now.unhooked and self._any_backward()):
                return
            self.leave()
        self._enter(_Forward())

    def _enter(self, now: _Forward) -> None:
        self._now = now
        self._busy_before = self._busy_ns()
        self._sync.enter(0)

    def _forwarded(self, _module: torch.nn.Module, _args: Any, output: Any) -> None:
        if not self._window.inside or _in_backward():
            return
        now = self._now
        leaves, _ = _pytree.tree_flatten(output)
        leaves = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        for leaf in leaves:
            leaf.register_hook(self._guarded(lambda _gradient: self._backward(now)))
        # A backward inside the forward has passed before the hooks were there.
        now.unhooked |= not leaves or backwards.begun() > now.before

    def _backward(self, forward: _Forward) -> None:
        if forward.abandoned and not self._window.inside:
            forward.abandoned = False
            self._enter(forward)
        if forward is not self._now or forward.ran or not self._window.inside:
            return
        forward.ran = True
        # Behind whatever the wrappers queue for the end of this backward.
        engine = torch.autograd.Variable._execution_engine
        engine.queue_callback(lambda: engine.queue_callback(self._guarded(lambda: self._backward_ended(forward))))

    def _backward_ended(self, forward: _Forward) -> None:
        """One after which a wrapper that is to reduce has not, may be half of what it waits for: the next forward or the step will tell."""
        forward.ended = True
        if self._window.job.enforcing or self._window.ledger.issued() > 0:
            self.leave()

    def _leave_if_ran(self) -> None:
        """Something reads gradients."""
        if _in_backward():
            return
        window = self._window
        if window.inside:
            self.leave()
        elif window.closed and window.outrunnable and backwards.begun() > self._closed_by and self._changed():
            self._enter(_Forward())  # a backward of no forward of its own has added to a window that had seemed over
            self._now.ran = self._now.ended = True
            self.leave()

    def _changed(self) -> bool:
        window = self._window
        return closing.probes(window) != self._probes or any(adapter.pending() for adapter in window.adapters)

    def leave(self) -> None:
        window = self._window
        if not window.inside:
            return
        if not self._any_backward():
            self._now.abandoned = True
            self._sync.leave(_NoBackward(), None)
            return
        if self._now.ran and not self._now.ended and window.ledger.issued() == 0:  # it failed, and the script goes on
            self._sync.leave(_NoBackward(), None)
            return
        place, issued = window.micro_steps, window.ledger.issued()
        busy_ns = self._busy_ns() - self._busy_before
        self._sync.leave(None, None)
        self._ended += 1
        self._tally.micro_step(place, issued, busy_ns)
        if window.closed:
            self._closed_by, self._probes = backwards.begun(), closing.probes(window)

    def _busy_ns(self) -> int:
        """Time that collectives of the kinds that carry gradients have taken, on the groups that reduce."""
        ledger = self._window.ledger
        return sum(ledger.collective_stats(role, op).duration_ns for role in self._roles for op in ("all_reduce", "reduce_scatter"))
