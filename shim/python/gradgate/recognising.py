"""How an attachment treats what it recognises: the options as they can be, what is told, and what is left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from . import step_traffic
from .adapters import deepspeed_state, deepspeed_step, pipelines, recognised
from .adapters.base import Adapter, NoEffect, Unreduced
from .adapters.deepspeed import Deepspeed

if TYPE_CHECKING:
    from .options import Options
    from .window import Window


def settle(
    options: Options, found: list[Adapter], optimizers: list[Any], *, counting: bool
) -> tuple[Options, list[NoEffect], list[NoEffect]]:
    """(options as they can be, what is to be told, why all of it is left alone). `counting`: nothing is to be deferred anyway."""
    notes: list[NoEffect] = []
    for adapter in found:
        if isinstance(adapter, Deepspeed) and not counting:
            options = _of_engine(options, adapter, notes)
    alone = list(recognised.left_alone(found, optimizers))
    if not counting:
        for one in alone:
            if one.reason == recognised.EARLY:
                raise Unreduced(one.text)
    if alone:
        parity = 0 if any(one.reason == "local_sgd" for one in alone) else options.parity_every
        options = replace(options, mode="every_micro_step", parity_every=parity)
    return options, notes, alone


def _of_engine(options: Options, adapter: Deepspeed, notes: list[NoEffect]) -> Options:
    engine: Any = adapter.module
    stage = adapter.stage
    why = deepspeed_state.refusal(engine)
    if why:
        raise ValueError(f"{type(engine).__name__}, ZeRO stage {stage}: {why}. There is nothing to attach")
    own: int = engine.gradient_accumulation_steps()
    if not options.accumulate:
        options = replace(options, accumulate=own)  # its step is none inside its window, so that cannot be observed
    elif options.accumulate != own:
        text = (
            f"the engine divides each loss by its gradient_accumulation_steps, {own}, and gradgate's window has {options.accumulate} "
            "micro-steps: gradgate's is in force. Give both the same number, or scale the losses by hand"
        )
        notes.append(NoEffect("deepspeed_window", text))
    if stage < deepspeed_state.PARTITIONS_GRADIENTS:
        if options.mode == "every_micro_step":
            text = f"ZeRO stage {stage} reduces what has been added up, once: mode 'every_micro_step' is 'window' here"
            notes.append(NoEffect("deepspeed_reduces_once", text))
            return replace(options, mode="window")
        return options
    if options.mode == "window" and deepspeed_state.can_hold_back(engine):
        return options
    remedy = (
        "mode='window' holds gradients whole inside a window and reduces once (coalesce_grad_reduction)"
        if deepspeed_state.can_hold_back(engine)
        else f"DeepSpeed {deepspeed_state.version()} has no other way; stage 1 reduces once"
    )
    text = f"ZeRO stage {stage} keeps a part of each gradient, so every micro-step reduces, and nothing is deferred: {remedy}"
    notes.append(NoEffect("zero_partitions_gradients", text))
    return replace(options, mode="every_micro_step")


def begin(window: Window, found: list[Adapter], optimizers: list[Any]) -> None:
    """Before the first micro-step, and before guards are put around the steps."""
    job = window.job
    for adapter in found:
        adapter.driven_by(lambda: window.closing, job.tap.late)
    job.undo = pipelines.count_reductions(pipelines.stages_of([adapter.module for adapter in found]), job.tap.late)
    deepspeed_step.watch(optimizers, found, lambda: window.inside)


def watch_steps(window: Window, optimizers: list[Any]) -> None:
    """After the guards, whose late reduction is none of the optimizer's own."""
    for one in optimizers:
        if isinstance(one, torch.optim.Optimizer):
            window.job.undo.append(step_traffic.watch(one, window.ledger))
