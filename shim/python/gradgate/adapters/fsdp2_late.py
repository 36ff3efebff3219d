"""Reducing after the fact what FSDP2 has deferred.

FSDP2 ends every backward with one callback of its root, which runs post_backward of each group that autograd has not run it for. That
is the whole of a late reduction: with the flags on, the callback reduces what the groups hold, sharded as they are. So a late window
issues what a boundary would have issued, no all-gather, and under a deferred all-reduce no reduce-scatter either.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .fsdp2_partial import Partials
from .fsdp2_state import holds

Agree = Callable[[torch.Tensor], None]  # the elementwise maximum over all ranks of an int64 tensor on the CPU, in place


def reduce_late(root: Any, groups: list[Any], partials: Partials, agree: Agree | None) -> None:
    """All ranks together, with the flags on. Without `agree` the ranks must hold gradients of the same parameters, as in any boundary
    of FSDP2; with it each takes part with zeros in what another holds, and one that has run no forward at all takes part too."""
    with torch.no_grad():
        if agree is not None:
            _agree_on_parameters(root, groups, partials, agree)
        with _last_backward(root._state_ctx):
            root._root_post_backward_final_callback()


def _agree_on_parameters(root: Any, groups: list[Any], partials: Partials, agree: Agree) -> None:
    parameters = [p for group in groups for p in group.fsdp_params]
    mine = {id(p) for group in groups for p in partials.layout(group)}
    bits = torch.tensor([int(holds(p) or id(p) in mine) for p in parameters], dtype=torch.int64)
    agree(bits)
    wanted = {id(p) for p, bit in zip(parameters, bits.tolist(), strict=True) if bit}
    for group in groups:
        # The rest of the shard group lacks the same: its all-gathers pair in every forward.
        lacking = [p for p in group.fsdp_params if id(p) in wanted and not holds(p) and id(p) not in mine]
        if lacking:
            if not hasattr(lacking[0], "_unsharded_param"):
                root._lazy_init()
                group.unshard()
                group.wait_for_unshard()
                group.reshard()
            partials.prepare(group, lacking)


@contextlib.contextmanager
def _last_backward(context: Any) -> Iterator[None]:
    former = context.is_last_backward
    context.is_last_backward = True
    try:
        yield
    finally:
        context.is_last_backward = former
