"""Micro-steps that a framework's own calls tell: DeepSpeed's engine, whose backward ends after autograd's, and pipeline schedules, whose
step runs many. In the place of Implicit, for counting alone.

    engine      forward with gradients ──► the end of its backward, reductions included
    schedule    its step
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from ..adapters import pipelines
from ..adapters.base import Role
from ..adapters.deepspeed import Deepspeed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..sync import Sync
    from .tally import Tally


OVERWRITES = (
    "the engine takes each backward for the last of its step, reduces, and overwrites what it had reduced before: the optimizer uses the "
    "last micro-batch alone. Set gradient_accumulation_steps in its configuration, or gradgate.attach(engine, accumulate=…)"
)


def tells(sync: Sync) -> bool:
    """Whether the attached are of that kind."""
    adapters = sync.window.job.adapters
    return any(isinstance(adapter, Deepspeed) for adapter in adapters) or bool(pipelines.stages_of([a.module for a in adapters]))


class ToldSteps:
    """`failed`: called with what goes wrong here; the script goes on."""

    def __init__(self, sync: Sync, tally: Tally, failed: Callable[[Exception], None]) -> None:
        self._sync = sync
        self._window = sync.window
        self._tally = tally
        self._failed = failed
        self._restore: list[Callable[[], object]] = []
        self._ran = False  # the open micro-step's backward
        job = sync.window.job
        self._roles = [role for role in Role if job.roles & (1 << role) and role is not Role.OTHER]
        for adapter in job.adapters:
            if isinstance(adapter, Deepspeed):
                self._watch_engine(adapter.module)
        for schedule in pipelines.schedules_of(pipelines.stages_of([a.module for a in job.adapters])):
            self._around(schedule, "step", self._begin, self._end)
        self._window.leave = self._abandon

    def close(self) -> None:
        while self._restore:
            self._restore.pop()()
        self._window.leave = None

    def holds_gradients(self) -> bool:
        return self._window.micro_steps > 0 or self._ran

    def beside(self) -> int:
        return 0

    def _watch_engine(self, engine: Any) -> None:
        handle = engine.register_forward_pre_hook(lambda _module, _args: self._guarded(self._forward), prepend=True)
        self._restore.append(handle.remove)
        self._around(engine, "backward", self._begin, lambda: None)
        self._around(engine, "_backward_epilogue", self._begin, self._end)  # loss.backward() ends there, too

    def _around(self, held: Any, name: str, before: Callable[[], None], after: Callable[[], None]) -> None:
        original = getattr(held, name)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            self._guarded(before)
            result = original(*args, **kwargs)
            self._guarded(after)
            return result

        setattr(held, name, call)
        self._restore.append(lambda: held.__dict__.pop(name, None))

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self._failed(error)

    def _forward(self) -> None:
        if torch.is_grad_enabled() and torch._C._current_graph_task_id() == -1:
            self._begin()

    def _begin(self) -> None:
        if not self._window.inside:
            self._busy_before = self._busy_ns()
            self._ran = False
            self._sync.enter(0)

    def _end(self) -> None:
        window = self._window
        if not window.inside:
            return
        place, issued = window.micro_steps, window.ledger.issued()
        busy_ns = self._busy_ns() - self._busy_before
        self._sync.leave(None, None)
        self._tally.micro_step(place, issued, busy_ns)
        if any(isinstance(adapter, Deepspeed) and adapter.overwrote for adapter in window.job.adapters):
            window.ledger.warn("deepspeed_overwrites", OVERWRITES)

    def _abandon(self) -> None:
        """The window ends; a forward whose backward never came was none of its micro-steps. Inside a schedule's step it may go on."""
        if self._window.inside and torch._C._current_graph_task_id() == -1:
            self._sync.leave(RuntimeError("a forward without a backward"), None)

    def _busy_ns(self) -> int:
        ledger = self._window.ledger
        return sum(ledger.collective_stats(role, op).duration_ns for role in self._roles for op in ("all_reduce", "reduce_scatter"))
