"""The policy of a running job: what the daemon offers, whether this rank can carry it out, and what it changes once all ranks have
adopted it. See gg_policy in gradgate.h.

Everything here happens between two windows, on the loop's thread: what was offered is answered, what was adopted is in force with the
next micro-step. An answer depends on nothing that ranks do not share, but for faults of this rank alone.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from . import _abi, auto
from .adapters.base import Unreduced
from .counts import MODES

if TYPE_CHECKING:
    from .adapters.base import Adapter
    from .job import Job

_MODE_NAMES = {number: name for name, number in MODES.items()}
_AUTO = (_abi.MODE_DEFAULT, _abi.MODE_AUTO)
_WIRES = {_abi.WIRE_GRADIENT: None, _abi.WIRE_BF16: "bf16", _abi.WIRE_FP16: "fp16"}


def vet(job: Job, offered: _abi.Policy) -> int:
    """_abi.REJECTION_…: why this rank cannot carry it out; REJECTION_NONE if it can."""
    if job.left_alone or job.enforcement == "off":
        return _abi.REJECTION_LEFT_ALONE
    mode = _MODE_NAMES.get(offered.mode, "")
    enforcing = offered.enforcement != _abi.ENFORCEMENT_AUDIT if offered.enforcement else job.started_enforcing
    if (job.variable or job.uneven_seen) and (mode == "every_micro_step" or not enforcing):
        return _abi.REJECTION_FIXED  # ranks with fewer micro-steps would reduce less often than the others, who wait for them
    if enforcing != job.started_enforcing and not (_can_enforce(job) if enforcing else not job.enforcement_fixed):
        return _abi.REJECTION_FIXED
    if mode == "window_replica" and not _has_effect(job, "mode", mode):
        return _abi.REJECTION_NO_REPLICAS
    if offered.reshard == _abi.RESHARD_WINDOW and not _has_effect(job, "keep_params", True):
        return _abi.REJECTION_NOTHING_GATHERED
    if offered.bucket_bytes:
        for adapter in job.adapters:
            why = adapter.cannot_recast()
            if why is not None:
                return _abi.REJECTION_FIXED if why.reason == "static_graph" else _abi.REJECTION_NO_BUCKETS
    if _WIRES.get(offered.wire) is not None:
        for adapter in job.adapters:
            why = adapter.no_effect("wire", _WIRES[offered.wire])
            if why is not None:
                return _abi.REJECTION_HOOK_HELD if why.reason == "wire_user_hook" else _abi.REJECTION_NO_WIRE_TYPE
    return _abi.REJECTION_NONE


def _has_effect(job: Job, option: str, value: object) -> bool:
    """Whether it has an effect on all wrappers."""
    return all(adapter.no_effect(option, value) is None for adapter in job.adapters)


def _can_enforce(job: Job) -> bool:
    """In a job that was started in audit: where nobody has arranged the loop for audit alone."""
    if job.enforcement_fixed or job.accumulate == 0:
        return False
    try:
        for adapter in job.adapters:
            adapter.self_test()
    except Unreduced as unreduced:
        job.ledger.warn("policy", f"this rank cannot enforce: {unreduced}")
        return False
    return True


def take_up(job: Job, policy: _abi.Policy) -> None:
    """Does what it says from the next window on, on every rank alike."""
    options = job.options
    keep = options.keep_params if policy.reshard == _abi.RESHARD_AS_GIVEN else policy.reshard == _abi.RESHARD_WINDOW
    if policy.mode == _abi.MODE_AUTO and options.mode != "auto":
        climbing = auto.ladder(job.adapters, dataclasses.replace(options, mode="auto", keep_params=keep), [])
        climbing.restart(job.ledger.window_index)
        job.ladder = climbing
    elif policy.mode in _AUTO and policy.reshard == _abi.RESHARD_AS_GIVEN:
        job.ladder = job.given_ladder
    else:
        mode = job.given_ladder.mode if policy.mode in _AUTO else _MODE_NAMES[policy.mode]
        job.ladder = auto.Fixed(mode, bool(keep) and all(a.no_effect("keep_params", True) is None for a in job.adapters))
    enforcing = policy.enforcement != _abi.ENFORCEMENT_AUDIT if policy.enforcement else job.started_enforcing
    job.drive(enforcing)
    bucket_mb = policy.bucket_bytes / 2**20 if policy.bucket_bytes else options.bucket_mb
    wire = _WIRES[policy.wire] if policy.wire else options.wire
    for adapter in job.driven:
        if _recast(adapter, bucket_mb, wire):
            job.sizes_changed()
    job.take_rung()


def _recast(adapter: Adapter, bucket_mb: float | None, wire: str | None) -> bool:
    why = adapter.cannot_recast()
    return (why is None or why.reason == "static_graph") and adapter.recast(bucket_mb, wire)  # whose wire type can change
