"""FSDP2 (fully_shard on one- and two-dimensional meshes) and replicate() on top of it. Its flags are read when each group's backward
ends; they are written on a cached list of parameter groups, as the public setters walk all modules."""

from __future__ import annotations

import torch

from . import fsdp2_selftest, fsdp2_state
from .base import Adapter, Group, NoEffect, Plan, Role, Unreduced
from .fsdp2_keep import Keep
from .fsdp2_late import Agree, reduce_late
from .fsdp2_partial import Partials

REDUCE = Plan.REDUCE  # looked up in an enumeration it costs as much as all of arm()

# What (reduce_grads, all_reduce_grads) mean a plan.
FLAGS = {Plan.ACCUMULATE: (False, False), Plan.SHARD: (True, False), Plan.REDUCE: (True, True)}

NO_EFFECT = {
    "bucket_mb": NoEffect("bucket_fsdp2", "FSDP2 reduces per parameter group; fully_shard() on other modules changes their sizes"),
    "wire": NoEffect("wire_fsdp2", "FSDP2 reduces in MixedPrecisionPolicy.reduce_dtype; set it there"),
    "no_replicas": NoEffect(
        "no_replica_dimension", "one-dimensional FSDP has no all-reduce to defer: use mode='window', or a two-dimensional mesh"
    ),
    "no_shards": NoEffect(
        "shards_nothing",
        "the shard dimension has one rank, so parameters are replicated and window_replica holds and sends what window does; give "
        "fully_shard a mesh whose last dimension is the shard dimension",
    ),
    "replicate": NoEffect("no_shard_dimension", "replicate() shards nothing, so window_replica holds and sends what window does"),
    "keep": NoEffect("keep_params_unsharded", "parameters are not sharded here: there is no all-gather to save"),
    "windows": NoEffect("variable_fsdp", "ranks of a shard group gather parameters together in every micro-step: use windows='equal'"),
}


def find(model: torch.nn.Module) -> list[Adapter]:
    found = [root for root in fsdp2_state.roots(model) if any(map(fsdp2_state.groups_of, fsdp2_state.states_of(root)))]
    return [Fsdp2(root) for root in found]


