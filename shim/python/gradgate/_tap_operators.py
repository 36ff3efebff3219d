"""Which operators of the `c10d` namespace are collectives, and where in their arguments the group and the payload are.

torch's releases differ in their operators, so they are asked from the dispatcher. One that is not in the table is known by its name
as far as that goes; one with a process group that even its name does not explain is listed, not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch


class Op(IntEnum):
    """The values of gg_op."""

    ALL_REDUCE = 0
    REDUCE_SCATTER = 1
    ALL_GATHER = 2
    BROADCAST = 3
    REDUCE = 4
    GATHER = 5
    SCATTER = 6
    ALL_TO_ALL = 7
    BARRIER = 8
    SEND = 9
    RECV = 10


class Traffic(IntEnum):
    GRADIENT = 0
    OURS = 1
    OTHER = 2


class Outcome(IntEnum):
    OK = 0
    FAILED = 1
    UNKNOWN = 2


@dataclass(frozen=True)
class Operator:
    name: str  # as the dispatcher has it: "c10d::allreduce_", with ".overload" where there is one
    op: Op
    group: int  # position of the process group among the arguments
    payload: int  # position of what this rank hands in; -1: nothing


# The argument that this rank hands to the collective; "" for none.
TABLE = {
    "allreduce_": (Op.ALL_REDUCE, "tensors"),
    "allreduce_coalesced_": (Op.ALL_REDUCE, "tensors"),
    "reduce_scatter_": (Op.REDUCE_SCATTER, "input_tensors"),
    "_reduce_scatter_base_": (Op.REDUCE_SCATTER, "input_tensor"),
    "reduce_scatter_tensor_coalesced_": (Op.REDUCE_SCATTER, "inputs"),
    "allgather_": (Op.ALL_GATHER, "input_tensors"),
    "_allgather_base_": (Op.ALL_GATHER, "input_tensor"),
    "allgather_coalesced_": (Op.ALL_GATHER, "input_list"),
    "allgather_into_tensor_coalesced_": (Op.ALL_GATHER, "inputs"),
    "broadcast_": (Op.BROADCAST, "tensors"),
    "reduce_": (Op.REDUCE, "tensors"),
    "gather_": (Op.GATHER, "input_tensors"),
    "scatter_": (Op.SCATTER, "input_tensors"),
    "alltoall_": (Op.ALL_TO_ALL, "input_tensors"),
    "alltoall_base_": (Op.ALL_TO_ALL, "input"),
    "barrier": (Op.BARRIER, ""),
    "monitored_barrier_": (Op.BARRIER, ""),
    "send": (Op.SEND, "tensors"),
    "recv_": (Op.RECV, "tensors"),
    "recv_any_source_": (Op.RECV, "tensors"),
}
# In this order: "all_reduce" holds "reduce", "reduce_scatter" holds "scatter".
WORDS = (
    ("reducescatter", Op.REDUCE_SCATTER),
    ("allreduce", Op.ALL_REDUCE),
    ("allgather", Op.ALL_GATHER),
    ("alltoall", Op.ALL_TO_ALL),
    ("broadcast", Op.BROADCAST),
    ("barrier", Op.BARRIER),
    ("gather", Op.GATHER),
    ("scatter", Op.SCATTER),
    ("reduce", Op.REDUCE),
    ("send", Op.SEND),
    ("recv", Op.RECV),
)
# What the payload is called where the table does not say.
PAYLOADS = ("input_tensors", "input_tensor", "inputs", "input_list", "input", "tensors", "tensor")


def guess(base: str) -> Op | None:
    flat = base.replace("_", "")
    return next((op for word, op in WORDS if word in flat), None)


def understand(name: str) -> Operator | str | None:
    """The operator; its name where it has a process group but is not understood; None where it is no collective."""
    qualified, _, overload = name.partition(".")
    base = qualified.partition("::")[2]
    arguments = torch._C._get_schema(qualified, overload).arguments
    groups = [i for i, a in enumerate(arguments) if str(a.type).endswith(".c10d.ProcessGroup")]
    if not groups:
        return None
    op, payload = TABLE.get(base, (guess(base), None))
    if op is None:
        return name
    names = [a.name for a in arguments]
    wanted = PAYLOADS if payload is None else (payload,)
    position = next((names.index(n) for n in wanted if n in names), -1)
    if payload and position < 0:
        position = next((names.index(n) for n in PAYLOADS if n in names), -1)
    return Operator(name, op, groups[0], position)


def operators() -> tuple[list[Operator], list[str]]:
    """Every collective of the dispatcher, and the names of those that are not understood."""
    found = [understand(name) for name in sorted(torch._C._dispatch_get_all_op_names()) if name.startswith("c10d::")]
    return [f for f in found if isinstance(f, Operator)], [f for f in found if isinstance(f, str)]


def capturing() -> bool:
    """Asking a CUDA event during a capture would end the capture."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
