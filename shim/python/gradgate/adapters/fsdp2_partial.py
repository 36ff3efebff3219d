"""Partial sums of two-dimensional FSDP2, kept right whatever each micro-step uses.

While the all-reduce is deferred, FSDP2 adds what each micro-step reduce-scattered to one flat tensor per parameter group, without
noting which parameters it is made of. Where micro-steps use different parameters, it adds one's gradient to another's, or fails; a
group that the boundary does not use is left out of the all-reduce, and its sum leaks into the next window. So post_backward of each
group is watched: the parameters of a sum are noted, a sum is widened with zeros when a micro-step brings others, and what a sum holds
is all-reduced at the boundary even if nothing of the group was used there. A parameter that no micro-step used stays without gradient,
which set_reduce_scatter_unused_params(True) does not promise. No collective is added, nor one made larger without need.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any

import torch

from .base import Unreduced
from .fsdp2_state import holds, trainable


class Work(Enum):
    """What a group's post_backward will find to do."""

    NONE = 0
    ALL_REDUCE = 1  # only what earlier micro-steps have reduce-scattered
    ALL = 2


class Partials:
    """The parameters that each group's partial sum is made of."""

    def __init__(self, groups: list[Any]) -> None:
        self._groups = groups
        self._layouts: dict[int, list[Any]] = {}
        self._former: list[Any] | None = None
        self.reductions = 0  # groups reduced to the end; the adapter sets it back

    def watch(self) -> None:
        if self._former is not None:
            return
        self._former = [group.__dict__.get("post_backward") for group in self._groups]
        disabled = torch.compiler.disable(self._post_backward)  # as FSDP2's own is, which compiled autograd must not trace either
        for group in self._groups:
            group.post_backward = functools.partial(disabled, group, group.post_backward)

    def unwatch(self) -> None:
        for group, former in zip(self._groups, self._former or (), strict=False):
            if former is None:
                group.__dict__.pop("post_backward", None)
            else:
                group.post_backward = former
        self._former = None

    def layout(self, group: Any) -> list[Any]:
        """The parameters of the group's partial sum; none if it has none."""
        partial = group._partial_reduce_output
        if partial is None:
            return []
        known = self._layouts.get(id(group))
        if known is not None and partial.numel() == _numel(known):
            return known
        if partial.numel() == _numel(trainable(group)):
            return trainable(group)
        raise Unreduced(
            f"the partial gradient sum of {group._module_fqn or 'the root'} was begun before gradgate.attach and does not hold all of its "
            "parameters: which ones cannot be told. Attach between two optimizer steps."
        )

    def prepare(self, group: Any, wanted: Iterable[Any] = ()) -> Work:
        """Before a reduction of the group: zeros for what its partial sum, or another rank (`wanted`), holds and this micro-step did
        not use."""
        layout, held = self.layout(group), [p for p in group.fsdp_params if holds(p)]
        brought = held + list(wanted)
        if getattr(group, "reduce_scatter_unused_params", False):
            brought += [p for p in trainable(group) if hasattr(p, "_unsharded_param")]
        if not brought and not (layout and group.all_reduce_grads):
            return Work.NONE
        members = {id(p) for p in layout + brought}
        union = [p for p in group.fsdp_params if id(p) in members]
        missing = [p for p in union if not holds(p)]
        if missing or any(p.unsharded_accumulated_grad is not None for p in held):
            for p in held:  # one type for all, or FSDP2 refuses them
                p.accumulate_unsharded_grad_if_needed()
                p.to_accumulated_grad_if_needed()
            for p in missing:
                _fill(p)
        if layout and len(union) > len(layout):
            group._partial_reduce_output = _widened(group, layout, union)
        self._layouts[id(group)] = union
        return Work.ALL if brought else Work.ALL_REDUCE

    def _post_backward(self, group: Any, original: Callable[..., None], *unused: Any) -> None:
        if not group.reduce_grads and not hasattr(group.fsdp_params[0], "_unsharded_param"):
            return  # no forward has used it yet; FSDP2 would look at its unsharded gradients
        work = self.prepare(group) if group.reduce_grads else Work.NONE
        with _nothing_to_scatter(group) if work is Work.ALL_REDUCE else contextlib.nullcontext():
            original(*unused)
        if work is not Work.NONE and group._partial_reduce_output is None:
            self.reductions += 1


def _fill(parameter: Any) -> None:
    kind = parameter.reduce_dtype or parameter._unsharded_param.dtype
    if kind == parameter._unsharded_param.dtype:
        parameter._unsharded_param.grad = torch.zeros_like(parameter._unsharded_param)
    else:
        parameter.unsharded_accumulated_grad = torch.zeros_like(parameter._unsharded_param, dtype=kind)


def _numel(parameters: list[Any]) -> int:
    return sum(p.padded_sharded_param_size.numel() for p in parameters)


def _widened(group: Any, layout: list[Any], union: list[Any]) -> torch.Tensor:
    partial: torch.Tensor = group._partial_reduce_output
    known = {id(p) for p in layout}
    with group.device_handle.stream(group.comm_ctx.reduce_scatter_stream):  # where FSDP2 adds to it
        wide = partial.new_zeros(_numel(union))
        source = target = 0
        for p in union:
            count = p.padded_sharded_param_size.numel()
            if id(p) in known:
                wide[target : target + count] = partial[source : source + count]
                source += count
            target += count
    return wide


class _Nothing:
    """Stands in for the reduce-scatter of zeros: negative ones, the only number that changes no sum."""

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: torch.Tensor, *unused: Any, **also: Any) -> None:
        output_tensor.fill_(-0.0)


@contextlib.contextmanager
def _nothing_to_scatter(group: Any) -> Iterator[None]:
    former = getattr(group, "_reduce_scatter_comm", None)
    if former is None:  # before 2.9: zeros are reduce-scattered
        yield
        return
    group._reduce_scatter_comm = _Nothing()
    try:
        yield
    finally:
        group._reduce_scatter_comm = former
