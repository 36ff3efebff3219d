"""What is attached together in a script's process, counted or enforced."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import torch

from . import trial
from .in_backward import EachBackward
from .reads import Early, Notice
from .tally import Tally

AUDIT, ENFORCE = "audit", "enforce"
TRIED = "the trial is over"


class Observed:
    """What is attached together, and what it has counted. `before`: its reductions per window while it was only counted."""

    def __init__(self, models: list[torch.nn.Module], optimizers: list[torch.optim.Optimizer], kinds: list[str], group: Any) -> None:
        self.models = models
        self.optimizers = optimizers
        self.kinds = kinds
        self.group = group
        self.how = AUDIT
        self.before: float | None = None
        self.judged = False
        self.each_backward = False  # ends a window, since optimizers step in it
        self.never = False  # to be enforced, whatever it wastes
        self.early: Early | None = None
        self.notice: Notice | None = None
        self.given_up = ""  # why it counts no more
        self.tally = Tally()
        self.sync: Any = None
        self.implicit: Any = None
        self.trial: trial.Trial | None = None
        self.explained: dict[str, Any] | None = None

    def attach(self, how: str, *, beside: bool = False) -> None:
        """Collective. `beside`: see Job.predict."""
        from .. import attachment, options  # noqa: PLC0415 - a process that never steps does without
        from .implicit import Implicit  # noqa: PLC0415
        from .told_steps import ToldSteps, tells  # noqa: PLC0415

        self.how, self.tally = how, EachBackward(self) if self.each_backward else Tally()
        self._windows = 0  # stepped on
        chosen = options.check("observe", **_options(self.group))
        with _enforcement(how):
            self.sync = attachment.attach_all(self.models, self.optimizers, self.group, chosen, votes=how == ENFORCE)
        if how == ENFORCE:
            job = self.sync.window.job
            job.strict = True  # windows that differ are no longer what the script has written: all ranks stop
            job.predict(beside)
            self.trial = trial.asked()
            if self.trial is not None:
                job.ladder = self.trial
        kind = ToldSteps if tells(self.sync) else Implicit
        self.implicit = kind(self.sync, self.tally, _raised if how == ENFORCE else self.give_up)

    @property
    def name(self) -> str:
        return f"{'+'.join(self.kinds)} · {', '.join(type(m).__name__ for m in self.models)}"

    def without_effect(self, policies: Iterable[str]) -> str:
        """Which of them does nothing here, and why."""
        for policy in policies:
            for adapter in self.sync.window.job.adapters:
                nothing = adapter.no_effect("mode", policy)
                if nothing is not None:
                    return f"{self.name}, where policy {policy} has no effect: {nothing.text}"
        return ""

    def detach(self) -> None:
        if self.early is not None:
            self.early.close()
        self.implicit.close()
        if self.sync.window.inside:
            self.sync.leave(RuntimeError("detached"), None)
        self.sync.close()

    def watch_reads(self) -> None:
        """What is enforced goes on being watched: a script may look at gradients now and then."""
        ledger = self.sync.window.ledger
        self.notice = Notice(self.group, lambda: ledger.window_index)
        self.early = Early(self.sync.window.job.parameters, self.implicit.holds_gradients, self.notice.give)

    def stepped(self) -> None:
        """An optimizer of what is enforced has stepped, on all ranks: if gradients were read by any, they are on their own from here on."""
        assert self.early is not None and self.notice is not None
        self.early.reduced = False
        window = self.sync.window
        if self.trial is not None and window.ledger.window_index > self._windows:
            self._windows = window.ledger.window_index
            self.trial.stepped(window.closed_size)
        where = self.notice.given()
        if where:
            self.given_up = f"{where} reads gradients before the step, and they are not reduced yet when that is enforced; it did so once"
            self.detach()
        elif self.trial is not None and self.trial.over:
            self.given_up = TRIED
            self.detach()

    def ended(self) -> None:
        """An optimizer has stepped, or would have, and nothing guards it: the window is over."""
        window = self.sync.window
        if window.leave is not None:
            window.leave()
        if window.micro_steps and not window.inside:
            window.conclude()
            window.publish(stepped=True)
        if self.early is not None:
            self.early.reduced = False

    def give_up(self, error: Exception) -> None:
        if not self.given_up:
            self.given_up = f"{type(error).__name__}: {error}"
            self.detach()


def _raised(error: Exception) -> None:
    raise error


@contextlib.contextmanager
def _enforcement(how: str) -> Iterator[None]:
    """What an attachment made now will do."""
    before = os.environ["GRADGATE"]
    os.environ["GRADGATE"] = how
    try:
        yield
    finally:
        os.environ["GRADGATE"] = before


def _options(group: Any) -> dict[str, Any]:
    """As attach has them, but that ranks wait for each other no shorter than the process group would."""
    backend = torch.distributed.get_backend(group)
    timeout = torch.distributed.distributed_c10d._get_default_timeout(backend) or timedelta(minutes=30)
    return {
        **{"mode": os.environ.get("GRADGATE_RUN_MODE", "auto"), "windows": "equal", "uneven": "stop", "divide": "world"},
        **{"bucket_mb": None, "wire": None, "keep_params": None, "strict": False, "job": None, "parity_every": 0},
        **{"deadline_s": timeout.total_seconds(), "handshake_deadline_s": 60.0},
    }
