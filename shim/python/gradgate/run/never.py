"""What is recognised in a script and never enforced: counted where it can be, with the reason."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..adapters import deepspeed_state, recognised
from ..adapters.base import Adapter, NoEffect
from ..adapters.deepspeed import Deepspeed

if TYPE_CHECKING:
    from .observed import Observed


def counted(adapters: Iterable[Adapter]) -> str:
    """Why a script is left alone without being counted by window; empty if it can be."""
    for adapter in adapters:
        if isinstance(adapter, Deepspeed) and (why := deepspeed_state.refusal(adapter.module)):
            return f"{type(adapter.module).__name__}, ZeRO stage {adapter.stage}: {why}"
        for group in adapter.groups():
            if recognised.is_python(group.process_group):
                name = type(group.process_group).__name__
                return f"{name} is a process group implemented in Python, whose collectives cannot be counted"
    return ""


def enforced(one: Observed, enforcing: bool) -> bool:
    """Whether what is attached is not to be enforced, whatever it wastes; tells why, if somebody is `enforcing` or it wastes by design."""
    job = one.sync.window.job
    engines = [adapter for adapter in job.adapters if isinstance(adapter, Deepspeed)]
    if engines and (enforcing or engines[0].stage >= deepspeed_state.PARTITIONS_GRADIENTS):
        told = _of_engine(engines[0])
        job.ledger.warn(told.reason, told.text)
    return bool(engines) or job.left_alone or one.each_backward


def _of_engine(adapter: Deepspeed) -> NoEffect:
    engine: Any = adapter.module
    steps = engine.gradient_accumulation_steps()
    if adapter.stage >= deepspeed_state.PARTITIONS_GRADIENTS:
        text = f"ZeRO stage {adapter.stage} keeps a part of each gradient, so every micro-step reduces"
        remedy = "stage 1 reduces once per step, and so does gradgate.attach(engine, accumulate=…, mode='window')"
    else:
        text = f"the engine ends its windows by gradient_accumulation_steps = {steps}"
        remedy = "set that to the loop's own number, or gradgate.attach(engine, accumulate=…)"
    return NoEffect("deepspeed_counted", f"{text}. It is counted, and nothing is enforced: {remedy}")
