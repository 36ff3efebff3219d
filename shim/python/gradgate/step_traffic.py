"""What an optimizer sends in its own step, seen once: one that reduces there by itself is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .adapters.base import Role
from .guards import closure_place

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from .ledger import Ledger

_REDUCING = (0, 1)  # gg_op: all-reduce, reduce-scatter


def watch(optimizer: torch.optim.Optimizer, ledger: Ledger) -> Callable[[], None]:
    """Its first step. What undoes it: hooks that remove themselves would spoil the walk over them."""
    seen = False
    before: list[int] = []  # of the step, and of those inside it: a subclass may call its superclass's

    def stepping(_optimizer: Any, args: Any, kwargs: Any) -> None:
        if not seen and closure_place(args, kwargs) is None:  # in which gradients are reduced
            before.append(_sent(ledger))

    def stepped(*_: Any) -> None:
        nonlocal seen
        if not before:
            return
        sent = _sent(ledger) - before.pop()
        seen = not before
        if seen and sent > 0:
            ledger.warn(
                "reduces_in_step",
                f"{type(optimizer).__name__} reduces in its own step ({sent} collectives in the first): gradients have been reduced by "
                "then. If it does that with gradients, let it alone do so, without a wrapper and without gradgate",
            )

    handles = [optimizer.register_step_pre_hook(stepping), optimizer.register_step_post_hook(stepped)]

    def undo() -> None:
        for handle in handles:
            handle.remove()

    return undo


def _sent(ledger: Ledger) -> int:
    """What is neither gradients nor gradgate's own."""
    return sum(ledger.collective_stats(role, op).other_issued for role in Role for op in _REDUCING)
