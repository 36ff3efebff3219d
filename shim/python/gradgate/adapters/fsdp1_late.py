"""What the adapter for FSDP1 does with private names: the only file that knows them.

| name | torch |
| --- | --- |
| FullyShardedDataParallel._sync_gradients, _handle, _all_fsdp_states, _inter_node_pg, training_state, process_group | 2.1 |
| _runtime_utils._post_backward_hook(state, handle, *unused), _post_backward_final_callback(root, module), _reshard | 2.1 |
| FlatParamHandle.uses_sharded_strategy, _sharding_strategy, _reset_flat_param_grad_info_if_needed, needs_unshard | 2.1 |
| FlatParameter._params, _saved_grad_shard, _unpadded_unsharded_size, _sharded_size | 2.1 |

A suppressed backward leaves the unsharded gradient in flat_param.grad. A reducing one ends with _post_backward_hook for each flat
parameter that got a gradient and with one final callback of the root; neither needs the parameter unsharded.
"""

from __future__ import annotations

from typing import Any

import torch

Wrapper: Any
try:
    from torch.distributed.fsdp import FullyShardedDataParallel as Wrapper
    from torch.distributed.fsdp import _runtime_utils as runtime
    from torch.distributed.fsdp._common_utils import HandleTrainingState, TrainingState

    IDLE = TrainingState.IDLE
except ImportError:
    Wrapper = None


def wrappers(module: torch.nn.Module) -> list[Any]:
    return [m for m in module.modules() if isinstance(m, Wrapper)]


def trained(state: Any) -> bool:
    return bool(state._handle is not None and state._handle.flat_param.requires_grad)


def holds(state: Any) -> bool:
    """Whether the flat parameter has a gradient, by the user's last word: its views are what zero_grad clears."""
    handle = state._handle
    if handle is None or handle.flat_param.grad is None:
        return False
    return not handle._use_orig_params or any(p.grad is not None for p in handle.flat_param._params)


def told_by_size(state: Any) -> bool:
    """Whether an unsharded gradient differs in size from a reduced one."""
    return bool(state._handle.uses_sharded_strategy and state.process_group.size() > 1)


def unsharded(state: Any) -> bool:
    flat = state._handle.flat_param
    return bool(flat.grad is not None and flat.grad.size() == flat._unpadded_unsharded_size)


def mark(state: Any) -> tuple[Any, int]:
    """Of the flat gradient, for unchanged()."""
    grad = state._handle.flat_param.grad
    return grad, -1 if grad is None else grad._version


def unchanged(state: Any, seen: tuple[Any, int]) -> bool:
    """Whether no backward has added to the flat gradient, or reduced it, since mark()."""
    grad, version = mark(state)
    return grad is seen[0] and version == seen[1]


def forget_backward(state: Any) -> None:
    """Or the final callback takes a flat parameter that an earlier backward used for one that this backward used."""
    state._handle.flat_param._post_backward_called = False


def parameters(state: Any) -> list[torch.nn.Parameter]:
    flat = state._handle.flat_param
    return [*flat._params, *flat._shared_params] if state._handle._use_orig_params else [flat]


def names(state: Any) -> list[str]:
    return list(state._handle.flat_param._fqns)


def reduce_late(root: Any, states: list[Any]) -> None:
    """With _sync_gradients on; all ranks give the same states in the same order."""
    with torch.no_grad():
        for state in states:
            state.training_state = TrainingState.FORWARD_BACKWARD
            state._handle._training_state = HandleTrainingState.BACKWARD_PRE
            runtime._post_backward_hook(state, state._handle, state._handle.flat_param)
        runtime._post_backward_final_callback(root, root)


def recover(root: Any) -> None:
    """After an exception, with _sync_gradients off: the final callback then reshards, resets and keeps what is accumulated."""
    with torch.no_grad():
        runtime._post_backward_final_callback(root, root)


def amiss(root: Any) -> bool:
    return bool(root.training_state is not IDLE or root._post_backward_callback_queued)


def reshard(root: Any) -> None:
    """Frees the parameters that a suppressed backward leaves unsharded (SHARD_GRAD_OP)."""
    with torch.no_grad():
        for state in root._all_fsdp_states:
            handle = state._handle
            if handle is not None and handle.uses_sharded_strategy and not handle.needs_unshard():
                runtime._reshard(state, handle, True)


def drop(state: Any) -> None:
    if state._handle is None:
        return
    flat = state._handle.flat_param
    flat.grad = None
    if hasattr(flat, "_saved_grad_shard"):
        del flat._saved_grad_shard
    if state._handle._use_orig_params:
        for parameter in flat._params:
            parameter.grad = None
