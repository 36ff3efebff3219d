"""Where DDP keeps what the adapters ask about: its parameters, buckets and hook, and how its reducer is replaced. No policy."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


def has_reducer(ddp: Any) -> bool:
    """Not where every all-reduce is delayed, nor where compiled autograd reduces."""
    return "reducer" in ddp.__dict__ and not ddp._use_python_reducer


def ran_forward(ddp: Any) -> bool:
    return bool(ddp._lazy_init_ran)


def finds_unused(ddp: Any) -> bool:
    """Whether each reduction is followed by one of the map of used parameters."""
    return bool(ddp.find_unused_parameters and not ddp.static_graph)


def rebuilds(ddp: Any) -> bool:
    """Whether buckets change after the first reduction."""
    return not finds_unused(ddp)


def reduced_parameters(ddp: Any) -> list[torch.nn.Parameter]:
    """Those of the reducer, in its order; what was frozen or unfrozen since it was built does not change them."""
    now: list[torch.nn.Parameter] = ddp._build_params_for_reducer()[0]
    if not has_reducer(ddp) or len(ddp.reducer.get_backward_stats()) == len(now):
        return now
    members = {id(p) for bucket in ddp.reducer._get_zeros_like_grad_buckets() for p in bucket.parameters()}
    return [p for p in ddp.module.parameters() if id(p) in members]


def hook_name(ddp: Any) -> str:
    """Of the communication hook, "" if there is none."""
    return str(_told(ddp).get("comm_hook", ""))


def _told(ddp: Any) -> dict[str, Any]:
    return dict(ddp._get_ddp_logging_data()) if ddp.logger is not None else {}


def bucket_bytes(ddp: Any) -> list[int]:
    """Of the buckets of the next reduction; empty if it is not told. DDP writes down that it has rebuilt them in the first ten reducing
    forwards, and every hundredth. Takes the reducer's lock: never inside a backward."""
    told = _told(ddp)
    name = "rebuilt_bucket_sizes" if ddp._has_rebuilt_buckets else "bucket_sizes"
    if name not in told and ddp._has_rebuilt_buckets:
        ddp.logger.set_runtime_stats_and_log()
        told = _told(ddp)
    return [int(size) for size in str(told.get(name) or "").replace(",", " ").split()]


def gradient_sizes(ddp: Any, parameters: list[torch.nn.Parameter]) -> tuple[frozenset[int] | None, bool]:
    """Elements of the buckets, and whether they stay. Between the first reduction and the forward that rebuilds, nobody knows."""
    final = ddp._has_rebuilt_buckets or not rebuilds(ddp)
    if not final and any(ddp.reducer.get_backward_stats()):
        return None, False
    widths = {p.element_size() for p in parameters}
    return frozenset(size // width for size in bucket_bytes(ddp) for width in widths) or None, final


def fill_sparse(ddp: Any, parameters: list[torch.nn.Parameter]) -> None:
    """A sparse gradient that this rank does not have takes part as one without entries; the reducer does not make it."""
    for parameter, sparse in zip(parameters, ddp._build_params_for_reducer()[1], strict=False):
        if sparse and parameter.grad is None:
            with torch.inference_mode(False), torch.no_grad():
                rows = torch.zeros((1, 0), dtype=torch.int64, device=parameter.device)
                values = parameter.new_zeros((0, *parameter.shape[1:]))
                parameter.grad = torch.sparse_coo_tensor(rows, values, parameter.shape, is_coalesced=True, check_invariants=False)


def rebuild_reducer(ddp: Any, size: int, members: list[torch.nn.Parameter]) -> None:
    """A reducer with buckets of at most `size` bytes in place of the one that DDP was built with, for the same parameters, whichever of
    them are frozen now. All ranks alike, before a forward."""
    before = [(p, p.requires_grad) for p in ddp.module.parameters()]
    reduced = {id(p) for p in members}
    for parameter, _ in before:
        parameter.requires_grad_(id(parameter) in reduced)
    try:
        _rebuild(ddp, size)
    finally:
        for parameter, trained in before:
            parameter.requires_grad_(trained)


def _rebuild(ddp: Any, size: int) -> None:
    hook, hooks = hook_name(ddp), list(ddp._comm_hooks)
    ddp.bucket_bytes_cap, ddp.bucket_bytes_cap_default = size, False
    if hasattr(ddp, "_bucket_config"):
        cap_mb: Any = size / 2**20
        ddp._bucket_config = type(ddp._bucket_config).create(cap_mb, None, ddp._use_python_reducer)
        ddp.bucket_bytes_cap_list = []
    ddp.reducer._remove_autograd_hooks()
    parameters, sparse = ddp._build_params_for_reducer()
    ddp._ddp_init_helper(parameters, sparse, ddp._build_debug_param_to_name_mapping(parameters), ddp.static_graph)
    if ddp.static_graph:
        ddp.reducer._set_static_graph()
        ddp.logger._set_static_graph()
    if ddp.mixed_precision is not None:
        ddp.reducer._set_mixed_precision_param_dtype(ddp.mixed_precision.param_dtype)
    for function, state in hooks:
        ddp.logger._set_comm_hook_name(function.__qualname__)
        dist._register_comm_hook(ddp.reducer, state, function)
    if hook and not hooks:
        ddp._register_builtin_comm_hook(getattr(dist.BuiltinCommHookType, hook.rpartition(".")[2]))


class Fires:
    """Counts how often each parameter's gradient accumulates in a static graph's first backward, as the reducer does."""

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        self.counts = [0] * len(parameters)
        self._handles = []
        with torch.enable_grad():
            for index, parameter in enumerate(parameters):
                node: Any = parameter.expand_as(parameter).grad_fn
                self._handles.append(node.next_functions[0][0].register_hook(self._counter(index)))

    def _counter(self, index: int) -> Any:
        def count(*_: Any) -> None:
            self.counts[index] += 1

        return count

    def stop(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []


class Earlier:
    """Gradients that have been reduced within the window, kept out of the next reduction: only a mean may be taken twice."""

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        self._kept = [(p, p.grad) for p in parameters if p.grad is not None]
        for p, _ in self._kept:
            p.grad = None

    def add(self) -> None:
        for p, gradient in self._kept:
            p.grad = gradient if p.grad is None else p.grad.add_(gradient)
