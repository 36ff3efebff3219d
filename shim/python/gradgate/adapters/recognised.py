"""What a script does by itself that deferring would break: told with its reason, counted, and left as it is.

steps_before_reduction   hooks step on gradients before DDP has reduced them: refused, where it would be attached
optimizer_in_backward    parameters are stepped on as their gradients arrive: each backward has to reduce
pipeline_schedule        a schedule runs a step's micro-batches and reduces in the last one by itself
local_sgd                replicas differ by design, and parameters are averaged now and then
python_process_group     collectives that nothing here can count
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from . import ddp_state, pipelines
from .base import Adapter, NoEffect
from .ddp import Ddp
from .deepspeed import Deepspeed
from .plain import Plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

EARLY = "steps_before_reduction"
_DEPTH = 3  # containers inside containers that a hook holds


def left_alone(found: list[Adapter], optimizers: Iterable[Any]) -> Iterator[NoEffect]:
    early, late = set[str](), set[str]()
    for adapter in found:
        own, hooked = _in_backward(adapter)
        late |= own
        (early if isinstance(adapter, Ddp | Plain) else late).update(hooked)
    if early:
        yield NoEffect(
            EARLY,
            f"{', '.join(sorted(early))} steps in hooks on gradients that are not reduced yet when these run: DDP, and gradgate, reduce "
            "after them, so every rank steps on its own. Step after the backward, or wrap with fully_shard, which reduces before",
        )
    elif late:
        yield NoEffect(
            "optimizer_in_backward",
            f"{', '.join(sorted(late))} steps inside the backward, on each gradient as it arrives, so every backward reduces and nothing "
            "is deferred. To accumulate, step after the backward instead",
        )
    stages = pipelines.stages_of([adapter.module for adapter in found])
    if stages:
        yield NoEffect(
            "pipeline_schedule",
            f"a schedule over a {type(stages[0]).__name__} runs the micro-batches of a step by itself, and lets the last one "
            "reduce: it is left alone. A whole step of the schedule is one micro-step here",
        )
    averaging = _averager(found, optimizers)
    if averaging:
        yield NoEffect(
            "local_sgd",
            f"{averaging}: ranks step on gradients of their own and average parameters now and then; nothing is deferred, and replicas are "
            "not compared",
        )
    groups = [group.process_group for adapter in found for group in adapter.groups()]
    python = next((type(group).__name__ for group in groups if is_python(group)), "")
    if python:
        yield NoEffect(
            "python_process_group",
            f"{python} is a process group implemented in Python, whose collectives cannot be counted here: nothing is deferred, and "
            "figures of reductions are missing",
        )


def is_python(group: Any) -> bool:
    return isinstance(group, dist.ProcessGroup) and type(group) is not dist.ProcessGroup


# --- optimizers in the backward ----------------------------------------------------------------------------------------------


def _in_backward(adapter: Adapter) -> tuple[set[str], set[str]]:
    """Classes of optimizers that torch's _apply_optimizer_in_backward has made, and of those that hooks step."""
    own, hooked = set[str](), set[str]()
    if isinstance(adapter, Deepspeed):
        return own, hooked  # its hooks are its own
    for parameter in adapter.parameters():
        own.update(type(one).__name__ for one in getattr(parameter, "_in_backward_optimizers", ()))
        for hook in (getattr(parameter, "_post_accumulate_grad_hooks", None) or {}).values():
            hooked.update(type(one).__name__ for one in _optimizers_in(hook, _DEPTH))
    return own, hooked


def _optimizers_in(held: Any, depth: int) -> Iterator[torch.optim.Optimizer]:
    """Optimizers that a hook can reach: bound to it, in its closure, or by a global name that it uses."""
    if isinstance(held, torch.optim.Optimizer):
        yield held
    elif depth:
        for one in _inside(held):
            yield from _optimizers_in(one, depth - 1)


def _inside(held: Any) -> Iterable[Any]:
    if isinstance(held, functools.partial):
        return [held.func, *held.args, *held.keywords.values()]
    if isinstance(held, dict):
        return list(held.values())
    if isinstance(held, list | tuple):
        return held
    if hasattr(held, "__func__"):  # a bound method
        return [held.__func__, *vars(held.__self__).values()] if hasattr(held.__self__, "__dict__") else [held.__func__]
    code = getattr(held, "__code__", None)
    if code is None:
        return []
    steps = "step" in code.co_names
    cells = []
    for cell in held.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:
            continue  # not bound yet
    reached = [*cells, *(held.__globals__[name] for name in code.co_names if name in held.__globals__), *(held.__defaults__ or ())]
    return reached if steps else [one for one in reached if hasattr(one, "__code__")]  # a call of a call may step


# --- schedules and averagers -------------------------------------------------------------------------------------------------


def _averaging() -> Any:
    return getattr(sys.modules.get("torch.distributed.optim.post_localSGD_optimizer"), "PostLocalSGDOptimizer", ())


def stepping(optimizers: Iterable[Any]) -> list[Any]:
    """Those that step: torch's averaging one has the hooks of an optimizer, and they do not work."""
    return [optimizer.optim if isinstance(optimizer, _averaging()) else optimizer for optimizer in optimizers]


def _averager(found: list[Adapter], optimizers: Iterable[Any]) -> str:
    kind = _averaging()
    for optimizer in optimizers:
        if isinstance(optimizer, kind):
            return type(optimizer).__name__
    hooks = [ddp_state.hook_name(adapter.module) for adapter in found if adapter.kind == "ddp"]
    return next((hook for hook in hooks if "localSGD" in hook), "")
