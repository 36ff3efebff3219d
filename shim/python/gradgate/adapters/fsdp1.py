"""FSDP1 (FullyShardedDataParallel), all sharding strategies. Its one flag is read when each flat parameter's backward ends."""

from __future__ import annotations

from typing import Any

import torch

from . import fsdp1_late as private
from . import fsdp1_selftest
from .base import Adapter, Group, NoEffect, Plan, Role, Unreduced

ACCUMULATE = Plan.ACCUMULATE  # looked up in an enumeration it costs as much as all of arm()
HYBRID = ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")

NO_EFFECT = {
    "hybrid": NoEffect(
        "window_replica_fsdp1",
        "FSDP1 has one switch for its reduce-scatter and its all-reduce: use mode='window', or fully_shard() on a two-dimensional mesh",
    ),
    "no_replicas": NoEffect(
        "no_replica_dimension", "this sharding strategy has no all-reduce to defer: use mode='window', or HYBRID_SHARD"
    ),
    "bucket_mb": NoEffect("bucket_fsdp1", "FSDP1 reduces per flat parameter; auto_wrap_policy sets their sizes"),
    "wire": NoEffect("wire_fsdp1", "FSDP1 reduces in MixedPrecision.reduce_dtype; set it there"),
    "keep_params": NoEffect(
        "keep_params_fsdp1", "FSDP1 keeps parameters inside a window by its strategy alone: SHARD_GRAD_OP does, FULL_SHARD does not"
    ),
    "windows": NoEffect("variable_fsdp", "ranks of a shard group gather parameters together in every micro-step: use windows='equal'"),
}


def find(model: torch.nn.Module) -> list[Adapter]:
    if private.Wrapper is None:
        return []
    inner: set[int] = set()
    roots = []
    for wrapper in private.wrappers(model):
        if id(wrapper) not in inner:
            roots.append(wrapper)
            inner.update(id(m) for m in private.wrappers(wrapper))
    return [Fsdp1(root) for root in roots if any(map(private.trained, private.wrappers(root)))]


class Fsdp1(Adapter):
    kind = "fsdp1"
    flag_read = "backward"
    late_alone = False

    def __init__(self, module: Any) -> None:
        self.module = module
        self._states = private.wrappers(module)
        self._former: list[bool] | None = None
        self._sync: bool | None = None
        self._suppressed = False  # since the last reduction
        # Flat parameters that hold a gradient which is not reduced, of those whose gradient's size does not tell.
        self._vague = [state for state in self._states if state._handle is not None and not private.told_by_size(state)]
        self._local: dict[int, tuple[Any, int]] = {}

    def groups(self) -> list[Group]:
        found: dict[int, Group] = {}
        for state in filter(private.trained, self._states):
            role = Role.SHARD if state._handle.uses_sharded_strategy else Role.DP
            found.setdefault(id(state.process_group), Group(state.process_group, role))
            if self._strategy(state) in HYBRID:
                found.setdefault(id(state._inter_node_pg), Group(state._inter_node_pg, Role.REPLICATE))
        return list(found.values())

    def parameters(self) -> list[torch.nn.Parameter]:
        """Of what is flattened: ignored_states are parameters of the module, and not reduced."""
        flattened = {id(p) for state in self._states if state._handle is not None for p in private.parameters(state)}
        return [p for p in self.module.parameters() if p.requires_grad and id(p) in flattened]

    def no_effect(self, option: str, value: object) -> NoEffect | None:
        if option == "mode" and value == "window_replica":
            hybrid = any(self._strategy(state) in HYBRID for state in self._states if state._handle is not None)
            return NO_EFFECT["hybrid" if hybrid else "no_replicas"]
        if option == "windows":
            return NO_EFFECT["windows"] if value == "variable" else None
        return NO_EFFECT.get(option) if value is not None and value is not False and option != "mode" else None

    def configure(self, *, bucket_mb: float | None, wire: str | None, keep_params: bool) -> None:
        """There is nothing to configure."""

    def arm(self, plan: Plan) -> None:
        sync = plan is not ACCUMULATE  # the one switch reduces everything
        if sync is not self._sync or self.module._sync_gradients is not sync:
            self._write(sync)

    def _write(self, sync: bool) -> None:
        if self._former is None:
            self._former = [state._sync_gradients for state in self._states]
        for state in self._states:
            state._sync_gradients = sync
            if sync and self._suppressed and state._handle is not None:
                private.forget_backward(state)
        self._sync = sync

    def disarm(self) -> None:
        if private.amiss(self.module):
            self._write(False)
            private.recover(self.module)
        if self._sync:
            self._local = {id(s): seen for s in self._vague if (seen := self._local.get(id(s))) and private.unchanged(s, seen)}
            self._restore()
            self._suppressed = bool(self._left())
        elif self._sync is not None:
            self._local = {id(s): private.mark(s) for s in self._vague if private.trained(s)}
            self._suppressed = True

    def _restore(self) -> None:
        for state, former in zip(self._states, self._former or (), strict=False):
            state._sync_gradients = former
        self._sync = None

    def _left(self) -> list[Any]:
        """What holds a gradient that is not reduced."""
        held = [state for state in self._states if private.trained(state) and private.holds(state)]
        return [s for s in held if (private.unsharded(s) if private.told_by_size(s) else id(s) in self._local)]

    def late(self) -> None:
        left = self._left() if self._suppressed else []
        if left:
            self._write(True)
            try:
                private.reduce_late(self.module, left)
                for state in left:
                    self._local.pop(id(state), None)  # an all-reduce alone does not show in the gradient's version
            finally:
                self.disarm()
        if self._suppressed and (left := self._left()):
            names = ", ".join(name for state in left for name in private.names(state))
            raise Unreduced(f"FSDP1 of torch {torch.__version__} has left the gradients of {names} unreduced; use another mode or torch")

    def suppressed(self) -> bool:
        if self._sync is False and self._former is not None:
            return not self._former[0]  # what is off now is so by the plan in force
        return not self.module._sync_gradients

    def reduced(self) -> bool | None:
        """False also if the window's last micro-step did not use a part that the window used: late() reduces what is left."""
        return False if self._suppressed else None

    def settle(self) -> None:
        if self._suppressed:
            private.reshard(self.module)

    def discard(self) -> None:
        for state in self._states:
            private.drop(state)
        self._suppressed = False
        self._local = {}

    def pending(self) -> bool:
        return self._suppressed and bool(self._left())

    def expected(self) -> dict[tuple[Role, str], int]:
        counts: dict[tuple[Role, str], int] = {}
        for state in filter(private.trained, self._states):
            keys = [(Role.SHARD, "reduce_scatter")] if state._handle.uses_sharded_strategy else [(Role.DP, "all_reduce")]
            if self._strategy(state) in HYBRID:
                keys.append((Role.REPLICATE, "all_reduce"))
            for key in keys:
                counts[key] = counts.get(key, 0) + 1
        return counts

    def deferred_bytes(self) -> int:
        total = 0
        for state in filter(private.trained, self._states):
            handle = state._handle
            if handle.uses_sharded_strategy:
                flat = handle.flat_param
                total += flat._unpadded_unsharded_size.numel() * handle._fwd_bwd_param_dtype.itemsize
                total -= flat._sharded_size.numel() * handle._orig_param_dtype.itemsize
        return total

    def self_test(self) -> None:
        fsdp1_selftest.self_test()

    def close(self) -> None:
        if self._former is not None:
            self._restore()
            self._former = None

    @staticmethod
    def _strategy(state: Any) -> str:
        name: str = state._handle._sharding_strategy.name
        return name
