"""Parameters that no wrapper reduces: gradgate reduces them itself, through torch's process group.

How is written in shim/include/gradgate/torch_reducer.hpp: buckets in order, sent in the backward as their last gradients arrive; a map of
what ranks have gradients for; what has changed since it was sent, again. Values at the start are the caller's to make equal: nothing is
broadcast.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .base import Adapter, Group, NoEffect, Plan, Role, Unreduced
from .comm_hooks import wire_type
from .ddp_options import bucket_bytes
from .plain_python import PythonReducer

_REDUCE = Plan.REDUCE


def _only_in_python(parameters: Sequence[torch.Tensor]) -> bool:
    """Whether hooks in C++ would not do: gradients are tensors with code in Python, or the backward is compiled."""
    dynamo = sys.modules.get("torch._dynamo")
    return any(map(is_traceable_wrapper_subclass, parameters)) or (dynamo is not None and bool(dynamo.config.compiled_autograd))


class Plain(Adapter):
    """Late ranks pair with those that reduce in their backward: all issue the same collectives in the same order.

    overlap  buckets are sent inside the backward. False where another wrapper reduces over the same group: its collectives and these
             would mix in another order on a rank that is late. Then late() sends them all.
    reducer  makes what does so, as PythonReducer is made: the tap's, in C++
    """

    kind = "plain"
    flag_read = "backward"
    late_alone = True

    def __init__(
        self,
        named: Sequence[tuple[str, torch.nn.Parameter]],
        process_group: Any,
        deadline_s: float = 300.0,
        *,
        overlap: bool = True,
        reducer: Callable[..., Any] | None = None,
    ) -> None:
        unique = list({id(p): (name, p) for name, p in named}.values())
        self._parameters = [p for _, p in unique]
        self.module = torch.nn.ParameterList(self._parameters)
        self._group = process_group
        self._reducer: Any = None  # in a process alone there is nothing to reduce
        if process_group is not None and dist.get_world_size(process_group) > 1:
            if reducer is None or _only_in_python(self._parameters):
                reducer = PythonReducer
            self._reducer = reducer(self._parameters, [name for name, _ in unique], process_group.group_name, deadline_s, overlap)
        self._armed = False  # in the micro-step that is open, or was last
        self._bucket_bytes = bucket_bytes(25)
        self._wire: str | None = None

    # --- what it is ------------------------------------------------------------------------------------------------------

    def groups(self) -> list[Group]:
        return [Group(self._group, Role.DP)] if self._reducer is not None else []

    def parameters(self) -> list[torch.nn.Parameter]:
        return [p for p in self._parameters if p.requires_grad]

    def no_effect(self, option: str, value: object) -> NoEffect | None:
        if option == "mode" and value == "window_replica":
            return NoEffect("no_shard_dimension", "plain: parameters are not sharded; window_replica is the same as window")
        if option == "keep_params" and value:
            return NoEffect("no_sharded_parameters", "plain: parameters are never sharded; there is nothing to keep")
        if option == "bucket_mb" and value is not None:
            bucket_bytes(value)
        if option == "wire" and value is not None:
            wire_type(str(value))
        return None

    def configure(self, *, bucket_mb: float | None, wire: str | None, keep_params: bool) -> None:
        if self._reducer is None or (bucket_mb is None and wire is None):
            return
        if wire is not None:
            wire_type(wire)
            self._wire = wire
        if bucket_mb is not None:
            self._bucket_bytes = bucket_bytes(bucket_mb)
        self._reducer.configure(self._bucket_bytes, self._wire)

    def cannot_recast(self) -> NoEffect | None:
        return None

    def recast(self, bucket_mb: float | None, wire: str | None) -> bool:
        former, self._wire = self._bucket_bytes, wire
        self._bucket_bytes = bucket_bytes(25 if bucket_mb is None else bucket_mb)
        if self._reducer is not None:
            self._reducer.configure(self._bucket_bytes, self._wire)
        return self._bucket_bytes != former

    def expected(self) -> dict[tuple[Role, str], int] | None:
        """With the map, and what was sent twice in the last reduction."""
        if self._reducer is None:
            return {}
        *_, sizes, sent_again = self._reducer.state()
        return {(Role.DP, "all_reduce"): len(sizes) + 1 + sent_again}

    def gradient_sizes(self) -> tuple[frozenset[int] | None, bool]:
        return frozenset(self._reducer.state()[3]) if self._reducer is not None else frozenset(), False

    # --- a micro-step ----------------------------------------------------------------------------------------------------

    def arm(self, plan: Plan) -> None:
        if self._reducer is None:
            return
        self._armed = plan is _REDUCE
        if self._armed:
            self._named(self._reducer.arm)
        elif self._reducer.state()[1]:
            self._finish()  # the last micro-step reduced too, and nobody has asked since

    def disarm(self) -> None:
        if self._reducer is not None:
            self._reducer.disarm()

    def reduced(self) -> bool | None:
        return self._reducer is not None and bool(self._reducer.state()[0])

    def began(self) -> bool:
        return self._reducer is not None and bool(self._reducer.state()[2])

    def check(self) -> None:
        """Finishes what the backward began; without one there is nothing to finish, and late() is told by the other ranks when."""
        if self._reducer is None:
            return
        complete, launched, began, *_ = self._reducer.state()
        if launched or (self._armed and began and not complete):
            self._finish()

    def late(self) -> None:
        if self._reducer is not None:
            self._reducer.disarm()
            self._finish()

    def discard(self) -> None:
        if self._reducer is not None:
            self._reducer.discard()

    def self_test(self) -> None:
        """Nothing private is used."""

    def close(self) -> None:
        self.disarm()

    def _finish(self) -> None:
        self._named(self._reducer.finish)

    @staticmethod
    def _named(call: Callable[[], None]) -> None:
        try:
            call()
        except RuntimeError as error:
            raise Unreduced(f"plain: {error}") from error
