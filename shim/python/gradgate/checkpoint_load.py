"""sync.load_state_dict(): the window that a state was saved in goes on. All is checked before anything changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from . import checkpoint_format, checkpoint_names
from .checkpoint_format import Saved, wrong
from .checkpoint_kept import Done, Kept, local, tag_of
from .checkpoint_save import KINDS, idle_window
from .ledger import Refused
from .micro_step import LAST, NOT_LAST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .job import Job
    from .window import Window

    Parts = dict[str, tuple[torch.nn.Parameter, torch.Tensor]]

_SHOWN = 4


def load_state_dict(job: Job, state: Any) -> None:
    """Every rank loads; no collective."""
    job.check_open("sync.load_state_dict()")
    window = idle_window(job, "sync.load_state_dict()")
    saved = checkpoint_format.read(state)
    if not window.closed and (window.micro_steps or window.kept is not None):
        raise Refused(f"sync.load_state_dict() into an open window, with {window.micro_steps} micro-steps done: load before the first")
    parts: Parts = {}
    if saved.micro_steps:
        _check(job, window, saved)
        parts = _fitted(checkpoint_names.parameters(job), saved.gradients)
    if window.closed:
        window.publish()
    job.windows_before = saved.windows - job.ledger.window_index
    if saved.micro_steps:
        _resume(job, window, saved, parts)


def _check(job: Job, window: Window, saved: Saved) -> None:
    """Whether this attachment can go on in the middle of the window."""
    if saved.accumulate != job.accumulate:
        raise wrong(
            "accumulate",
            saved.accumulate,
            f"this attachment has {job.accumulate or 'observed windows'}, and the state is of the middle of a window: attach with "
            f"accumulate={saved.accumulate or repr('observe')}, or load a state that was saved at a boundary",
        )
    if not window.adapters:
        raise wrong(
            "micro_steps",
            saved.micro_steps,
            "it was saved in the middle of a window, and gradgate adds nothing to gradients here (GRADGATE=audit or off, or wrappers that "
            "it leaves alone): load a state that was saved at a boundary, or use GRADGATE=enforce",
        )
    unfit = [adapter.kind for adapter in window.adapters if adapter.kind not in KINDS]
    if unfit:
        raise wrong("micro_steps", saved.micro_steps, f"{unfit[0]} cannot go on in the middle of a window: load one saved at a boundary")


def _fitted(parameters: Mapping[str, torch.nn.Parameter], gradients: Mapping[str, torch.Tensor]) -> Parts:
    """Copies, laid out as the parameters are."""
    parts: Parts = {}
    for name, gradient in gradients.items():
        key = f"gradients[{name!r}]"
        if not isinstance(gradient, torch.Tensor):
            raise wrong(key, gradient, "must be a tensor")
        if name not in parameters:
            known = ", ".join(list(parameters)[:_SHOWN])
            raise wrong(key, gradient, f"no such parameter is trained here, but {known}, … ({len(parameters)}): attach the model of then")
        with torch.no_grad():
            parts[name] = (parameters[name], _laid_out(key, gradient.detach(), parameters[name]))
    return parts


def _laid_out(key: str, gradient: Any, parameter: Any) -> torch.Tensor:
    kind = getattr(parameter, "grad_dtype", None) or parameter.dtype
    if gradient.shape != parameter.shape or gradient.dtype != kind or gradient.is_meta:
        raise wrong(key, gradient, f"the parameter has shape {tuple(parameter.shape)} and gradients of {kind}: attach the model of then")
    sharded, given = hasattr(parameter, "placements"), hasattr(gradient, "placements")
    if not (sharded or given):
        return gradient.to(parameter.device, copy=True)  # type: ignore[no-any-return]
    if not given:
        from torch.distributed.tensor import distribute_tensor  # noqa: PLC0415 - torch builds differ in what they have

        whole = gradient.to(local(parameter).device)
        return distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None).clone()  # no collective
    if not (sharded and gradient.placements == parameter.placements and local(gradient).shape == local(parameter).shape):
        raise wrong(
            key,
            gradient,
            f"a shard, placed as {gradient.placements}, where this rank's is {parameter.placements if sharded else 'not sharded'}: with "
            "torch.save each rank has its own; save and load it with torch.distributed.checkpoint and gradgate.checkpoint.load",
        )
    copy = torch.zeros_like(parameter, dtype=kind).detach()
    local(copy).copy_(local(gradient))
    return copy


def _resume(job: Job, window: Window, saved: Saved, parts: Parts) -> None:
    kept = _kept(job, saved, parts)
    done = kept.ranks[job.rank]
    window.kept = kept
    window.micro_steps, window.planned = done.micro_steps, kept.planned[job.rank]
    window.any_items = kept.any_items
    window.discarding = saved.discard
    window.at_boundary = False
    accumulate, begin = job.accumulate, window.begin

    def begin_resumed(last: int) -> int:
        """The ledger counts what this process runs, so it is told where the boundary is."""
        if accumulate and not last:
            last = LAST if window.micro_steps + 1 >= accumulate else NOT_LAST
        return begin(last)

    job.micro_step.begin_by(begin_resumed)


def _kept(job: Job, saved: Saved, parts: Parts) -> Kept:
    ranks, planned, share = list(saved.ranks), list(saved.planned), None
    if job.world != len(ranks):
        ranks, planned = _on_other_ranks(job.world, saved)
        active = sum(done.active for done in saved.ranks)
        if job.options.divide == "active":
            share = len(saved.ranks) / max(active, 1)
        if any(done.item_steps for done in saved.ranks):  # the sum counts, by the items of all
            parts = {name: (p, gradient * (len(saved.ranks) / job.world)) for name, (p, gradient) in parts.items()}
    done = ranks[job.rank]
    return Kept(
        gradients=parts,
        ranks=ranks,
        planned=planned,
        means=dict(saved.means),
        base=Done(micro_steps=done.micro_steps),
        active_here=done.active and share is None,
        tag=tag_of(list(saved.ranks)),
        unseen=done.micro_steps,
        unseen_skips=max(done.skips for done in saved.ranks),
        active_share=share,
    )


def _on_other_ranks(world: int, saved: Saved) -> tuple[list[Done], list[int]]:
    """Each has done as much as the one that had done most; items are those of all, told once."""
    most = max(saved.ranks, key=lambda done: done.micro_steps)
    items = sum(done.items for done in saved.ranks)
    told = most.micro_steps if any(done.item_steps for done in saved.ranks) else 0
    if any(done.without_items for done in saved.ranks):
        told = min(told, 1)  # and some micro-steps did not, which the boundary refuses
    skips = most.skips if not any(done.active for done in saved.ranks) else 0
    ranks = [Done(most.micro_steps, skips, items if rank == 0 else 0, told) for rank in range(world)]
    planned = saved.planned[saved.ranks.index(most)]
    return ranks, [planned] * world
