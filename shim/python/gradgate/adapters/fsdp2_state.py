"""Where FSDP2 keeps what it has deferred. With fsdp2_partial.py, the only file that reads its private state.

| name | torch |
| --- | --- |
| FSDPModule (torch.distributed.fsdp; before that torch.distributed._composable.fsdp) | 2.6 (2.4) |
| FSDPState._fsdp_param_groups; before that _fsdp_param_group | 2.12 (2.4) |
| FSDPState._root_post_backward_final_callback, _state_ctx, _comm_ctx, _device_handle | 2.4 |
| FSDPParamGroup.reduce_grads, all_reduce_grads, _partial_reduce_output, _all_gather_result, post_backward | 2.4 |
| FSDPParamGroup._reduce_scatter_comm | 2.9 |
| FSDPParamGroup.reduce_scatter_unused_params, FSDPState._reset_iter_state | 2.13 |

Read for 2.9.1, 2.13.0 and 2.14.1; fsdp2_selftest.py tells whether another version behaves alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

FsdpModule: Any
try:
    from torch.distributed.fsdp import FSDPModule as FsdpModule
except ImportError:
    try:
        from torch.distributed._composable.fsdp import FSDPModule as FsdpModule
    except ImportError:
        FsdpModule = None

ReplicateModule: Any
try:
    from torch.distributed._composable.replicate_with_fsdp import ReplicateModule
except ImportError:
    ReplicateModule = None


def is_replicate(module: torch.nn.Module) -> bool:
    return ReplicateModule is not None and isinstance(module, ReplicateModule)


def roots(module: torch.nn.Module, inside: str = "", seen: set[int] | None = None) -> Iterator[torch.nn.Module]:
    """The topmost module of each independent part. replicate() does not see what fully_shard() wrapped; fully_shard sees both."""
    seen = set() if seen is None else seen
    if FsdpModule is None or id(module) in seen:
        return
    seen.add(id(module))
    kind = inside
    if isinstance(module, FsdpModule):
        kind = "replicate" if is_replicate(module) else "fsdp2"
        if not inside or (inside == "replicate" and kind == "fsdp2"):
            yield module
        else:
            kind = inside
    for child in module.children():
        yield from roots(child, kind, seen)


def states_of(root: torch.nn.Module) -> list[Any]:
    """The states in the root's part, in the order of modules(); a state of several modules once."""
    only_replicate = is_replicate(root)
    states: dict[int, Any] = {}
    for module in root.modules():
        if isinstance(module, FsdpModule) and (not only_replicate or is_replicate(module)):
            state = module._get_fsdp_state()
            states.setdefault(id(state), state)
    return list(states.values())


def groups_of(state: Any) -> list[Any]:
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        groups = [state._fsdp_param_group] if state._fsdp_param_group else []
    return list(groups)


def holds(parameter: Any) -> bool:
    """Whether an FSDPParam holds an unsharded gradient. It has no unsharded parameter before its first all-gather."""
    if parameter.unsharded_accumulated_grad is not None:
        return True
    unsharded = getattr(parameter, "_unsharded_param", None)
    return unsharded is not None and unsharded.grad is not None


def trainable(group: Any) -> list[Any]:
    return [p for p in group.fsdp_params if p.sharded_param.requires_grad]


def shard_group(group: Any) -> Any | None:
    """The group that gradients are reduce-scattered in, None under replicate. It need not be the one of the all-gathers."""
    info = group.mesh_info
    return getattr(info, "reduce_scatter_process_group", None) or getattr(info, "shard_process_group", None)


def replicate_group(group: Any) -> Any | None:
    return getattr(group.mesh_info, "replicate_process_group", None)


def reshard(group: Any) -> None:
    if not group.is_sharded:
        group.reshard()


def drop(group: Any) -> None:
    """Forgets what the group has deferred, without a collective."""
    group._partial_reduce_output = None
    for parameter in group.fsdp_params:
        parameter.unsharded_accumulated_grad = None
        unsharded = getattr(parameter, "_unsharded_param", None)
        if unsharded is not None:
            unsharded.grad = None


def unfinished(root: Any) -> bool:
    """Whether an exception left a forward, or its backward, before its end."""
    context = root._state_ctx
    return context.iter_forward_root is not None or context.post_backward_final_callback_queued


def without_backward(root: Any) -> bool:
    """Whether forwards are recorded whose backward has not ended. The next backward would prefetch, alone, what they recorded."""
    return bool(root._comm_ctx.post_forward_order)


def recover(root: Any, groups: list[Any], held: Sequence[Any] = ()) -> None:
    """Makes the next forward possible after an exception; keeps the partial sums, which reset_iter_state drops. Parameters of `held`
    groups stay unsharded, or on their way to be."""
    partials = [group._partial_reduce_output for group in groups]
    if not held and hasattr(root, "_reset_iter_state") and root._is_root is not False:
        root._reset_iter_state()
    else:
        _reset(root, {id(group) for group in held})
    for group, partial in zip(groups, partials, strict=True):
        group._partial_reduce_output = partial


def _reset(root: Any, held: set[int]) -> None:
    idle = type(root._training_state).IDLE
    for state in root._state_ctx.all_states:
        state._training_state = idle
        state._modules_to_run_forward.clear()
        for group in groups_of(state):
            gathering = group._all_gather_result
            if id(group) in held:
                group._all_gather_result = None  # finalize_backward would wait for it and drop it
            group.finalize_backward()
            group._training_state = idle
            if id(group) in held:
                group._all_gather_result = gathering
            else:
                group.reshard()
    gathered = root._comm_ctx.all_gather_state
    if gathered is not None and gathered.event is not None:
        root._device_handle.current_stream().wait_event(gathered.event)
    root._comm_ctx.all_gather_state = None
    root._comm_ctx.post_forward_order.clear()
    root._state_ctx.iter_forward_root = None
    root._state_ctx.post_backward_final_callback_queued = False
