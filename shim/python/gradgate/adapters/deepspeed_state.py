"""What is known of DeepSpeed's engine beyond the calls that it documents. Tried with DeepSpeed 0.19."""

from __future__ import annotations

import gc
import sys
from typing import Any

import torch

PARTITIONS_GRADIENTS = 2  # from this stage on each backward has to reduce, as gradients are not kept whole

OVERWRITE = (1, 2)  # a second boundary before the step leaves the last micro-batch alone


def version() -> str:
    return str(getattr(sys.modules.get("deepspeed"), "__version__", "?"))


def _alive() -> list[Any]:
    kind = getattr(sys.modules.get("deepspeed.runtime.engine"), "DeepSpeedEngine", None)
    return [] if kind is None else [held for held in gc.get_objects() if issubclass(type(held), kind)]


def engine_of(model: torch.nn.Module) -> Any:
    """The engine that was made of a model, None if there is none."""
    engines = _alive()
    inside = set(map(id, model.modules())) if engines else set()
    return next((engine for engine in engines if id(engine.__dict__["_modules"].get("module")) in inside), None)


def engine_that_steps(optimizer: torch.optim.Optimizer) -> Any:
    """The engine whose own optimizer it is, None if there is none."""
    return next((e for e in _alive() if any(getattr(e, name, None) is optimizer for name in ("basic_optimizer", "optimizer"))), None)


def groups_of(engine: Any) -> list[Any]:
    """What gradients are reduced over; of sharded parameters each knows its own."""
    of_parameters = {id(g): g for p in engine.module.parameters() if (g := getattr(p, "ds_process_group", None)) is not None}
    if of_parameters:
        return list(of_parameters.values())
    group = getattr(engine.optimizer, "dp_process_group", None)
    if group is None:
        group = getattr(engine, "seq_data_parallel_group", None)
    return [group if group is not None else torch.distributed.group.WORLD]


def refusal(engine: Any) -> str:
    """Why nothing can be deferred, or counted by window; empty if it can."""
    if getattr(engine, "pipeline_parallelism", False):
        return "its pipeline schedule runs all micro-batches of a step by itself, and reduces once"
    if not getattr(engine, "managed_gradient_accumulation", lambda: True)():
        return "with managed_gradient_accumulation=false it reduces in its own step, whose call is the boundary"
    if getattr(engine, "zenflow", False):
        return "ZenFlow chooses what to reduce, and when, by itself"
    if getattr(engine, "is_deepcompile_enabled", bool)():
        return "DeepCompile has put the reductions into the compiled graph"
    if getattr(engine, "has_moe_layers", False):
        return "its experts are reduced over groups of their own"
    if not getattr(engine, "enable_backward_allreduce", True):
        return "the script has switched off its reductions (enable_backward_allreduce), and reduces by itself"
    return ""


def can_hold_back(engine: Any) -> bool:
    return hasattr(engine, "coalesce_grad_reduction") and hasattr(engine.optimizer, "_coalesce_grad_reduction")


def hold_back(engine: Any, on: bool) -> None:
    """What coalesce_grad_reduction() does when it is entered; leaving it would reduce."""
    if can_hold_back(engine):
        engine.inside_no_sync_ctxt = on
        engine.optimizer._coalesce_grad_reduction = on


def reduce(engine: Any) -> None:
    """One pass over what is accumulated in whole gradients; the boundary is on."""
    if can_hold_back(engine):
        with engine.coalesce_grad_reduction():
            pass
    elif getattr(engine.optimizer, "overlap_comm", False):
        raise RuntimeError("with overlap_comm it reduces in the last backward alone; set overlap_comm to false")
    else:
        engine.allreduce_gradients()


def finish(engine: Any) -> None:
    """Hands to the step what has been reduced and added up; sends nothing."""
    engine.optimizer.finalize_gradient_accumulation_boundary()


def averaged(engine: Any) -> list[torch.Tensor]:
    """This rank's part of the reduced gradients. Raises where they are elsewhere."""
    groups = getattr(engine.optimizer, "averaged_gradients", None) or {}
    found = [tensor for tensors in groups.values() if tensors is not None for tensor in tensors]
    if not found:
        raise RuntimeError(
            f"{type(engine.optimizer).__name__} keeps its gradients where they cannot be scaled (offloaded?): scale the losses by the "
            "window's size instead of items= and flush(divisor=)"
        )
    return found


def drop(engine: Any) -> None:
    optimizer = engine.optimizer
    for held in ("averaged_gradients", "all_grad_tensors"):
        if isinstance(getattr(optimizer, held, None), dict):
            setattr(optimizer, held, {})
    optimizer.zero_grad()
