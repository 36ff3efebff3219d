"""Inside a script's process: waits for the end of the first optimizer step, attaches what it finds, and reports when the process ends.

    first step ──► counted ──────────────────────────────────────────► report      GRADGATE=audit
    first step ──► counted for a window ── reduced too often ──► enforced ──► report      GRADGATE=enforce
                                        ├─ reduced once ───────► counted ───► report
                                        └─ never reduced ──────► left alone

Whatever goes wrong while counting leaves the script alone, and is told at the end: nothing is suppressed then, no collective is added, and
the ranks agree on nothing after the handshake. What is enforced guards every optimizer of its models, those made later too.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .. import guards
from . import explain, in_backward, report, trial
from .observed import AUDIT, ENFORCE, TRIED, Observed
from .reads import Early, agreed

_observer: Observer | None = None


def install() -> None:
    """Called when torch has been imported."""
    global _observer  # noqa: PLW0603 - one per process, as torch's hooks are
    if _observer is None:
        _observer = Observer(enforcing=os.environ.get("GRADGATE") == ENFORCE)


class Observer:
    """Thread class: the loop's, and the backward's."""

    def __init__(self, enforcing: bool) -> None:
        self.enforcing = enforcing
        self.begin = time.perf_counter()  # seconds
        self.pid = os.getpid()
        self.rank, self.world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))  # until a group tells
        self.observed: list[Observed] = []
        self.left_alone: dict[str, None] = {}  # why
        self._of: dict[int, Observed | None] = {}  # by optimizer
        self._kept: list[torch.optim.Optimizer] = []  # so that their ids stay theirs
        self._busy = threading.local()
        self._inside = in_backward.Inside(self._first_step)
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        self._watch_scaler()
        atexit.register(self._at_exit)

    def _watch_scaler(self) -> None:
        """A scaler that skips its optimizer's step ends the window as well."""
        scaler = torch.amp.GradScaler
        original = scaler.step

        def step(this: Any, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            result = original(this, optimizer, *args, **kwargs)
            self._window_ended(optimizer)
            return result

        scaler.step = step  # type: ignore[method-assign,assignment]

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        if id(optimizer) not in self._of:
            self._adopt(optimizer)
        one = self._of.get(id(optimizer))
        if one is None or one.how == ENFORCE:
            return None
        if one.early is not None:
            one.early.reduced = True
        # An optimizer that evaluates the loss itself needs each of its evaluations reduced.
        return guards.after_closure(args, kwargs, lambda: self._window_ended(optimizer))

    def _adopt(self, optimizer: torch.optim.Optimizer) -> None:
        """One that was made after its model had been attached; where that is enforced, nobody has reduced yet what it steps on."""
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for one in self.observed:
            if not one.given_up and held & {id(p) for p in one.sync.window.job.parameters}:
                self._know([optimizer], one)
                if one.how == ENFORCE:
                    one.sync.window.job.guards.add(optimizer)
                else:
                    one.optimizers.append(optimizer)

    def _window_ended(self, optimizer: torch.optim.Optimizer) -> None:
        one = self._of.get(id(optimizer))
        if one is None or one.given_up or one.how == ENFORCE:  # else its guards have done it
            return
        try:
            one.ended()
        except Exception as error:
            one.give_up(error)

    def _after_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        if getattr(self._busy, "now", False):
            return
        self._window_ended(optimizer)
        one = self._of.get(id(optimizer))
        if one is not None and one.how == ENFORCE and not one.given_up:
            one.stepped()
            self._tell(one)
            return
        judging = one is not None and self.enforcing and one.how == AUDIT and not one.given_up
        if id(optimizer) in self._of and not judging:
            if one is not None and not one.given_up:
                self._tell(one)
            return
        if in_backward.running():
            if one is None:
                self._know([optimizer], None)
                self._inside.stepped(optimizer)
            return
        self._first_step(optimizer)

    def _first_step(self, optimizer: torch.optim.Optimizer) -> None:
        """It is over, or the backward that it came in; or one of what is counted is, and may be enforced."""
        one = self._of.get(id(optimizer))
        self._busy.now = True
        try:
            if one is not None:
                self._judge(one)
                if one.how == AUDIT and one in self.observed:
                    self._tell(one)
            else:
                self._know([optimizer], None)
                self._meet(optimizer)
        except Exception as error:
            self.left_alone[f"{type(error).__name__}: {error}"] = None
        finally:
            self._busy.now = False

    def _judge(self, one: Observed) -> None:
        """After each window that was only counted: accumulation may begin late."""
        from .. import attachment  # noqa: PLC0415 - a process that never steps does without

        one.tally.end()
        if one.never or not one.tally.windows:
            return
        first, one.judged = not one.judged, True
        beside = one.implicit.beside() > 0
        if one.tally.unreduced and not first:
            return  # now and then it means to
        if not one.tally.wasted and not one.tally.unreduced:
            return  # nothing to mend: in its own backward the reduction overlaps
        one.detach()
        self.observed.remove(one)
        self._know(one.optimizers, None)
        if one.tally.unreduced:
            why = "whose first window reduced nothing: local SGD, or an optimizer that reduces by itself"
            self.left_alone[f"{type(one.optimizers[0]).__name__}, {why}"] = None
            return
        reader = next(filter(None, agreed(one.group, one.early.where if one.early is not None else "")), "")
        if reader:
            why = f"{type(one.optimizers[0]).__name__}: {reader} reads gradients before the step, and they would not be reduced yet"
            self.left_alone[why] = None
            return
        tried = trial.asked()
        if tried is not None and (why := one.without_effect(tried.policies)):
            self.left_alone[why] = None
            return
        attachment.yield_name(one.sync.window.job)
        one.before = one.tally.reductions / one.tally.windows
        one.attach(ENFORCE, beside=any(agreed(one.group, "beside" if beside else "")))
        one.watch_reads()
        self._know(one.optimizers, one)
        self.observed.append(one)

    def _tell(self, one: Observed) -> None:
        """What was found, after the first window; when a trial is over, what it has shown."""
        if one.explained is None and one.sync.window.all_micro_steps:
            one.explained = explain.of(one)
            if explain.VARIABLE in os.environ:
                report.tell(explain.page(report.of(one)), self.rank)
        if one.trial is not None and one.given_up == TRIED:
            report.tell(trial.page(trial.verdict(one.trial), one.name), self.rank)

    def _know(self, optimizers: list[torch.optim.Optimizer], one: Observed | None) -> None:
        self._kept += optimizers
        self._of.update((id(optimizer), one) for optimizer in optimizers)

    def _meet(self, optimizer: torch.optim.Optimizer) -> None:
        from .. import adapters  # noqa: PLC0415 - a process that never steps does without
        from . import found, never  # noqa: PLC0415

        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() == 1:
            self.left_alone["one process, whose gradients are reduced with nobody"] = None
            return
        self.rank, self.world_size = distributed.get_rank(), distributed.get_world_size()
        models = found.models_of([optimizer])
        optimizers = found.optimizers_of(models, optimizer)
        wrapped = [(model, *adapters.discover(model)) for model in models]
        # One of a model that nobody wraps is left alone by itself.
        others = found.others_of(models, optimizers) if any(held for _, held, _ in wrapped) else []
        if others and not self.enforcing:
            optimizers += others
            wrapped = [(model, *adapters.discover(model)) for model in found.models_of(optimizers)]
        reducing = [adapter for _, held, _ in wrapped for adapter in held]
        why = self._reason_to_leave(optimizers, others, wrapped, reducing)
        if why:
            self._know(others, None)
            self.left_alone[why] = None
            return
        groups = {group.process_group.group_name: group.process_group for adapter in reducing for group in adapter.groups()}
        group = next(iter(groups.values())) if len(groups) == 1 else distributed.group.WORLD
        one = Observed([model for model, held, _ in wrapped if held], optimizers, sorted({adapter.kind for adapter in reducing}), group)
        one.each_backward = id(optimizer) in self._inside.seen
        one.attach(AUDIT)
        one.never = never.enforced(one, self.enforcing)
        if one.each_backward:
            in_backward.tell(one)
        if self.enforcing and not one.never:
            one.early = Early(one.sync.window.job.parameters, one.implicit.holds_gradients)
        self._know(optimizers, one)
        self.observed.append(one)

    def _reason_to_leave(self, optimizers: list[Any], others: list[Any], wrapped: list[Any], reducing: list[Any]) -> str:
        from . import never  # noqa: PLC0415

        name = type(optimizers[0]).__name__
        if not reducing:
            names = ", ".join(type(model).__name__ for model, _, _ in wrapped) or "parameters of no module"
            return f"{name} trains {names}, which neither DDP nor FSDP wraps: the script reduces in a way of its own"
        if why := never.counted(reducing):
            return why
        if self.observed:
            return f"{name} of {type(reducing[0].module).__name__}, which began to step after others"
        if not self.enforcing:
            return ""
        trained = {id(p) for one in optimizers for group in one.param_groups for p in group["params"]}
        outside = [name for _, _, strays in wrapped for name, p in strays if p.requires_grad and id(p) in trained]
        if outside:
            return f"{name} trains {outside[0]} and {len(outside) - 1} more parameters outside every wrapper"
        if others:
            return "models that step in turns: attach them together by hand: gradgate.attach([a, b], [oa, ob], …)"
        if any(getattr(getattr(adapter.module, "_join_config", None), "enable", False) for adapter in reducing):
            return "inside Join the ranks that have ended shadow each backward, and none can be left out"
        if any(getattr(adapter.module, "static_graph", False) for adapter in reducing):
            return "DDP(static_graph=True) cannot reduce late once it has reduced: attach by hand before the first forward"
        return ""

    def _at_exit(self) -> None:
        if os.getpid() != self.pid:  # a forked child that ends as its parent would
            return
        report.at_exit(self)
        for one in self.observed:  # what is only counted is let go before the interpreter takes models and groups down
            if one.how == AUDIT and not one.given_up:
                with contextlib.suppress(Exception):
                    one.detach()
        self.observed.clear()
        self._of.clear()
        self._kept.clear()
