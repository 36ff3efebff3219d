"""DeepSpeed's engine, all ZeRO stages. Its boundary is read in the backward, and by its step.

    stage    open micro-step                        last micro-step           one that reduces late
    0, 1     boundary off: nothing is reduced       boundary on: reduces      the engine's own pass over what is accumulated
    2, 3     boundary off: reduces and adds up      boundary on: reduces      what has been added up is handed to the step
    2, 3 *   reductions held back, gradients whole  the same                  the engine's own pass, by coalesce_grad_reduction()

* with mode="window", where this DeepSpeed has that call. The boundary is written for each micro-step, and stays until the next: an
engine that takes each backward for a boundary (gradient_accumulation_steps = 1) would overwrite at stages 1 and 2 what it has added up.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from . import deepspeed_state as state
from .base import Adapter, Group, NoEffect, Plan, Role, Unreduced

if TYPE_CHECKING:
    from collections.abc import Callable

_UNSET: Any = object()
_SHARDED = 3  # the stage that reduce-scatters, since parameters are sharded

NO_EFFECT = {
    "bucket_mb": NoEffect(
        "bucket_deepspeed", "DeepSpeed's buckets have the size of zero_optimization.reduce_bucket_size in its configuration"
    ),
    "wire": NoEffect("wire_deepspeed", "DeepSpeed reduces in communication_data_type; set it in its configuration"),
    "keep_params": NoEffect("keep_params_deepspeed", "ZeRO decides by itself when parameters are gathered"),
    "windows": NoEffect("variable_deepspeed", "DeepSpeed's engines step together: use windows='equal'"),
    "max_norm": NoEffect("clip_deepspeed", "DeepSpeed clips in its own step: set gradient_clipping in its configuration"),
    "mode": NoEffect("no_replica_dimension", "DeepSpeed's engine has no all-reduce across replicas to defer: use mode='window'"),
}


def engines(model: torch.nn.Module) -> list[Any]:
    """Those among a model's modules. DeepSpeed is never imported: a script that has an engine has it."""
    engine = getattr(sys.modules.get("deepspeed.runtime.engine"), "DeepSpeedEngine", None)
    return [] if engine is None else [module for module in model.modules() if isinstance(module, engine)]


def find(model: torch.nn.Module) -> list[Adapter]:
    found = engines(model)
    if not found and (engine := state.engine_of(model)) is not None:
        raise ValueError(
            f"{type(model).__name__} belongs to a {type(engine).__name__}, which reduces its gradients: attach the engine that "
            "deepspeed.initialize returned, gradgate.attach(engine, accumulate=…)"
        )
    return [Deepspeed(engine) for engine in found]


