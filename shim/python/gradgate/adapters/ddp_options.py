"""Which options do nothing on DDP, and why."""

from __future__ import annotations

import math
from typing import Any

import torch

from . import ddp_state
from .base import NoEffect
from .comm_hooks import wire_type


def bucket_bytes(bucket_mb: object) -> int:
    """ValueError unless it is positive and finite."""
    if isinstance(bucket_mb, bool) or not isinstance(bucket_mb, int | float) or not math.isfinite(bucket_mb) or bucket_mb <= 0:
        raise ValueError(f"bucket_mb={bucket_mb!r}: must be a positive, finite number of MiB")
    return max(1, int(bucket_mb * 2**20))


def no_effect(kind: str, module: torch.nn.Module, ddp: Any, user_hook: str, option: str, value: object) -> NoEffect | None:
    """`ddp` is None while the wrapper is not built; `user_hook` names a communication hook that is not ours."""
    if option == "mode" and value == "window_replica":
        return NoEffect("no_shard_dimension", f"{kind}: parameters are not sharded; window_replica is the same as window")
    if option == "keep_params" and value:
        return NoEffect("no_sharded_parameters", f"{kind}: parameters are never sharded; there is nothing to keep")
    if option == "bucket_mb" and value is not None:
        bucket_bytes(value)
        if ddp is not None and ddp_state.ran_forward(ddp):
            text = f"{kind}: bucket_mb={value} after the first forward; attach before it, or wrap with bucket_cap_mb={value}"
            return NoEffect("bucket_after_first_forward", text)
        if ddp is not None and not ddp_state.has_reducer(ddp):
            return NoEffect("no_buckets", f"{kind}: this wrapper has no buckets")
    if option == "wire" and value is not None:
        wire_type(str(value))
        if user_hook:
            text = f"{kind}: wire={value!r} beside the communication hook {user_hook!r}; there can be one, and it is kept"
            return NoEffect("wire_user_hook", text)
        if ddp is not None and not ddp_state.has_reducer(ddp):
            return NoEffect("no_buckets", f"{kind}: this wrapper has no buckets that a hook could send")
    if option == "windows" and value == "variable":
        return _no_variable_windows(kind, ddp, module)
    return None


def never_late(ddp: Any) -> NoEffect | None:
    """Why this instance can never reduce after the fact."""
    if ddp._delay_all_reduce_params:
        return NoEffect("delayed_all_reduce", "delay_all_reduce_named_params reduces in every backward, whatever the flag; do not use it")
    if ddp._use_python_reducer:
        return NoEffect("python_reducer", "the reducer of compiled autograd reduces inside its graph; use another optimize_ddp mode")
    if ddp.mixed_precision is not None:
        return NoEffect("ddp_mixed_precision", "DDP's own mixed precision casts gradients in each backward; use autocast or FSDP2")
    if ddp._join_config.enable:
        return NoEffect("join_context", "inside Join the ranks that have ended shadow each backward; use windows='variable' without Join")
    if getattr(ddp, "skip_all_reduce_unused_params", False) and ddp_state.finds_unused(ddp):
        return NoEffect("skips_unused", "skip_all_reduce_unused_params leaves buckets out by each backward's graph; do not use it")
    return None


def _no_variable_windows(kind: str, ddp: Any, module: torch.nn.Module) -> NoEffect | None:
    if any(isinstance(m, torch.nn.SyncBatchNorm) for m in module.modules()):
        text = f"{kind}: SyncBatchNorm communicates in every forward, so all ranks need the same number of micro-steps"
        return NoEffect("sync_batch_norm", text)
    if ddp is None:
        return None
    if ddp.broadcast_buffers and ddp.modules_buffers:
        text = f"{kind}: buffers are broadcast in a window's first forward, which every rank must run; wrap with broadcast_buffers=False"
        return NoEffect("buffers_broadcast", text)
    never = never_late(ddp)
    return NoEffect(never.reason, f"{kind}: {never.text}") if never is not None else None
