"""Transformers' Trainer: `Trainer(callbacks=[SyncCallback()])`. The window is gradient_accumulation_steps, shorter at an epoch's end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from . import attachment
from ._accelerators import accelerator_of, own_contexts_replaced, roots
from ._framework import Fit, Steps, leave_alone
from .run import found
from .wrapped_optimizers import innermost

try:
    from transformers import TrainerCallback
except ImportError as missing:
    raise ImportError("gradgate.transformers needs Transformers: pip install transformers accelerate") from missing

if TYPE_CHECKING:
    pass


class SyncCallback(Fit, TrainerCallback):  # type: ignore[misc]
    """`options`: as for gradgate.attach. `sync` is the attachment while a Trainer trains; `left_alone` says why there is none, if so."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options

    def on_train_begin(self, args: Any, state: Any, control: Any, *, optimizer: Any = None, **_: Any) -> None:
        self._detach()  # what an exception has left of the last training
        self._former = {}
        inner = innermost(optimizer)
        self.left_alone = _why_not(args, inner)
        if self.left_alone:
            leave_alone("transformers_left_alone", self.left_alone, args.process_index)
            return
        accelerator = accelerator_of(optimizer)
        if accelerator.gradient_state.plugin_kwargs.get("sync_each_batch", False):
            self._options.setdefault("mode", "every_micro_step")
        models = found.models_of([inner])
        self.sync = attachment.attach(models, inner, accumulate=args.gradient_accumulation_steps, **self._options)
        self._steps = steps = Steps(self.sync)
        state_of = accelerator.gradient_state

        def forward(*_: Any) -> None:
            """By now Trainer has said whether it steps after this one: it does at the end of an epoch, too."""
            if not steps.inside and torch.is_grad_enabled() and torch._C._current_graph_task_id() == -1:
                steps.begin(state_of.sync_gradients, guessed=True)

        for root in roots(self.sync, models):
            self._restore.callback(root.register_forward_pre_hook(forward, prepend=True).remove)
        self.sync._job.enforcement_fixed = True
        if self.sync._job.enforcing:
            self._restore.enter_context(own_contexts_replaced(accelerator))

    def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._steps is not None:
            self._steps.end()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.sync is not None:
            self.sync.window.require_reduced("optimizer.step")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._steps is not None:
            self._steps.end()

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._steps is not None:
            self._steps.before_evaluation()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._detach()


def _why_not(args: Any, optimizer: Any) -> str:
    """Why a Trainer is left alone; "" where it is not."""
    if getattr(args, "deepspeed", None):
        return "TrainingArguments(deepspeed=…): DeepSpeed accumulates and reduces by itself"
    if optimizer is None:
        return "no optimizer"
    if getattr(args, "n_gpu", 0) > 1:
        return "several GPUs in one process (DataParallel): start one process for each, with torchrun"
    return ""
