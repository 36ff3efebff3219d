"""Inside a script's process: waits for the end of the first optimizer step, attaches what it finds, and reports when the process ends.

Whatever goes wrong leaves the script alone, and is told at the end. With GRADGATE=audit nothing is suppressed, no collective is added,
and the ranks agree on nothing after the handshake.
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
import time
from datetime import timedelta
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from . import report
from .tally import Tally

_observer: Observer | None = None


def install() -> None:
    """Called when torch has been imported."""
    global _observer  # noqa: PLW0603 - one per process, as torch's hooks are
    if _observer is None:
        _observer = Observer(enforcing=os.environ.get("GRADGATE") == "enforce")


class Observed:
    """One attachment: what it drives and what it has counted."""

    def __init__(self, models: list[torch.nn.Module], optimizers: list[torch.optim.Optimizer], kinds: list[str]) -> None:
        self.models = [type(model).__name__ for model in models]
        self.optimizers = [type(optimizer).__name__ for optimizer in optimizers]
        self.kinds = kinds
        self.tally = Tally()
        self.sync: Any = None
        self.implicit: Any = None
        self.given_up = ""  # why it counts no more

    def stepped(self) -> None:
        """An optimizer has stepped, and nothing guards it."""
        window = self.sync.window
        if window.leave is not None:
            window.leave()
        if window.micro_steps and not window.inside:
            window.conclude()
            window.publish(stepped=True)

    def give_up(self, error: Exception) -> None:
        if self.given_up:
            return
        self.given_up = f"{type(error).__name__}: {error}"
        self.implicit.close()
        self.sync.window.inside = False
        self.sync.close()


class Observer:
    """Thread class: the loop's, and the backward's."""

    def __init__(self, enforcing: bool) -> None:
        self.enforcing = enforcing
        self.begin = time.perf_counter()  # seconds
        self.pid = os.getpid()
        self.observed: list[Observed] = []
        self.left_alone: dict[str, None] = {}  # why
        self._of: dict[int, Observed | None] = {}  # by optimizer
        self._kept: list[torch.optim.Optimizer] = []  # so that their ids stay theirs
        self._meeting = threading.local()
        register_optimizer_step_post_hook(self._after_step)
        atexit.register(self._at_exit)

    def _after_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        if id(optimizer) not in self._of:
            self._first_step(optimizer)
            return
        one = self._of[id(optimizer)]
        if one is None or one.given_up or self.enforcing:  # else its guards have done it
            return
        try:
            one.stepped()
        except Exception as error:
            one.give_up(error)

    def _first_step(self, optimizer: torch.optim.Optimizer) -> None:
        if getattr(self._meeting, "now", False):
            return
        self._meeting.now = True
        try:
            self._know([optimizer], None)
            self._meet(optimizer)
        except Exception as error:
            self.left_alone[f"{type(error).__name__}: {error}"] = None
        finally:
            self._meeting.now = False

    def _know(self, optimizers: list[torch.optim.Optimizer], one: Observed | None) -> None:
        self._kept += optimizers
        self._of.update((id(optimizer), one) for optimizer in optimizers)

    def _meet(self, optimizer: torch.optim.Optimizer) -> None:
        from .. import adapters, attachment, options  # noqa: PLC0415 - a process that never steps does without
        from . import found  # noqa: PLC0415
        from .implicit import Implicit  # noqa: PLC0415

        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() == 1:
            self.left_alone["one process, whose gradients are reduced with nobody"] = None
            return
        models = found.models_of({id(p) for group in optimizer.param_groups for p in group["params"]})
        wrapped = [(model, *adapters.discover(model)) for model in models]
        reducing = [adapter for _, held, _ in wrapped for adapter in held]
        name = type(optimizer).__name__
        if not reducing:
            names = ", ".join(type(model).__name__ for model in models) or "parameters of no module"
            self.left_alone[f"{name} trains {names}, which neither DDP nor FSDP wraps: the script reduces in a way of its own"] = None
            return
        optimizers = found.optimizers_of(models, optimizer)
        if self.observed:
            self.left_alone[f"{name} of {type(reducing[0].module).__name__}, which began to step after others"] = None
            return
        others = found.others_of(models, optimizers)
        if others and self.enforcing:
            self._know(others, None)
            self.left_alone["models that step in turns: attach them together by hand: gradgate.attach([a, b], [oa, ob], …)"] = None
            return
        if others:
            models = found.models_of({id(p) for one in (*optimizers, *others) for group in one.param_groups for p in group["params"]})
            wrapped = [(model, *adapters.discover(model)) for model in models]
            reducing = [adapter for _, held, _ in wrapped for adapter in held]
            optimizers += others
        trained = {id(p) for one in optimizers for group in one.param_groups for p in group["params"]}
        outside = [name for _, _, strays in wrapped for name, p in strays if p.requires_grad and id(p) in trained]
        if outside and self.enforcing:
            self.left_alone[f"{name} trains {outside[0]} and {len(outside) - 1} more parameters outside every wrapper"] = None
            return
        groups = {group.process_group.group_name: group.process_group for adapter in reducing for group in adapter.groups()}
        group = next(iter(groups.values())) if len(groups) == 1 else distributed.group.WORLD
        one = Observed(models, optimizers, sorted({adapter.kind for adapter in reducing}))
        chosen = options.check("observe", **_options(group))
        one.sync = attachment.attach_all([model for model, held, _ in wrapped if held], optimizers, group, chosen, votes=self.enforcing)
        one.implicit = Implicit(one.sync, one.tally, _raised if self.enforcing else one.give_up)
        self._know(optimizers, one)
        self.observed.append(one)

    def _at_exit(self) -> None:
        if os.getpid() == self.pid:  # not in a forked child that ends as its parent would
            report.at_exit(self)


def _raised(error: Exception) -> None:
    raise error


@functools.cache
def _mode() -> str:
    return os.environ.get("GRADGATE_RUN_MODE", "auto")


def _options(group: Any) -> dict[str, Any]:
    """As attach has them, but that ranks wait for each other no shorter than the process group would."""
    backend = torch.distributed.get_backend(group)
    timeout = torch.distributed.distributed_c10d._get_default_timeout(backend) or timedelta(minutes=30)
    return {
        **{"mode": _mode(), "windows": "equal", "uneven": "stop", "divide": "world", "bucket_mb": None, "wire": None},
        **{"keep_params": None, "strict": False, "job": None, "parity_every": 0},
        **{"deadline_s": timeout.total_seconds(), "handshake_deadline_s": 60.0},
    }
