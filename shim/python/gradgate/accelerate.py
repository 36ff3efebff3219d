"""Accelerate: `sync = attach(accelerator)` after accelerator.prepare(…), and the loop stays as it is.

`with accelerator.accumulate(model):` is a micro-step, accelerator.sync_gradients says which one closes its window, and the end of the data
does too. Without it a forward and the backwards up to the next forward or step are one, and the optimizer's step ends the window.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from . import attachment
from ._accelerators import own_contexts_replaced, roots
from ._framework import Steps
from .run import found
from .sync import Sync
from .wrapped_optimizers import innermost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ALONE = ("DEEPSPEED", "MEGATRON_LM", "XLA")


class AcceleratorSync(Sync):
    """What attach() returns: Sync, and close() gives the accelerator its own contexts back."""

    def __init__(self, sync: Sync, accelerator: Any, models: list[torch.nn.Module], divisor: int) -> None:
        super().__init__(sync._job, sync.window)
        self._steps = Steps(self, close=super().close, divisor=divisor)
        self._accelerator = accelerator
        self._restore = contextlib.ExitStack()
        self._told = False  # by accumulate(), that a micro-step is open
        vars(accelerator)["accumulate"] = self._accumulating(accelerator.accumulate)
        self._restore.callback(vars(accelerator).pop, "accumulate", None)
        self._job.enforcement_fixed = True
        if self._job.enforcing:
            self._restore.enter_context(own_contexts_replaced(accelerator))
        for flags in (vars(adapter.module) for adapter in self._job.adapters if adapter.kind == "ddp"):
            # A script's own no_sync around a forward that began a micro-step is left before it.
            self._restore.callback(flags.update, require_backward_grad_sync=flags["require_backward_grad_sync"])
        for root in roots(self, models):
            self._restore.callback(root.register_forward_pre_hook(self._forward, prepend=True).remove)

    def _accumulating(self, own: Callable[..., Any]) -> Callable[..., Any]:
        steps, accelerator, observed = self._steps, self._accelerator, not self._job.accumulate

        @contextlib.contextmanager
        def accumulate(*models: Any) -> Iterator[None]:
            with own(*models):
                steps.begin(None if observed else bool(accelerator.sync_gradients))
                self._told = True
                try:
                    yield
                except BaseException as error:
                    steps.drop(error)
                    raise
                finally:
                    self._told = False
                steps.end()

        return accumulate

    def _forward(self, _module: torch.nn.Module, _args: Any) -> None:
        """One that accumulate() does not surround."""
        if self._told or not torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1:
            return
        steps = self._steps
        if not steps.inside or steps.ran:
            steps.begin(False if self._job.accumulate else None, guessed=True)

    def close(self) -> None:
        self._steps.drop()
        self._restore.close()
        self._steps.close()


def attach(accelerator: Any, *, rescale_partial: bool = False, **options: Any) -> AcceleratorSync:
    """Of all models and optimizers that the accelerator has prepared, as one joint window of its gradient_accumulation_steps.
    `rescale_partial`: accelerator.backward divides each loss by that, also in the shorter window at the end of the data; with this its
    gradients are multiplied by that / actual size. `options`: as for gradgate.attach.

    Collective. Raises ValueError where Accelerate's backend reduces by itself."""
    kind = accelerator.distributed_type.name
    if kind in _ALONE:
        raise ValueError(
            f"accelerator.distributed_type={kind}: this backend accumulates and reduces by itself; set its own accumulation, and do not "
            "attach gradgate"
        )
    optimizers = [innermost(one) for one in accelerator._optimizers]
    models = found.models_of(optimizers)  # as wrapped; the accelerator keeps what it was given
    if not models:
        raise ValueError("the accelerator has no model or no optimizer: call attach after accelerator.prepare(model, optimizer, …)")
    if accelerator.gradient_state.plugin_kwargs.get("sync_each_batch", False):
        options.setdefault("mode", "every_micro_step")
    size = accelerator.gradient_accumulation_steps
    # 1 is what a loop has, too, that accumulates by hand.
    sync = attachment.attach(models, optimizers, accumulate="observe" if size == 1 else size, **options)
    if size == 1:
        sync._job.predict()
    return AcceleratorSync(sync, accelerator, models, size if rescale_partial else 0)
