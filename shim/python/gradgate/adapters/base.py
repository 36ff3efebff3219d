"""What every wrapper that reduces gradients is described by.

An adapter knows one wrapper instance: when it reads its flag, how to set it, which groups it reduces over, and how to issue, after
the fact, exactly the collectives that the wrapper would have issued. It holds no policy, counts nothing, and imports nothing of
gradgate but this file. All methods are called on the loop's thread, outside a backward.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch.distributed import ProcessGroup


class Role(IntEnum):
    """What a process group is for; the values of gg_group."""

    DP = 0
    SHARD = 1
    REPLICATE = 2
    OTHER = 3


class Plan(IntEnum):
    """What the wrapper is to do in the next forward and backward."""

    ACCUMULATE = 0  # nothing is reduced
    SHARD = 1  # reduce-scatter in the shard group, no all-reduce across replicas
    REDUCE = 2  # everything


@dataclass(frozen=True)
class Group:
    process_group: ProcessGroup
    role: Role


@dataclass(frozen=True)
class NoEffect:
    """Why an option does nothing on this wrapper. `reason` is a stable short code, `text` is for people and names the remedy."""

    reason: str
    text: str


class Unreduced(RuntimeError):
    """Gradients are not reduced and cannot be now: the optimizer must not step. The message names parameters and the remedy."""


class Adapter:
    """One wrapper instance. Subclasses are named after the wrapper: Ddp, Replicate, Fsdp2, Fsdp1, Plain."""

    kind: str  # "ddp", "replicate", "fsdp2", "fsdp1", "plain"
    flag_read: str  # "forward" or "backward": when the wrapper decides whether this backward reduces
    late_alone: bool  # one rank may be late while others reduced in their backward (DDP); else all must be late together
    module: torch.nn.Module
    # Takes the elementwise maximum of an int64 CPU tensor over all ranks, in place; set by the caller where there are several.
    agree: Callable[[torch.Tensor], None] | None = None

    # Parts whose flags another hand changed while they were in force; the caller empties it. The class's own stays empty.
    overridden: set[str] = set()

    def groups(self) -> list[Group]:
        """The groups that gradients are reduced over; fixed after the first forward at the latest."""
        raise NotImplementedError

    def parameters(self) -> list[torch.nn.Parameter]:
        """Trainable parameters whose gradients this wrapper reduces, in registration order."""
        raise NotImplementedError

    def covered(self) -> list[torch.nn.Parameter]:
        """All that it would reduce if they were trained: frozen ones too, where the wrapper takes them in once they are not."""
        return list(self.module.parameters())

    def ignored(self) -> list[torch.nn.Parameter]:
        """What the wrapper was told to leave alone: nobody reduces it, as its owner wants."""
        return []

    def no_effect(self, option: str, value: object) -> NoEffect | None:
        """Whether `option` (mode, bucket_mb, wire, keep_params, windows) with `value` does nothing here, or cannot be."""
        raise NotImplementedError

    def configure(self, *, bucket_mb: float | None, wire: str | None, keep_params: bool) -> None:
        """Applies the options that have an effect; before the first forward. May be called again with another keep_params."""

    def cannot_recast(self) -> NoEffect | None:
        """Why the bucket size of this wrapper cannot change while the job runs."""
        return NoEffect("no_buckets", f"{self.kind}: this wrapper has no buckets whose size could be set")

    def recast(self, bucket_mb: float | None, wire: str | None) -> bool:
        """Between windows, on all ranks alike, where cannot_recast is None, or "static_graph", which keeps its buckets: bucket size and
        wire type from here on; None: as it was wrapped, and the gradients' own type. Whether the buckets changed."""
        raise NotImplementedError

    def arm(self, plan: Plan) -> None:
        """Called before each forward. Saves the wrapper's former flags when they are first changed; cheap when nothing changes."""
        raise NotImplementedError

    def disarm(self) -> None:
        """Called after each backward, in exceptions too: the wrapper's flags are as they were before arm, except for suppression
        that must last until the boundary (FSDP2's are set anew by the next arm)."""
        raise NotImplementedError

    def abandon(self) -> bool:
        """Called instead of disarm when the micro-step has failed before it reduced, perhaps on this rank alone. Whether another try sends
        again what this one has sent."""
        self.disarm()
        return True

    def late(self) -> None:
        """Reduces what is accumulated, issuing what the wrapper would have issued, and waits. Afterwards every p.grad holds what a
        boundary micro-step would have left; a parameter that no rank used keeps None. The caller's accumulated p.grad may be None
        (a rank without data takes part with zeros). Raises Unreduced."""
        raise NotImplementedError

    def catch_up(self) -> None:
        """Before a rank that has not reduced waits for the others: issues what their forwards of this window have issued and its own,
        if it ran none, have not. Without it they wait for each other."""

    def check_late(self) -> None:
        """Raises Unreduced where late() would, before the other ranks count on this one. The caller has data to reduce."""

    def must_reduce(self) -> NoEffect | None:
        """Why the next micro-step cannot be suppressed whatever the plan (DDP's static graph before its first reduction)."""
        return None

    def suppressed(self) -> bool:
        """Whether the script has switched off by itself what shards would be reduced in: asked before arm, where it is to have its way."""
        return False

    def keep_forward(self) -> None:
        """After arm(ACCUMULATE) for a script whose forward would be followed by a reduction: what its forwards send is to stay so."""

    def reduced(self) -> bool | None:
        """After the backward of a micro-step armed with REDUCE: whether this wrapper reduced in it. None: it cannot tell, and the
        caller asks the tap."""
        return None

    def averages(self) -> bool:
        """Whether reducing once more what was reduced, and has grown since, gives the right mean: under torch's plain average."""
        return True

    def began(self) -> bool:
        """After the backward of a micro-step armed with REDUCE: whether some gradient arrived, though nothing was reduced yet."""
        return False

    def check(self) -> None:
        """After the backward of a micro-step armed with REDUCE: raises Unreduced, naming parameters, if the wrapper has not
        finished what it began (a parameter without gradient under find_unused_parameters=False, say). Cheap: no loop over
        parameters unless something is wrong."""

    def driven_by(self, closing: Callable[[], bool], counting: Callable[[bool], None]) -> None:
        """Before the first micro-step: `closing` tells whether the open one ends its window, `counting` makes collectives of this thread
        gradients outside a backward as well. For wrappers that reduce when the backward is over."""

    def held(self) -> list[torch.Tensor]:
        """Reduced gradients that p.grad does not show. Raises RuntimeError where they cannot be had."""
        return []

    def settle(self) -> None:
        """Before anything outside a micro-step touches parameters or gradients: reshards what was kept unsharded."""

    def discard(self) -> None:
        """Drops what the wrapper has deferred (FSDP2's unsharded and partial gradients). p.grad is the caller's to clear."""

    def pending(self) -> bool:
        """Whether the wrapper holds gradients that p.grad does not show."""
        return False

    def expected(self) -> dict[tuple[Role, str], int] | None:
        """Gradient collectives of one REDUCE backward by (role, operation); None where it cannot be told (before the first)."""
        return None

    def gradient_sizes(self) -> tuple[frozenset[int] | None, bool]:
        """(elements that one of its gradient collectives can have, None: any; whether that is for good). Tells gradients from other
        sums that run inside a backward."""
        return None, True

    def deferred_bytes(self) -> int:
        """Bytes of gradients that a window holds unsharded on top of what a reducing trainer holds; for choosing a mode."""
        return 0

    def unsharded_bytes(self) -> int:
        """Bytes that keeping parameters unsharded inside a window costs."""
        return 0

    def self_test(self) -> None:
        """Tries the private calls that late() needs, on a small wrapper of the same kind, without a collective on the user's
        groups where possible. Raises Unreduced with the torch version when they do not behave."""

    def close(self) -> None:
        """Restores everything; twice is fine."""