class Deepspeed(Adapter):
    flag_read = "backward"
    late_alone = False
    _engine: Any

    def __init__(self, engine: Any) -> None:
        self.module = self._engine = engine
        self.stage = int(engine.zero_optimization_stage())
        self.kind = f"deepspeed_zero{self.stage}"
        self.coalescing = False  # stages 2 and 3: reductions are held back inside a window
        self._former: Any = _UNSET
        self._reduced = False
        self._ended = False  # the engine's step has all that was accumulated
        self._closing: Callable[[], bool] = bool
        self._counting: Callable[[bool], None] | None = None
        self._late = False
        self._reduced_in = -1  # steps that the engine had taken
        self.overwrote = False  # gradients that it had reduced, and not stepped on

    # --- what it is ------------------------------------------------------------------------------------------------------

    def groups(self) -> list[Group]:
        role = Role.SHARD if self.stage == _SHARDED else Role.DP
        return [Group(group, role) for group in state.groups_of(self._engine)]

    def parameters(self) -> list[torch.nn.Parameter]:
        return [p for p in self._engine.module.parameters() if p.requires_grad]

    @property
    def driven(self) -> bool:
        """Whether its boundary is gradgate's."""
        return self._former is not _UNSET

    def no_effect(self, option: str, value: object) -> NoEffect | None:
        if option == "mode":
            return NO_EFFECT["mode"] if value == "window_replica" else None
        if option == "windows":
            return NO_EFFECT["windows"] if value == "variable" else None
        return NO_EFFECT.get(option) if value is not None and value is not False else None

    def gradient_sizes(self) -> tuple[frozenset[int] | None, bool]:
        return None, True

    def driven_by(self, closing: Callable[[], bool], counting: Callable[[bool], None]) -> None:
        self._closing, self._counting = closing, counting
        reduce = self._engine.allreduce_gradients

        def allreduce_gradients(*args: Any, **kwargs: Any) -> Any:
            """The engine's own calls it at the end of each backward, outside of autograd's."""
            at_boundary = self._engine.is_gradient_accumulation_boundary()
            if self._late:
                return reduce(*args, **kwargs)
            counting(True)
            try:
                result = reduce(*args, **kwargs)
            finally:
                counting(False)
            self._ended |= at_boundary
            if at_boundary:
                again, self._reduced_in = self._reduced_in == self._engine.global_steps, self._engine.global_steps
                self.overwrote |= again and self.stage in state.OVERWRITE
            self._reduced |= at_boundary or self.stage >= state.PARTITIONS_GRADIENTS
            return result

        self._engine.allreduce_gradients = allreduce_gradients

    # --- a micro-step ----------------------------------------------------------------------------------------------------

    def arm(self, plan: Plan) -> None:
        if not self.driven:
            self._former = self._engine._is_gradient_accumulation_boundary
        self._reduced = self._ended = False
        closing = self._closing()
        self._engine.set_gradient_accumulation_boundary(closing)
        if self.stage >= state.PARTITIONS_GRADIENTS and (plan is Plan.ACCUMULATE or self.coalescing):
            state.hold_back(self._engine, True)
            self.coalescing = True

    def disarm(self) -> None:
        """The boundary stays as it is: the engine's step asks for it."""

    def reduced(self) -> bool:
        return self._reduced and self._ended and not self.coalescing

    def late(self) -> None:
        engine = self._engine
        if not self.driven:
            self._former = engine._is_gradient_accumulation_boundary
        engine.set_gradient_accumulation_boundary(True)
        self._late = True
        try:
            if self.stage == 0:
                engine.allreduce_gradients()
            elif self._reduced and not self.coalescing:
                state.finish(engine)
            else:
                state.hold_back(engine, False)
                state.reduce(engine)
        except (AttributeError, RuntimeError, AssertionError, NotImplementedError) as error:
            raise Unreduced(f"{self.kind}: DeepSpeed {state.version()} could not reduce this window at its step: {error}") from error
        finally:
            self._late = self.coalescing = False
        self._reduced = self._ended = True

    def pending(self) -> bool:
        return self.stage > 0  # p.grad does not show what it has reduced

    def held(self) -> list[torch.Tensor]:
        return state.averaged(self._engine) if self.stage else []

    def discard(self) -> None:
        """The engine's next step is none, if it comes before the next micro-step."""
        if self.coalescing:
            state.hold_back(self._engine, False)
            self.coalescing = False
        state.drop(self._engine)
        self._reduced = self._ended = False
        if self.driven:
            self._engine.set_gradient_accumulation_boundary(False)

    def self_test(self) -> None:
        names = ("is_gradient_accumulation_boundary", "set_gradient_accumulation_boundary", "_is_gradient_accumulation_boundary")
        missing = [name for name in (*names, "allreduce_gradients", "micro_steps") if not hasattr(self._engine, name)]
        if missing:
            raise Unreduced(f"DeepSpeed {state.version()}: its engine has no {', '.join(missing)}; use another version")

    def close(self) -> None:
        engine = self._engine
        if self.coalescing:
            state.hold_back(engine, False)
            self.coalescing = False
        engine.__dict__.pop("allreduce_gradients", None)
        if self.driven:
            engine.set_gradient_accumulation_boundary(self._former)
            self._former = _UNSET
