"""What is attached together in a script's process, counted or enforced."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch

from .reads import Early, Notice
from .tally import Tally

AUDIT, ENFORCE = "audit", "enforce"


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
        self.early: Early | None = None
        self.notice: Notice | None = None
        self.given_up = ""  # why it counts no more
        self.tally = Tally()
        self.sync: Any = None
        self.implicit: Any = None

    def attach(self, how: str) -> None:
        """Collective."""
        from .. import attachment, options  # noqa: PLC0415 - a process that never steps does without
        from .implicit import Implicit  # noqa: PLC0415

        self.how, self.tally = how, Tally()
        chosen = options.check("observe", **_options(self.group))
        with _enforcement(how):
            self.sync = attachment.attach_all(self.models, self.optimizers, self.group, chosen, votes=how == ENFORCE)
        self.implicit = Implicit(self.sync, self.tally, _raised if how == ENFORCE else self.give_up)

    def detach(self) -> None:
        if self.early is not None:
            self.early.close()
        self.implicit.close()
        if self.sync.window.inside:
            self.sync.leave(RuntimeError("detached"), None)
        self.sync.close()

    def watch_reads(self) -> None:
        """What is enforced goes on being watched: a script may look at gradients now and then."""
        self.notice = Notice(self.group)
        self.early = Early(self.sync.window.job.parameters, self.implicit.holds_gradients, self.notice.give)

    def stepped(self) -> None:
        """An optimizer of what is enforced has stepped, on all ranks: if gradients were read by any, they are on their own from here on."""
        assert self.early is not None and self.notice is not None
        self.early.reduced = False
        where = self.notice.given()
        if where:
            self.given_up = f"{where} reads gradients before the step, and they are not reduced yet when that is enforced; it did so once"
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
