"""Half-precision gradients on the wire, as a communication hook of DDP's.

Each bucket is divided by the number of ranks in its own type, then rounded to the wire type, summed there, and widened again. Dividing
first: a sum of gradients in range can overflow float16, their mean cannot; the price is log2(ranks) bits at float16's lower end.
"""

# No `from __future__ import annotations`: DDP compares a hook's annotations with the types themselves.

import logging
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

_log = logging.getLogger("gradgate")
WIRES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def wire_type(wire: str | None) -> torch.dtype | None:
    """ValueError for a name that is none."""
    if wire is None:
        return None
    if wire not in WIRES:
        raise ValueError(f"wire={wire!r}: must be one of {', '.join(WIRES)}, or None")
    return WIRES[wire]


def narrows(dtype: torch.dtype, wire: torch.dtype | None) -> bool:
    """Whether gradients of this type are sent in the wire type: complex and short ones are sent as they are."""
    return wire is not None and dtype.is_floating_point and dtype.itemsize > wire.itemsize


class Wire:
    """State of the hook. `wire` None: nothing is rounded, the mean as DDP takes it. `given`: the script's own hook and its state, which
    came later and does all."""

    def __init__(self, process_group: Any, wire: torch.dtype | None) -> None:
        self.process_group = process_group
        self.wire = wire
        self.given: tuple[Callable[..., Any], Any] | None = None

    def sent(self, bucket: torch.Tensor) -> torch.Tensor:
        mean = bucket.mul_(1.0 / self.process_group.size())
        narrow = self.wire is not None and not bucket.is_sparse and narrows(bucket.dtype, self.wire)
        return mean.to(self.wire) if narrow else mean


def reduce_in_wire_type(state: Wire, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    if state.given is not None:
        hook, own = state.given
        return hook(own, bucket)  # type: ignore[no-any-return]
    buffer = bucket.buffer()
    sent = state.sent(buffer)
    future = dist.all_reduce(sent, group=state.process_group, async_op=True).get_future()

    def widened(done: Any) -> torch.Tensor:
        value: torch.Tensor = done.value()[0]
        return value if sent is buffer else buffer.copy_(value)

    return future.then(widened)  # type: ignore[no-any-return]


class Registering:
    """In place of a DDP's register_comm_hook while the wire's hook is registered, since a reducer takes one: the script's own comes
    first, as on all ranks that call it. Twice is refused, as torch does."""

    def __init__(self, ddp: Any, wire: Wire) -> None:
        self._ddp = weakref.ref(ddp)
        self._wire = wire

    def __call__(self, state: object, hook: Callable[..., Any]) -> None:
        ddp: Any = self._ddp()
        ddp._check_comm_hook(hook)
        if self._wire.given is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        if self._wire.wire is not None:
            _log.warning(
                "gradgate [wire_user_hook]: the script's communication hook %r takes the place of the wire type", hook.__qualname__
            )
        self._wire.given, self._wire.wire = (hook, state), None
        ddp.logger._set_comm_hook_name(hook.__qualname__)
