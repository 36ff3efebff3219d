"""attach(): finds the wrappers, agrees with the other ranks, and puts the pieces together."""

from __future__ import annotations

import atexit
import hashlib
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from . import adapters as _adapters
from . import options as _options
from . import recognising as _recognising
from . import tap as _tap
from .adapters import deepspeed_step as _deepspeed_step
from .adapters import recognised as _recognised
from .adapters.base import Adapter, Role, Unreduced
from .adapters.plain import Plain
from .agreement import Agreement
from .guards import Guards, refuse_attached
from .job import Job
from .ledger import Ledger
from .sync import Sync
from .window import Window
from .wrapped_optimizers import innermost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.distributed import ProcessGroup

    from .options import Options

_attached: dict[str, int] = {}  # attachments of this process by the ranks of the group, and by name: the same on all of them


def attach(
    model: torch.nn.Module | Sequence[torch.nn.Module],
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    *,
    accumulate: int | str,
    mode: str = "auto",
    windows: str = "equal",
    uneven: str = "stop",
    divide: str = "world",
    bucket_mb: float | None = None,
    wire: str | None = None,
    keep_params: bool | None = None,
    strict: bool = False,
    job: str | None = None,
    group: ProcessGroup | None = None,
    deadline_s: float = 300.0,
    handshake_deadline_s: float = 60.0,
    parity_every: int = 16,
) -> Sync:
    """Lets gradgate decide at which micro-step this model's gradients are reduced.

    model       one module, or several for one joint window: wrapped by DDP, replicate, fully_shard or FSDP (parts of it, too), or not at
                all; then gradgate reduces by itself
    optimizer   what steps on these gradients; guarded. None: unguarded, and the loop calls flush or the boundary's step itself
    accumulate  micro-steps of a window, or "observe": the optimizer's step ends it
    mode        "window": one reduction, in the window's last backward; "window_replica": on two-dimensional meshes only the all-reduce
                across replicas waits; "every_micro_step"; "auto": the least memory first, then what fits
    windows     "equal": ranks that bring different numbers of micro-steps are told; "variable": allowed, where the wrapper can
    uneven      for micro_batches: "stop" ends all ranks together, "zeros" goes on without those whose data has ended
    divide      of the sum of gradients: "world", or "active": the ranks that brought data
    bucket_mb, wire, keep_params    bucket size, type on the wire, and whether parameters stay unsharded inside a window
    strict      whatever would be a warning about ranks that differ raises on all of them
    group       the ranks of the job; by default all

    Collective: every rank calls it, in the same order. Blocks until all have, at most handshake_deadline_s. Raises ValueError for
    options, DeadlineExceeded naming the ranks without gradgate, Disagreement naming those with another configuration.
    """
    options = _options.check(
        accumulate,
        mode=mode,
        windows=windows,
        uneven=uneven,
        divide=divide,
        bucket_mb=bucket_mb,
        wire=wire,
        keep_params=keep_params,
        strict=strict,
        job=job,
        deadline_s=deadline_s,
        handshake_deadline_s=handshake_deadline_s,
        parity_every=parity_every,
    )
    models = list(model) if isinstance(model, list | tuple) else [model]
    optimizers = list(optimizer) if isinstance(optimizer, list | tuple) else [] if optimizer is None else [optimizer]
    optimizers = [innermost(one) for one in optimizers]
    if not models or not all(isinstance(m, torch.nn.Module) for m in models):
        raise TypeError(f"model={model!r}: must be a torch.nn.Module or a list of them")
    optimizers = _deepspeed_step.in_place_of(optimizers, models)
    if not all(hasattr(o, "register_step_pre_hook") for o in optimizers):
        raise TypeError(f"optimizer={optimizer!r}: must be a torch.optim.Optimizer or a list of them")
    job_group = group if group is not None else dist.group.WORLD if dist.is_available() and dist.is_initialized() else None
    return attach_all(models, optimizers, job_group, options)


def attach_all(
    models: list[torch.nn.Module],
    optimizers: list[torch.optim.Optimizer],
    job_group: ProcessGroup | None,
    options: Options,
    *,
    votes: bool = True,
) -> Sync:
    """attach() with its arguments checked. Without `votes`, for counting alone: ranks agree on nothing after the handshake, no collective
    is added, and nothing is guarded."""
    given = _deepspeed_step.in_place_of(optimizers, models)
    optimizers = _recognised.stepping(given)
    found, notes = _find(models, optimizers, job_group, options)
    options, told, alone = _recognising.settle(options, found, given, counting=not votes)
    notes += [(one.reason, one.text) for one in (*told, *alone)]
    refuse_attached(optimizers, [p for adapter in found for p in adapter.parameters()])
    tap = _tap.load()
    result = Job(options, found, optimizers, tap, notes)
    result.models = models
    result.left_alone = bool(alone)
    result.ledger = _ledger(result, job_group)
    try:
        result.settle_options()
        if votes and job_group is not None and dist.get_world_size(job_group) > 1:
            result.agreement = Agreement(job_group, result.ledger, options.deadline_s, result.place)
        _start(result)
    except BaseException:
        result.close()
        raise
    atexit.register(result.at_exit)
    window = Window(result)
    result.window = window
    _recognising.begin(window, found, optimizers)
    if votes:
        result.guards = Guards(window, optimizers)
    _recognising.watch_steps(window, optimizers)
    return Sync(result, window)


