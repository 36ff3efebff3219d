"""DistributedDataParallel: one flag, read in the forward, and a reducer that can be made to reduce late."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable
from typing import Any

import torch

from . import ddp_late, ddp_options, ddp_state
from .base import Adapter, Group, NoEffect, Role, Unreduced
from .comm_hooks import Registering, Wire, reduce_in_wire_type, wire_type
from .flag import switch

_REMEDY = "Wrap with find_unused_parameters=True, or use them in every micro-step, or freeze them before wrapping"
_UNMARKED = re.compile(r"indices which did not receive grad for rank \d+:((?: *\d+)+)")


# A hook stays with its reducer for good; the next attachment finds it.
_wires: weakref.WeakKeyDictionary[torch.nn.Module, Wire] = weakref.WeakKeyDictionary()


class Ddp(Adapter):
    """Several backwards in a boundary micro-step: each that has a forward of its own before it reduces, as in plain DDP; of several
    backwards after one forward, only the first does, and what the others add is not reduced."""

    kind = "ddp"
    flag_read = "forward"
    late_alone = True

    def __init__(self, ddp: torch.nn.Module) -> None:
        self.module = ddp
        self._set_flag(ddp.__dict__, "require_backward_grad_sync", True)
        self._stats: list[int] = []
        self._just_bootstrapped = False
        self._fires: ddp_state.Fires | None = None
        self._earlier: ddp_state.Earlier | None = None
        self._wire: Wire | None = _wires.get(ddp)
        self._buckets: int | None = None
        self._wrapped_bytes: int | None = None
        self._members: list[torch.nn.Parameter] | None = None

    def _set_flag(self, flags: dict[str, Any], name: str, reducing: bool) -> None:
        self.arm, self.disarm = switch(flags, name, reducing, self._about_to_reduce)  # type: ignore[method-assign]

    @property
    def _ddp(self) -> Any:
        """The wrapper, or None while it is not built yet."""
        return self.module

    def _reducing_ddp(self) -> Any:
        """The wrapper, or None where there is no reducer to ask."""
        return self._ddp if self._ddp is not None and ddp_state.has_reducer(self._ddp) else None

    # --- what it is ------------------------------------------------------------------------------------------------------

    def groups(self) -> list[Group]:
        return [Group(self._ddp.process_group, Role.DP)]

    def parameters(self) -> list[torch.nn.Parameter]:
        if self._members is None:
            members = ddp_state.reduced_parameters(self._ddp)
            if self._reducing_ddp() is None:
                return members
            self._members = members  # the reducer's for good; asking it takes its lock
        return list(self._members)

    def covered(self) -> list[torch.nn.Parameter]:
        """Not what was frozen when it was wrapped."""
        return self.parameters() + self.ignored()

    def ignored(self) -> list[torch.nn.Parameter]:
        names = getattr(self._ddp, "parameters_to_ignore", None) or ()
        return [p for name, p in self._ddp.module.named_parameters() if name in names] if names else []

    def names(self) -> dict[int, str]:
        """By id of the parameter."""
        return {id(p): name for name, p in self.module.named_parameters()}

    def no_effect(self, option: str, value: object) -> NoEffect | None:
        return ddp_options.no_effect(self.kind, self.module, self._ddp, self._user_hook(), option, value)

    def configure(self, *, bucket_mb: float | None, wire: str | None, keep_params: bool) -> None:
        if bucket_mb is not None:
            self._set_bucket_bytes(ddp_options.bucket_bytes(bucket_mb))
            self._buckets = None
        chosen = wire_type(wire)
        if chosen is None:
            return
        if self._wire is None:
            self._wire = Wire(None, None)
            self._register_hook(self._wire)
            _wires[self.module] = self._wire
        self._wire.wire = chosen

    def cannot_recast(self) -> NoEffect | None:
        ddp = self._reducing_ddp()
        if ddp is None:
            return super().cannot_recast()
        if ddp.static_graph:  # what it has learned in its first micro-step would be lost
            return NoEffect("static_graph", f"{self.kind}: the buckets of a static graph are fixed with its first reduction")
        return None

    def recast(self, bucket_mb: float | None, wire: str | None) -> bool:
        ddp = self._reducing_ddp()
        present = int(ddp.bucket_bytes_cap)
        if self._wrapped_bytes is None:
            self._wrapped_bytes = present
        wanted = self._wrapped_bytes if bucket_mb is None else ddp_options.bucket_bytes(bucket_mb)
        fixed = self.cannot_recast() is not None
        dropping = wire is None and self._wire is not None and self._wire.given is None
        if dropping and not fixed:
            self._drop_hook()
        change = (wanted != present or dropping) and not fixed
        self.configure(bucket_mb=wanted / 2**20 if change else None, wire=wire, keep_params=False)
        if self._wire is not None and wire is None:
            self._wire.wire = None
        return change

    def _set_bucket_bytes(self, size: int) -> None:
        ddp_state.rebuild_reducer(self._ddp, size, self.parameters())

    def _register_hook(self, state: Wire) -> None:
        state.process_group = self._ddp.process_group
        self._ddp.register_comm_hook(state, reduce_in_wire_type)
        self._ddp.__dict__["register_comm_hook"] = Registering(self._ddp, state)

    def _drop_hook(self) -> None:
        """The next reducer has none."""
        self._ddp._comm_hooks = [held for held in self._ddp._comm_hooks if held[1] is not self._wire]
        self._ddp.logger._set_comm_hook_name("")
        self._ddp.__dict__.pop("register_comm_hook", None)
        self._wire = None
        _wires.pop(self.module, None)

    def _user_hook(self) -> str:
        return "" if self._wire is not None and self._wire.given is None else ddp_state.hook_name(self._ddp)

    def averages(self) -> bool:
        return not self._user_hook()

    def expected(self) -> dict[tuple[Role, str], int] | None:
        """The map of used parameters counts: it is one more all-reduce of the backward."""
        ddp = self._reducing_ddp()
        if ddp is None:
            return None
        buckets = self._buckets or len(ddp_state.bucket_bytes(ddp)) or None
        if ddp._has_rebuilt_buckets or not ddp_state.rebuilds(ddp):
            self._buckets = buckets
        used_map = ddp_state.finds_unused(ddp) or self.must_reduce() is not None
        return None if buckets is None else {(Role.DP, "all_reduce"): buckets + used_map}

    def gradient_sizes(self) -> tuple[frozenset[int] | None, bool]:
        ddp = self._reducing_ddp()
        return (None, False) if ddp is None else ddp_state.gradient_sizes(ddp, self.parameters())

    # --- a micro-step ----------------------------------------------------------------------------------------------------

    def must_reduce(self) -> NoEffect | None:
        ddp = self._ddp
        if ddp is None or not ddp.static_graph or ddp._static_graph_delay_allreduce_enqueued:
            return None
        text = f"{self.kind}: the first micro-step of a static graph reduces, whatever the policy: DDP learns the graph in it"
        return NoEffect("static_graph_first_reduction", text)

    def _about_to_reduce(self) -> Callable[[], None] | None:
        self._just_bootstrapped = False
        ddp = self._reducing_ddp()
        if ddp is None:
            return None
        self._stats = ddp.reducer.get_backward_stats()
        if self.must_reduce() is not None:
            self._fires = ddp_state.Fires(self.parameters())
            return self._bootstrapped
        if ddp.static_graph and self._fires is None:  # attached since its first reduction: every backward is alike
            self._fires = ddp_state.Fires(self.parameters())
            return self._fires.stop
        return None

    def _bootstrapped(self) -> None:
        """A static graph's first reduction is over, or failed. What a user's hook made of it must not run through it again."""
        if self._fires is not None:
            self._fires.stop()
        self._just_bootstrapped = self.must_reduce() is None
        if self._just_bootstrapped and self._user_hook():
            self._earlier = ddp_state.Earlier(self.parameters())

    def keep_forward(self) -> None:
        """Buffers come from the first rank before each forward but those after one that does not reduce."""
        if self._ddp is not None:
            self._ddp.require_forward_param_sync = True

    def suppressed(self) -> bool:
        return not getattr(self._ddp, "require_backward_grad_sync", True)

    def reduced(self) -> bool | None:
        ddp = self._reducing_ddp()
        if ddp is None or self._just_bootstrapped:
            return None if ddp is None else True
        # When each gradient was ready in the last reducing backward, in ns: the same only if there was none.
        return bool(ddp.reducer.get_backward_stats() != self._stats)

    def check(self) -> None:
        ddp = self._reducing_ddp()
        if ddp is None:
            return
        try:
            ddp.reducer._check_reducer_finalized()
        except RuntimeError as error:
            raise self._unfinished(str(error)) from None
        if self._earlier is not None and self.reduced():
            self._add_earlier()

    def _unfinished(self, message: str) -> Unreduced:
        """The reducer waits for parameters that the boundary's backward did not reach."""
        parameters, found = self.parameters(), _UNMARKED.search(message)
        indices = [int(i) for i in found[1].split()] if found else []
        names = self._named([parameters[i] for i in indices if i < len(parameters)]) or "parameters that torch does not name"
        return Unreduced(
            f"{self.kind}: no gradient for {names} in the boundary micro-step's backward, so the reduction never finished and "
            f"gradients differ between ranks. {_REMEDY}"
        )

    def _named(self, parameters: list[torch.nn.Parameter]) -> str:
        names = self.names()
        shown = [names.get(id(p), f"a parameter of shape {tuple(p.shape)}") for p in parameters[:8]]
        return ", ".join(shown) + (f" and {len(parameters) - 8} more" if len(parameters) > 8 else "")

    # --- after the fact --------------------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        ddp = self._reducing_ddp()
        if ddp is not None and ddp.reducer._rebuild_buckets():  # a broadcast, in the first forward after the first reduction
            ddp._has_rebuilt_buckets = True

    def check_late(self) -> None:
        ddp = self._ready_for_late()
        if not ddp.static_graph and not ddp_state.finds_unused(ddp):
            self._refuse_unused(self.parameters())

    def late(self) -> None:
        ddp = self._ready_for_late()
        parameters = self.parameters()
        finds_unused, fires = ddp_state.finds_unused(ddp), None
        if ddp.static_graph:
            assert self._fires is not None
            fires = self._fires.counts
        elif not finds_unused:
            self._refuse_unused(parameters)
        if finds_unused:
            ddp.reducer._reset_state()  # its map may hold what a zero_grad has thrown away since; gradients tell what is used
        ddp_state.fill_sparse(ddp, parameters)
        self.catch_up()
        try:
            ddp_late.reduce_late(ddp.reducer, parameters, find_unused=finds_unused, fires=fires)
        except RuntimeError as error:
            raise Unreduced(f"{self.kind}: the late reduction failed: {error}") from error
        ddp.require_forward_param_sync = True  # the peers' next forward broadcasts buffers
        if self._earlier is not None:
            self._add_earlier()

    def _ready_for_late(self) -> Any:
        ddp = self._ddp
        if ddp is None:
            raise Unreduced(f"{self.kind}: no forward has run yet, and the wrapper is not built; give every rank a first micro-step")
        why = ddp_options.never_late(ddp)
        if why is not None:
            raise Unreduced(f"{self.kind}: gradients are not reduced, and cannot be now: {why.text}")
        if self.must_reduce() is not None:
            raise Unreduced(f"{self.kind}: a static graph cannot reduce late before its first micro-step; give every rank one")
        if ddp.static_graph and self._fires is None:
            raise Unreduced(
                f"{self.kind}: a static graph that had its first reduction before gradgate.attach cannot reduce late until a "
                "micro-step has reduced in time; attach before its first forward"
            )
        return ddp

    def _refuse_unused(self, parameters: list[torch.nn.Parameter]) -> None:
        """Without the map of used parameters None would become zero on all ranks, which weight decay then moves."""
        without = [p for p in parameters if p.grad is None]
        if without and len(without) < len(parameters):
            raise Unreduced(
                f"{self.kind}: no gradient for {self._named(without)} in this window, which DDP does not allow without "
                f"find_unused_parameters=True. {_REMEDY}"
            )

    def _add_earlier(self) -> None:
        assert self._earlier is not None
        self._earlier.add()
        self._earlier = None

    def pending(self) -> bool:
        return self._earlier is not None

    def discard(self) -> None:
        self._earlier = None
        ddp = self._reducing_ddp()
        if ddp is not None and ddp_state.finds_unused(ddp):
            ddp.reducer._reset_state()  # its map of parameters used since the last reduction

    def self_test(self) -> None:
        ddp_late.self_test()

    def close(self) -> None:
        self.disarm()
        if self._fires is not None:
            self._fires.stop()
        if self._wire is not None:
            self._wire.wire = None
