"""What a checkpoint in the middle of a window has reduced, kept aside until the window ends; and the algebra of the two parts.

A window's first k micro-steps ran on W ranks and left S, the mean over those ranks of each one's sum; the rest runs on W' ranks (the same,
or those of a run that loaded S) and leaves H, their mean. S does not depend on the number of ranks that load it. At the boundary:

    world (default)   H + S                     each micro-step counts as the mean over the ranks that ran it
    items             (W' H + W S) / items      sums of losses by the items of both parts: W S is the sum itself
    divide="active"   (W' H + W S) / active     active: ranks with data in either part; on other ranks W' H / active' + W S / active
    flush(divisor=d)  times d / micro-steps     of both parts; refused where ranks brought different numbers, for S has merged them
    micro_batches     S times n / n'            if the window was to have n micro-steps and has n' after all

S is added once, after the reduction of H: neither reduced nor averaged again, so exact for three ranks too, and the run that goes on
computes what a resumed one does.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .job import Job
    from .window import Window


class Done(NamedTuple):
    """What a rank has done in the open window."""

    micro_steps: int = 0
    skips: int = 0
    items: int = 0
    item_steps: int = 0  # micro-steps that told items

    @property
    def active(self) -> bool:
        return self.micro_steps > self.skips

    @property
    def without_items(self) -> bool:
        return self.active and self.item_steps < self.micro_steps - self.skips

    def since(self, before: Done) -> Done:
        return Done(*(now - then for now, then in zip(self, before, strict=True)))

    def plus(self, more: Done) -> Done:
        return Done(*(a + b for a, b in zip(self, more, strict=True)))

    @classmethod
    def of(cls, window: Window) -> Done:
        return cls(window.micro_steps, window.skips, window.items, window.item_steps)


@dataclass
class Kept:
    """`ranks`: what each rank had done in the window when it was kept; `base`: this window's own counters then; `unseen`: micro-steps of
    the window that another process ran, and `unseen_skips` the most that a rank skipped there."""

    gradients: dict[str, tuple[torch.nn.Parameter, torch.Tensor]]
    ranks: list[Done]
    planned: list[int]  # micro-steps that each rank's window was to have, 0: not told
    means: dict[str, tuple[float, float]]  # total and count over all ranks
    base: Done
    active_here: bool
    tag: int  # the same where ranks hold the same; never 0
    unseen: int = 0
    unseen_skips: int = 0
    active_share: float | None = None  # after a change of the number of ranks: what divide="active" multiplies S by
    rescale: float = 1.0

    @property
    def items(self) -> int:
        return sum(done.items for done in self.ranks)

    @property
    def without_items(self) -> int:
        return sum(done.without_items for done in self.ranks)

    @property
    def any_items(self) -> bool:
        return any(done.item_steps for done in self.ranks)

    @property
    def equal(self) -> bool:
        """Whether all ranks had done as many micro-steps."""
        return len({done.micro_steps for done in self.ranks}) == 1

    def untouched(self, window: Window) -> bool:
        """It came from a checkpoint, and no micro-step has ended since."""
        return self.unseen > 0 and window.micro_steps == self.unseen

    def drop(self, only: Iterable[torch.Tensor] | None = None) -> None:
        """The window's gradients are thrown away: of some parameters, or all. Ranks that drop others differ in their tags."""
        gone = None if only is None else {id(parameter) for parameter in only}
        dropped = [name for name, (parameter, _) in self.gradients.items() if gone is None or id(parameter) in gone]
        for name in dropped:
            del self.gradients[name]
        if dropped:
            self.tag = tag_of(self.tag, sorted(dropped))

    def finish(self, job: Job, factor: float, own_factor: float) -> None:
        """factor * H + own_factor * S, in p.grad."""
        own_factor *= self.rescale
        alpha = 1.0
        if own_factor != factor:
            multiply(job.parameters, factor)
            factor, alpha = 1.0, own_factor
        with torch.no_grad():
            for parameter, kept in self.gradients.values():
                if parameter.grad is None:
                    parameter.grad = kept.clone() if alpha == 1.0 else kept * alpha
                elif parameter.grad.is_sparse and not kept.is_sparse:
                    parameter.grad = torch.add(kept * alpha, parameter.grad)
                else:
                    local(parameter.grad).add_(local(kept), alpha=alpha)
        self.gradients = {}
        multiply(job.parameters, factor)


def tag_of(*what: object) -> int:
    """For a ballot; never 0."""
    return zlib.crc32(repr(what).encode()) % (2**30 - 1) + 1


def since_kept(window: Window) -> Done:
    """This rank's part that no checkpoint holds."""
    return Done.of(window).since(window.kept.base) if window.kept is not None else Done.of(window)


def take(parameters: dict[str, torch.nn.Parameter], before: Kept | None) -> dict[str, tuple[torch.nn.Parameter, torch.Tensor]]:
    """Moves reduced gradients aside, onto what was there before; what was there stays as it is, for a state dict holds it."""
    kept = dict(before.gradients) if before is not None else {}
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.grad is None:
                continue
            gradient, parameter.grad = parameter.grad.detach().clone(), None
            if name in kept:
                former = kept[name][1].clone()
                if former.is_sparse and not gradient.is_sparse:
                    former, gradient = gradient, former
                local(former).add_(local(gradient))
                gradient = former
            kept[name] = (parameter, gradient)
    return kept


def local(tensor: Any) -> Any:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def multiply(parameters: Iterable[torch.Tensor], factor: float) -> None:
    # DTensors beside tensors: no one operator takes both
    gradients = [local(p.grad) for p in parameters if p.grad is not None]
    if factor != 1.0 and gradients:
        torch._foreach_mul_(gradients, factor)