def _find(
    models: list[torch.nn.Module], optimizers: list[torch.optim.Optimizer], group: ProcessGroup | None, options: Options
) -> tuple[list[Adapter], list[tuple[str, str]]]:
    """Adapters of all wrapped parts, one of ours for what is outside of them, and what is to be told."""
    found: list[Adapter] = []
    strays: list[tuple[str, torch.nn.Parameter]] = []
    for model in models:
        adapters, outside = _adapters.discover(model)
        found += adapters
        strays += outside
    _adapters._share(found)
    of_models = {id(p) for model in models for p in model.parameters()}
    for optimizer in optimizers:
        if not any(id(p) in of_models for g in optimizer.param_groups for p in g["params"]):
            raise ValueError("the optimizer holds no parameter of the model: attach the model that it trains")
    known = {id(p) for a in found for p in a.parameters() + a.ignored()} | {id(p) for _, p in strays}
    for i, optimizer in enumerate(optimizers):
        for j, param_group in enumerate(optimizer.param_groups):
            for k, parameter in enumerate(param_group["params"]):
                if id(parameter) not in known and parameter.requires_grad:
                    known.add(id(parameter))
                    strays.append((f"optimizers[{i}].param_groups[{j}]['params'][{k}] {tuple(parameter.shape)}", parameter))
    sharded = [name for name, p in strays if hasattr(p, "placements")]
    if sharded:
        raise ValueError(
            f"{sharded[0]} and {len(sharded) - 1} more are DTensors outside FSDP (tensor parallel?): gradgate cannot tell which ranks hold "
            "the same; wrap the model with fully_shard or DDP over its data-parallel mesh dimension first"
        )
    strays = strays if not found or any(p.requires_grad for _, p in strays) else []
    notes = [(one.reason, one.text) for one in _adapters.double_reductions(found)]
    if strays:
        wrapped = bool(found)
        found.append(Plain(strays, group, options.deadline_s, overlap=not wrapped, reducer=_tap.load().reducer()))
        if wrapped and group is not None and dist.get_world_size(group) > 1:
            trained = [name for name, p in strays if p.requires_grad]
            names = ", ".join(trained[:8]) + (f" and {len(trained) - 8} more" if len(trained) > 8 else "")
            text = f"parameters outside every wrapper: {names}. gradgate reduces them itself, at the boundary; wrap or freeze them"
            if options.strict:
                raise Unreduced(text)
            notes.append(("stray_parameters", text))
    if not any(adapter.parameters() for adapter in found):
        raise ValueError("nothing to reduce: no parameter of the model or the optimizer requires a gradient")
    return found, notes


def _count(what: str) -> int:
    """How often it has been asked for before."""
    before = _attached.get(what, 0)
    _attached[what] = before + 1
    return before


def yield_name(job: Job) -> None:
    """A closed job's name is its successor's, on all ranks alike: a name means the run that began last."""
    _attached[job.named] -= 1


def _ledger(job: Job, group: ProcessGroup | None) -> Ledger:
    options = job.options
    ranks = dist.get_process_group_ranks(group) if group is not None else [0]
    world, members = len(ranks), ",".join(map(str, ranks))
    job.named = f"{members} as {options.job}"
    ordinal, again = _count(members), _count(job.named)
    store: Any = None
    if world > 1:
        whole = world == dist.get_world_size()
        prefix = f"gradgate/{ordinal}" if whole else f"gradgate/{hashlib.sha256(members.encode()).hexdigest()[:16]}/{ordinal}"
        job.place = prefix
        store = dist.PrefixStore(prefix, dist.distributed_c10d._get_default_store())
    return Ledger(
        accumulate=options.accumulate,
        mode=job.mode,
        variable=options.variable,
        strict=options.strict,
        rank=dist.get_rank(group) if group is not None else 0,
        world_size=world,
        roles=job.roles if world > 1 else 0,
        store=store,
        job_name=options.job,
        scope=f"#{again + 1}" if again else "",
        facts=job.facts(),
        deadline_s=options.deadline_s,
        handshake_deadline_s=options.handshake_deadline_s,
    )


def _start(job: Job) -> None:
    """Tries the adapters' private calls, binds the tap, and has both confirmed by all ranks in a first vote."""
    tap, ledger = job.tap, job.ledger
    failure = ""
    if job.enforcing:
        try:
            for adapter in job.adapters:
                adapter.self_test()
        except Unreduced as unreduced:
            failure = str(unreduced)
    tap.bind(ledger)
    for adapter in job.adapters:
        for one in adapter.groups():
            tap.role(ledger, one.process_group.group_name, one.role)
    if job.agreement is not None:
        for adapter in job.adapters:
            adapter.agree = job.agreement.maximum
        tap.role(ledger, job.agreement.name, Role.OTHER)
        tap.ours(job.agreement.name)
        before = ledger.collective_stats(Role.OTHER, 0).ours_issued
        _, (failed,) = job.agreement.extremes([int(bool(failure))])
        seen = ledger.collective_stats(Role.OTHER, 0).ours_issued - before
        if tap.seeing and seen != 1:
            tap.blind(ledger)
            ledger.warn("tap_blind", f"one collective was issued and the tap counted {seen}: collectives are not counted in this process")
        if failed and not failure:
            failure = "another rank's wrapper did not pass its self-test; its own message says why"
    if failure:
        raise Unreduced(failure)