class Fsdp2(Adapter):
    """One root. `agree`, where set, lets late() take in ranks that hold gradients of other parameters, or none."""

    kind = "fsdp2"
    flag_read = "backward"
    late_alone = False
    agree: Agree | None = None

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.kind = "replicate" if fsdp2_state.is_replicate(module) else "fsdp2"
        self.overridden: set[str] = set()  # groups whose flags others changed while ours were in force; for the caller to clear
        states = fsdp2_state.states_of(module)
        self._root = states[0]
        self._groups = [g for state in states for g in fsdp2_state.groups_of(state)]
        self._first = self._groups[0]
        for group in self._groups:  # after an evaluation the root's own are not, and the module would show others
            fsdp2_state.reshard(group)
        self._probes = [trained[0] for g in self._groups if (trained := fsdp2_state.trainable(g))]
        self._partials = Partials(self._groups)
        self._keep: Keep | None = None
        self._can_keep = Keep(self._root, states)
        owner = {id(p.sharded_param): p for g in self._groups for p in g.fsdp_params}
        ordered = [(name, owner.pop(id(q))) for name, q in module.named_parameters() if id(q) in owner]
        self._parameters = ordered + [(p._param_fqn or "?", p) for p in owner.values()]
        self._former: list[tuple[bool, bool]] | None = None
        self._own_flags = False  # the user had switched some off before
        self._plan: Plan | None = None
        self._reduce = self._all_reduce = True

    def groups(self) -> list[Group]:
        outer = Role.DP if self.kind == "replicate" else Role.REPLICATE
        found: dict[int, Group] = {}
        for group in self._groups:
            shard, replicas = fsdp2_state.shard_group(group), fsdp2_state.replicate_group(group)
            if replicas is not None:
                found.setdefault(id(replicas), Group(replicas, outer))
            if shard is not None and (replicas is None or shard.size() > 1):  # one shard beside replicas: nothing is reduced in it
                found.setdefault(id(shard), Group(shard, Role.SHARD))
        return list(found.values())

    def parameters(self) -> list[torch.nn.Parameter]:
        return [p.sharded_param for _, p in self._parameters if p.sharded_param.requires_grad]

    def no_effect(self, option: str, value: object) -> NoEffect | None:
        if option == "mode" and value == "window_replica":
            if all(fsdp2_state.replicate_group(g) is None for g in self._groups):
                return NO_EFFECT["no_replicas"]
            if not self._can_keep:
                return NO_EFFECT["replicate" if self.kind == "replicate" else "no_shards"]
        if option == "keep_params" and value and not self._can_keep:
            return NO_EFFECT["keep"]
        if (option in ("bucket_mb", "wire") and value is not None) or (option == "windows" and value == "variable"):
            return NO_EFFECT[option]
        return None

    def configure(self, *, bucket_mb: float | None, wire: str | None, keep_params: bool) -> None:
        if self._keep is not None:
            self._keep.release()
        self._keep = self._can_keep if keep_params and self._can_keep else None
        self._plan = None  # the next arm writes all anew

    def arm(self, plan: Plan) -> None:
        first = self._first
        if plan is not self._plan or first.reduce_grads is not self._reduce or first.all_reduce_grads is not self._all_reduce:
            self._write(plan)
        if plan is REDUCE:
            self._partials.reductions = 0

    def _write(self, plan: Plan) -> None:
        if self._former is None:
            self._former = [(g.reduce_grads, g.all_reduce_grads) for g in self._groups]
            self._own_flags = any(former != (True, True) for former in self._former)
            self._partials.watch()
        if self._plan is not None:
            expected = (self._reduce, self._all_reduce)
            changed = [g for g in self._groups if (g.reduce_grads, g.all_reduce_grads) != expected]
            self.overridden.update(g._module_fqn or "the root" for g in changed)
        self._reduce, self._all_reduce = FLAGS[plan]
        for group in self._groups:
            group.reduce_grads, group.all_reduce_grads = self._reduce, self._all_reduce
        if self._keep is not None:
            self._keep.hold(last=plan is REDUCE)
        self._plan = plan

    def disarm(self) -> None:
        if fsdp2_state.unfinished(self._root):  # by an exception
            fsdp2_state.recover(self._root, self._groups)
        if self._plan is REDUCE and (self._keep is not None or self._own_flags):
            self._restore()

    def abandon(self) -> bool:
        """What is kept stays as it is, gathered or on its way: each rank gathers it once in a window."""
        if self._keep is None:
            self.disarm()
            return True
        if fsdp2_state.unfinished(self._root) or fsdp2_state.without_backward(self._root):
            fsdp2_state.recover(self._root, self._groups, self._keep.held())
        self._restore_flags()
        return False

    def _restore(self) -> None:
        self._restore_flags()
        if self._keep is not None:
            self._keep.release()

    def _restore_flags(self) -> None:
        for group, former in zip(self._groups, self._former or (), strict=False):
            group.reduce_grads, group.all_reduce_grads = former
        self._plan = None

    def late(self) -> None:
        self._write(REDUCE)
        self._partials.reductions = 0
        try:
            reduce_late(self._root, self._groups, self._partials, self.agree)
            if self.pending():
                self._refuse()
        finally:
            self.disarm()

    def suppressed(self) -> bool:
        if self._plan is None or self._reduce or self._former is None:
            return not self._first.reduce_grads
        return not self._former[0][0]  # what is off now is so by the plan in force

    def reduced(self) -> bool:
        """A root reduces all of its groups that the window used, or, if the loss did not depend on it, none: late() then can."""
        return self._partials.reductions > 0 or not self._probes

    def check(self) -> None:
        """Looks at each group's partial sum and first parameter."""
        if self.reduced() and (
            any(g._partial_reduce_output is not None for g in self._groups) or any(map(fsdp2_state.holds, self._probes))
        ):
            self._refuse()

    def _refuse(self) -> None:
        partial = {id(p) for group in self._groups for p in self._partials.layout(group)}
        left = [name for name, p in self._parameters if id(p) in partial or fsdp2_state.holds(p)]
        names = ", ".join(left[:8]) + (" …" if len(left) > 8 else "")
        raise Unreduced(f"FSDP2 of torch {torch.__version__} has left the gradients of {names} unreduced; use another mode or torch")

    def settle(self) -> None:
        if self._keep is not None:
            self._keep.release()
            self._plan = None

    def discard(self) -> None:
        for group in self._groups:
            fsdp2_state.drop(group)

    def pending(self) -> bool:
        return any(g._partial_reduce_output is not None or any(map(fsdp2_state.holds, g.fsdp_params)) for g in self._groups)

    def expected(self) -> dict[tuple[Role, str], int]:
        counts: dict[tuple[Role, str], int] = {}
        for group in filter(fsdp2_state.trainable, self._groups):
            shard, outer = fsdp2_state.shard_group(group), fsdp2_state.replicate_group(group)
            if shard is not None and shard.size() > 1:
                counts[Role.SHARD, "reduce_scatter"] = counts.get((Role.SHARD, "reduce_scatter"), 0) + 1
            if outer is not None:
                key = (Role.DP if self.kind == "replicate" else Role.REPLICATE, "all_reduce")
                counts[key] = counts.get(key, 0) + 1
        return counts

    def deferred_bytes(self) -> int:
        total = 0
        for group in self._groups:
            policy = group.mp_policy
            for p in fsdp2_state.trainable(group):
                held = policy.reduce_dtype or policy.param_dtype or p.sharded_param.dtype
                total += p._orig_size.numel() * held.itemsize - p.sharded_size.numel() * p.sharded_param.dtype.itemsize
        return total

    def unsharded_bytes(self) -> int:
        return self._can_keep.unsharded_bytes()

    def self_test(self) -> None:
        fsdp2_selftest.self_test()

    def close(self) -> None:
        if self._former is not None:
            self._restore()
            self._partials.unwatch()
            self._former = None
