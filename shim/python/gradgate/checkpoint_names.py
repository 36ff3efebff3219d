"""Parameters by the name that a checkpoint knows them by: fully qualified, without what wrappers put in front.

The names of torch.distributed.checkpoint.state_dict, so that another wrapper, or none, finds its own. With several models in one
attachment each one's number goes in front; what only an optimizer knows is named by its place there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .job import Job

# Children that stand for the module itself: FSDP1's, torch.compile's, activation checkpointing's.
_INSIDE = ("_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module")


def parameters(job: Job) -> dict[str, torch.nn.Parameter]:
    """All that the job reduces, trained ones; parameters that FSDP2 keeps unsharded are to be resharded first."""
    reduced = {id(p): p for adapter in job.adapters for p in adapter.parameters()} | {id(p): p for p in job.parameters}
    names: dict[int, str] = {}
    for i, model in enumerate(job.models):
        for name, parameter in _walk(model, f"{i}." if len(job.models) > 1 else ""):
            names.setdefault(id(parameter), name)
    for i, optimizer in enumerate(job.optimizers):
        for j, group in enumerate(optimizer.param_groups):
            for k, parameter in enumerate(group["params"]):
                names.setdefault(id(parameter), f"optimizers.{i}.{j}.{k}")
    return {names[i]: parameter for i, parameter in reduced.items() if i in names}


def _walk(module: torch.nn.Module, prefix: str) -> Iterator[tuple[str, torch.nn.Parameter]]:
    inside = "module" if isinstance(module, torch.nn.parallel.DistributedDataParallel) else ""
    inside = inside or next((name for name in _INSIDE if name in module._modules), "")
    for name, parameter in module._parameters.items():
        if parameter is not None:
            yield prefix + name, parameter
    for name, child in module._modules.items():
        if child is not None:
            yield from _walk(child, prefix if name == inside else f"{prefix}{name}.")
