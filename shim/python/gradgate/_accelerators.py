"""What Accelerate and Transformers, which stands on it, have in common."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from .sync import Sync


@contextlib.contextmanager
def own_contexts_replaced(accelerator: Any) -> Iterator[None]:
    """Its no_sync would be a second hand on the same flags, and left after gradgate's it would restore what gradgate had set."""
    vars(accelerator)["no_sync"] = lambda model=None: contextlib.nullcontext()
    try:
        yield
    finally:
        vars(accelerator).pop("no_sync", None)


def accelerator_of(optimizer: Any) -> Any:
    """The accelerator that has prepared this optimizer."""
    from accelerate import Accelerator  # noqa: PLC0415 - Trainer cannot do without

    alive = (held for held in gc.get_objects() if issubclass(type(held), Accelerator))
    return next(one for one in alive if any(prepared is optimizer for prepared in one._optimizers))


def roots(sync: Sync, models: list[torch.nn.Module]) -> list[torch.nn.Module]:
    """Modules whose forward begins a micro-step: the wrappers, or what nobody wraps."""
    wrapped = {id(adapter.module): adapter.module for adapter in sync._job.adapters if adapter.kind != "plain"}
    return list(wrapped.values()) or models
