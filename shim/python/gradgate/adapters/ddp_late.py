"""Lets DDP's reducer reduce after the fact what micro-steps without synchronisation have accumulated.

The reducer is told what a backward would have told it: that a backward begins, and that each parameter's gradient is there. So it
issues its own buckets through its own hook, in its own order, with its map of used parameters, and copies back what comes out: bytes
and collectives are those of a boundary micro-step, and ranks that reduced in their backward pair with it.

Private names, and the torch that first had them as they are used here:

| name | torch |
| --- | --- |
| Reducer._autograd_hook(index), _check_reducer_finalized, _remove_autograd_hooks | 2.1 |
| Reducer._reset_state | 2.3 |
| Reducer._rebuild_buckets, prepare_for_forward, prepare_for_backward, get_backward_stats | 1.10 |
| DDP._build_params_for_reducer, _static_graph_delay_allreduce_enqueued, _has_rebuilt_buckets, _join_config, _lazy_init_ran | 2.0 |

Read for 2.9.1, 2.13.0 and 2.14.1; self_test() tells whether another version behaves alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .base import Unreduced


class _Outcome(torch.autograd.Function):
    """A forward's output that depends on the given parameters: where the reducer looks for those in use."""

    @staticmethod
    def forward(ctx: Any, *parameters: torch.Tensor) -> torch.Tensor:
        return parameters[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:  # pragma: no cover - only its graph is read
        raise AssertionError("not a backward of the model")


class _Backward(torch.autograd.Function):
    """Calls `run` inside a backward, whose end is when the reducer finalizes."""

    @staticmethod
    def forward(ctx: Any, start: torch.Tensor, run: Callable[[], None]) -> torch.Tensor:
        ctx.run = run
        return start.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.run()
        return None, None


_outcome: Any = _Outcome.apply
_backward: Any = _Backward.apply


def reduce_late(reducer: Any, parameters: Sequence[torch.nn.Parameter], *, find_unused: bool, fires: Sequence[int] | None = None) -> None:
    """Runs one reduction of `reducer` over the parameters' gradients as they are; None takes part as zeros. Waits.

    parameters   all of the reducer's, in its order
    find_unused  the reducer looks for unused parameters in each forward's graph
    fires        how often the hook of each parameter runs in a backward of a static graph
    """
    # The last first, as in a backward: where this is the first reduction, buckets are rebuilt in this order.
    order = list(range(len(parameters)))[::-1]
    with torch.inference_mode(False), torch.enable_grad():
        reducer.prepare_for_forward()
        if find_unused:
            # What has no gradient was not used, here; the reducer marks it ready by itself.
            order = [i for i in order if parameters[i].grad is not None and parameters[i].requires_grad]
            order = order or [next(i for i, p in enumerate(parameters) if p.requires_grad)]
            reducer.prepare_for_backward([_outcome(*[parameters[i] for i in order])])
        else:
            reducer.prepare_for_backward([])

        def run() -> None:
            for index in order:
                for _ in range(1 if fires is None else fires[index]):
                    reducer._autograd_hook(index)

        _backward(torch.zeros((), requires_grad=True), run).backward()
        reducer._check_reducer_finalized()


def self_test() -> None:
    """Runs reduce_late on a reducer of two buckets over a group of one, whose hook doubles. No collective leaves the process."""
    try:
        gradients = _try_it()
    except Exception as error:
        raise _unknown(f"{type(error).__name__}: {error}") from error
    if gradients != [[2.0, 4.0], [0.0, 0.0, 0.0]]:
        raise _unknown(f"gradients 1, 2 and none became {gradients}")


def _try_it() -> list[list[float]]:
    ones: list[Any] = [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(3))]
    ones[0].grad = torch.tensor([1.0, 2.0])
    alone = dist.ProcessGroup(dist.HashStore(), 0, 1)
    reducer = dist.Reducer(ones, [[1], [0]], [2**20, 2**20], alone)
    dist._register_comm_hook(reducer, None, _doubling)
    for _ in range(2):  # the second after the first: it leaves nothing behind
        ones[0].grad, ones[1].grad = torch.tensor([1.0, 2.0]), None
        reduce_late(reducer, ones, find_unused=False)
    reducer._remove_autograd_hooks()
    return [p.grad.tolist() if p.grad is not None else [] for p in ones]


def _doubling(state: object, bucket: Any) -> Any:
    future: Any = torch.futures.Future()
    future.set_result(bucket.buffer() * 2)
    return future


def _unknown(what: str) -> Unreduced:
    return Unreduced(
        f"torch {torch.__version__}: DDP's reducer does not reduce late as in the versions that gradgate knows ({what}). "
        "Use another torch, or GRADGATE=off."
    )
