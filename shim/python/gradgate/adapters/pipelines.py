"""torch's pipeline schedules: which drive a model, and their reductions counted. Nothing is imported that a script has not."""

from __future__ import annotations

import functools
import gc
import sys
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def _alive(module: str, name: str) -> list[Any]:
    kind = getattr(sys.modules.get(f"torch.distributed.pipelining.{module}"), name, None)
    return [held for held in gc.get_objects() if issubclass(type(held), kind)] if kind is not None else []


def stages_of(modules: Iterable[torch.nn.Module]) -> list[Any]:
    """Stages that run one of the modules, or hold it."""
    wanted = set(map(id, modules))
    return [stage for stage in _alive("stage", "_PipelineStageBase") if wanted & set(map(id, stage.submod.modules()))]


def schedules_of(stages: Iterable[Any]) -> list[Any]:
    wanted = set(map(id, stages))
    schedules = _alive("schedules", "_PipelineSchedule") if wanted else []
    return [one for one in schedules if wanted & set(map(id, getattr(one, "_stages", None) or [getattr(one, "_stage", None)]))]


def count_reductions(stages: Iterable[Any], counting: Callable[[bool], None]) -> list[Callable[[], object]]:
    """FSDP's are issued after the last backward, by the schedule. What undoes it."""
    undo: list[Callable[[], object]] = []
    for stage in stages:
        original = getattr(stage, "perform_reduce_grad", None)
        if original is None:
            continue

        @functools.wraps(original)
        def perform_reduce_grad(*args: Any, _original: Any = original, **kwargs: Any) -> Any:
            counting(True)
            try:
                return _original(*args, **kwargs)
            finally:
                counting(False)

        stage.perform_reduce_grad = perform_reduce_grad
        undo.append(functools.partial(stage.__dict__.pop, "perform_reduce_grad", None))
    return undo
