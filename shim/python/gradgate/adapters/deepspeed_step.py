"""An engine's step as gradgate guards optimizers: the engine steps its own, and nobody else does.

A step that the engine does not take (it is called after each micro-step, in DeepSpeed's own loops) is passed through. One that it would
take by its own count ends an open window late.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .deepspeed import engines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from .deepspeed import Deepspeed


class EngineStep:
    """In the place of a torch optimizer. One for an engine, as long as it is attached."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self._inside: Callable[[], bool] = bool
        self._adapter: Deepspeed | None = None
        self.param_groups = [{"params": list(engine.module.parameters())}]

    def watch(self, adapter: Deepspeed, inside: Callable[[], bool]) -> None:
        self._adapter, self._inside = adapter, inside

    def step(self) -> None:
        self.engine.step()

    def zero_grad(self) -> None:
        self.engine.zero_grad()

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> _Handle:
        engine, original = self.engine, self.engine.step

        @functools.wraps(original)
        def step(*args: Any, **kwargs: Any) -> Any:
            if self._inside() or self._takes():
                hook(self, (), {})
            adapter = self._adapter
            held_back, driven = adapter is not None and adapter.coalescing, adapter is not None and adapter.driven
            steps = driven and engine.is_gradient_accumulation_boundary()
            if held_back:
                engine.inside_no_sync_ctxt = False  # its step refuses, though it does not touch gradients here
            try:
                return original(*args, **kwargs)
            finally:
                if held_back:
                    engine.inside_no_sync_ctxt = True
                if steps:  # its own count goes on with a new window, also after a partial one
                    engine.micro_steps += -engine.micro_steps % engine.gradient_accumulation_steps()

        engine.step = step
        return _Handle(engine)

    def _takes(self) -> bool:
        """Also by the engine's own count, where a boundary of ours is in force."""
        engine = self.engine
        return bool(engine.is_gradient_accumulation_boundary() or (engine.micro_steps + 1) % engine.gradient_accumulation_steps() == 0)


class _Handle:
    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def remove(self) -> None:
        self._engine.__dict__.pop("step", None)


def in_place_of(optimizers: Sequence[Any], models: Sequence[torch.nn.Module]) -> list[Any]:
    """The optimizers with those of the models' engines replaced by the engines' steps. Twice is fine."""
    known = [optimizer.engine for optimizer in optimizers if isinstance(optimizer, EngineStep)]
    found = [engine for model in models for engine in engines(model)]
    names = ("optimizer", "basic_optimizer", "client_optimizer")
    owned = {id(held) for engine in found for name in names if (held := getattr(engine, name, None)) is not None}
    rest = [optimizer for optimizer in optimizers if id(optimizer) not in owned]
    return rest + [EngineStep(engine) for engine in found if not any(engine is one for one in known)]


def watch(optimizers: Sequence[Any], adapters: Sequence[Any], inside: Callable[[], bool]) -> None:
    """Tells each engine's step of its adapter, and of what tells whether a micro-step is open."""
    for one in optimizers:
        if isinstance(one, EngineStep):
            one.watch(next(adapter for adapter in adapters if adapter.module is one.engine), inside)
