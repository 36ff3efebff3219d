"""What an optimizer's step is: which implementation torch picks, and the bare function, where it can be called on a copy unnoticed."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer
from torch.utils._python_dispatch import TorchDispatchMode

Group = dict[str, Any]


class Unmeasurable(Exception):
    """Why the step cannot be rehearsed; reads on from "not measured: "."""


class NoCommunication(TorchDispatchMode):
    """Stops a collective before it begins."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "c10d" in func.namespace:
            raise Unmeasurable(f"its step() communicates ({func}), and other ranks would have to take part")
        return func(*args, **(kwargs or {}))


def implementation(optimizer: torch.optim.Optimizer, group: Group) -> str:
    """What steps this group: "fused", "foreach", "for-loop", or "own" where the optimizer is not torch's and has no such choice."""
    # Some of torch's classes give torch.optim as their module, others torch.optim.adam and such.
    kinds = [kind for kind in type(optimizer).__mro__ if kind.__module__.startswith("torch.optim") and kind is not torch.optim.Optimizer]
    if "foreach" not in group and "fused" not in group:
        return "for-loop" if kinds and kinds[0] is type(optimizer) else "own"
    names = {kind.__name__ for kind in kinds}
    fused, foreach = group.get("fused"), group.get("foreach")
    if fused or foreach:
        return "fused" if fused else "foreach"
    if fused is not None or foreach is not None or "Adafactor" in names:
        return "for-loop"
    if "Adam" in names and isinstance(group.get("lr"), torch.Tensor) and not group.get("capturable"):
        return "for-loop"
    trained = [parameter for parameter in group["params"] if parameter.requires_grad] or group["params"]
    differentiable = bool(group.get("differentiable")) and "SGD" not in names
    _, chosen = torch_optimizer._default_to_fused_or_foreach(trained, differentiable, use_fused=False)
    return "foreach" if chosen else "for-loop"


def _bare(step: Callable[..., Any]) -> Callable[..., Any]:
    """A class's step without the hooks that torch wraps it in."""
    while getattr(step, "hooked", False) and hasattr(step, "__wrapped__"):
        step = step.__wrapped__
    return step


def bare_step(optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
    """Unmeasurable where calling it by itself is not possible, or could be noticed elsewhere."""
    kind = type(optimizer)
    attributes = vars(optimizer).items()
    if inner := next((name for name, held in attributes if isinstance(held, torch.optim.Optimizer)), ""):
        raise Unmeasurable(f"it steps another optimizer, its {inner}: audit that one")
    for name, held in attributes:
        if isinstance(held, torch.nn.Module) or "ProcessGroup" in type(held).__name__:
            raise Unmeasurable(f"it holds a {type(held).__name__} as {name}, which cannot be copied")
    step = _bare(kind.step)
    required = [each for each in list(inspect.signature(step).parameters.values())[1:] if each.default is each.empty]
    if any(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) for each in required):
        raise Unmeasurable(f"{kind.__name__}.step() needs {required[0].name}, as it evaluates the model itself")
    if torch_optimizer._global_optimizer_pre_hooks or torch_optimizer._global_optimizer_post_hooks:
        steps = [vars(each)["step"] for each in kind.__mro__ if "step" in vars(each)]
        if any(getattr(each, "hooked", False) and _bare(each) is not step for each in steps):
            raise Unmeasurable("its step() calls another optimizer's, and step hooks for all optimizers are registered that would see it")
    return step


def ranks() -> int:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return 1
    return torch.distributed.get_world_size()


def refuse_communicating(kind: type) -> None:
    """Others' optimizers may reduce now and then, and one rank alone would wait for ever."""
    for each in kind.__mro__:
        if each.__module__.startswith("torch.optim") or each is object:
            continue
        try:
            source = inspect.getsource(sys.modules[each.__module__])
        except (OSError, TypeError, KeyError):
            source = "distributed"
        if "distributed" in source:
            raise Unmeasurable(f"{kind.__name__} may communicate in step(), and other ranks would wait: audit it in a single process")


def first_line(error: BaseException) -> str:
    text = (str(error).splitlines() or [""])[0]
    return text if len(text) <= 160 else text[:159] + "…"
