"""Lightning's Trainer: `Trainer(callbacks=[SyncCallback()], accumulate_grad_batches=4)`, and nothing else changes.

Automatic optimization: a batch is a micro-step, and Lightning says which one closes its window. Manual optimization: a manual_backward is
one, and the optimizer's step ends the window; with `accumulate` the module's own number of backwards to a step is told beforehand.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from . import attachment
from ._framework import Fit, Steps, leave_alone

if TYPE_CHECKING or ("pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules):
    from pytorch_lightning.callbacks import Callback
else:
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError:
        try:
            from pytorch_lightning.callbacks import Callback
        except ImportError as missing:
            raise ImportError("gradgate.lightning needs Lightning: pip install lightning") from missing

if TYPE_CHECKING:
    from collections.abc import Callable


class SyncCallback(Fit, Callback):
    """`accumulate`: manual optimization's manual_backwards to a step; without it the window is observed. `rescale_partial`: automatic
    optimization divides each loss by accumulate_grad_batches, also in the shorter window at an epoch's end; with this its gradients are
    multiplied by that / actual size. `options`: as for attach.

    `sync` is the attachment while a fit trains. `left_alone` says why there is none, if so."""

    def __init__(self, accumulate: int | None = None, *, rescale_partial: bool = False, **options: Any) -> None:
        super().__init__()
        self._accumulate = accumulate
        self._rescale_partial = rescale_partial
        self._options = options
        self._declared: int | None = None
        self._manual = False

    # --- attaching -------------------------------------------------------------------------------------------------------

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._detach()
        self._former, self._manual = {}, not pl_module.automatic_optimization
        if not self._manual and self._accumulate is not None:
            raise ValueError(
                f"SyncCallback(accumulate={self._accumulate}) is for manual optimization: with automatic optimization the window is "
                "Trainer(accumulate_grad_batches=…)"
            )
        self.left_alone = _why_not(trainer, self._manual)
        if self.left_alone:
            leave_alone("lightning_left_alone", self.left_alone, trainer.global_rank)
            return
        self._attach(trainer)

    def _attach(self, trainer: Any) -> None:
        strategy = trainer.strategy
        self._declared = self._accumulate if self._manual else trainer.accumulate_grad_batches
        accumulate = "observe" if self._declared is None else self._declared
        self.sync = attachment.attach(strategy.model, list(strategy._lightning_optimizers), accumulate=accumulate, **self._options)
        self._steps = Steps(self.sync, divisor=self._declared or 0 if self._rescale_partial and not self._manual else 0)
        self.sync._job.enforcement_fixed = True
        if self.sync._job.enforcing:  # Lightning's own no_sync would be a second hand on the same flags
            strategy.block_backward_sync = contextlib.nullcontext
            self._restore.callback(strategy.__dict__.pop, "block_backward_sync", None)
        if self._manual:
            if self._declared is None:
                self.sync._job.predict()
            original = strategy.backward
            strategy.backward = lambda *args, **kwargs: self._backward(original, *args, **kwargs)
            self._restore.callback(strategy.__dict__.pop, "backward", None)

    # --- micro-steps -----------------------------------------------------------------------------------------------------

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self._steps is None or self._manual:
            return
        if trainer.accumulate_grad_batches != self._declared:  # GradientAccumulationScheduler's doing, between two epochs
            self._detach()
            self._attach(trainer)
        self._steps.begin(not trainer.fit_loop._should_accumulate())

    def _backward(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Of manual optimization. DDP's flag is read at its start, before any hook runs."""
        steps = self._steps
        if steps is None:
            return original(*args, **kwargs)
        steps.begin(None)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            steps.drop(error)
            raise
        steps.end()
        return result

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        if self.sync is not None:
            self.sync.window.require_reduced("optimizer.step")  # a module's own hook looks at gradients here

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._steps is not None:
            self._steps.end()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """A module that ends its epoch at the start of a batch leaves one open."""
        if self._steps is not None:
            self._steps.drop()

    # --- around them -----------------------------------------------------------------------------------------------------

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if self._steps is not None:
            self._steps.before_evaluation(zeroed=not trainer.fit_loop._should_accumulate())

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        if self._steps is not None:
            self._steps.before_evaluation()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self._steps is not None:
            self._steps.drop(exception)
        self._detach()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._detach()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._detach()


def _why_not(trainer: Any, manual: bool) -> str:
    """Why a trainer's strategy is left alone; "" where it is not."""
    strategy = trainer.strategy
    if strategy.handles_gradient_accumulation:
        return f"{type(strategy).__name__} accumulates and reduces by itself: set its own accumulation"
    if not strategy.optimizers:
        return "no optimizer: configure_optimizers returned none"
    if getattr(strategy, "_model_averager", None) is not None:
        return "DDPStrategy(model_averaging_period=…) averages parameters after the step, and reduces gradients on purpose otherwise"
    if manual and getattr(strategy.model, "static_graph", False):
        return "DDPStrategy(static_graph=True) and manual optimization: Lightning flushes the first reduction itself"
    return ""
