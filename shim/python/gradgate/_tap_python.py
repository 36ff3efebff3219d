"""The tap without a compiler: the same registration on BackendSelect, from Python."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import ProcessGroup, Work

from ._tap_operators import Op, Operator, Outcome, Traffic, capturing, operators
from ._tap_state import Binding, How, Issue, Thread, bytes_of, tensors_in
from .adapters.base import Role
from .tap import Tap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .tap import LedgerLike

BACKEND_SELECT = torch._C.DispatchKey.BackendSelect
CPU = torch.device("cpu")
META = torch._C.DispatchKey.Meta
AFTER = torch._C._dispatch_keyset_full_after(BACKEND_SELECT)
OUTSTANDING = 4096
EXIT_S = 1.0
SMALL_BYTES = 65536
GRADIENT = {Op.ALL_REDUCE: (Role.DP, Role.REPLICATE), Op.REDUCE_SCATTER: (Role.SHARD,)}
WITHOUT_GLOO_FUTURE = (Op.REDUCE_SCATTER, Op.SEND, Op.RECV)


class PythonTap(Tap):
    native = False
    seeing = True
    reason = "tap_python"

    def __init__(self) -> None:
        super().__init__()
        self._bindings: dict[int, Binding] = {}
        self._active: Binding | None = None
        self._ours: set[str] = set()
        self._thread = Thread()
        self._backends: dict[tuple[int, str, str], str] = {}  # forgotten when a ledger is unbound
        self._outstanding: deque[tuple[Issue, Work]] = deque()
        self._flying: set[int] = set()  # collectives that are to call back
        self._completing = threading.RLock()  # a ledger's last completion is over before it is unbound
        found, not_understood = operators()
        self._not_understood = tuple(not_understood)
        self._library = torch.library.Library("c10d", "IMPL")
        for operator in found:
            self._library.impl(operator.name.removeprefix("c10d::"), self._kernel(operator), "BackendSelect", with_keyset=True)
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self._at_exit)

    def bind(self, ledger: LedgerLike) -> None:
        self._bindings = {**self._bindings, ledger.handle: Binding(ledger, ledger.handle)}

    def unbind(self, ledger: LedgerLike) -> None:
        binding = self._bindings.get(ledger.handle)
        if binding is not None:
            binding.roles = {}  # for whoever still holds it as the active one
        with self._completing:
            self._bindings = {h: b for h, b in self._bindings.items() if b is not binding}
        if self._active is binding:
            self._active = None
        self._callbacks.pop(ledger.handle, None)
        self._backends = {}
        for _ in range(len(self._outstanding)):  # in place: other threads may add to it
            entry = self._outstanding.popleft()
            if entry[0].binding is not binding:
                self._outstanding.append(entry)

    def role(self, ledger: LedgerLike, group_name: str, role: int) -> None:
        roles = self._bindings[ledger.handle].roles.setdefault(group_name, [])
        if role not in roles:
            roles.append(Role(role))

    def ours(self, group_name: str) -> None:
        self._ours.add(group_name)

    def active(self, ledger: LedgerLike | None) -> None:
        self._active = None if ledger is None else self._bindings.get(ledger.handle)

    def late(self, on: bool) -> None:
        self._thread.late = on

    def gradient_sizes(self, ledger: LedgerLike, sizes: Iterable[int] | None) -> None:
        self._bindings[ledger.handle].sizes = None if sizes is None else frozenset(sizes)

    def outstanding(self) -> int:
        return len(self._outstanding)

    def poll(self) -> None:
        if not self._outstanding or capturing():
            return
        for _ in range(len(self._outstanding)):
            try:
                issue, work = self._outstanding.popleft()
            except IndexError:  # unbound meanwhile
                return
            if not self._ended(issue, work):
                self._outstanding.append((issue, work))

    def steps(self, ledger: LedgerLike) -> tuple[Callable[[int], int], Callable[[], None]]:
        binding = self._bindings[ledger.handle]
        micro_step_begin, micro_step_end = ledger.micro_step_begin, ledger.micro_step_end

        def begin(last: int) -> int:
            closes = micro_step_begin(last)
            self._active = binding
            return closes

        def end() -> None:
            self._active = None
            micro_step_end()

        return begin, end

    def _arm(self, handle: int, on: bool) -> None:
        if handle in self._bindings:
            self._bindings[handle].armed = on

    def _forget(self) -> None:
        self._bindings, self._active, self._completing = {}, None, threading.RLock()
        self._callbacks.clear()
        self._outstanding.clear()
        self._flying.clear()

    # --- one collective -------------------------------------------------------------------------------------------------

    def _kernel(self, operator: Operator) -> Callable[..., Any]:
        name, _, overload = operator.name.removeprefix("c10d::").partition(".")
        redispatch = getattr(getattr(torch.ops.c10d, name), overload or "default").redispatch
        thread = self._thread

        def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._bindings or thread.inside or keys.has(META):
                return redispatch(keys & AFTER, *args, **kwargs)
            issue = self._issue(operator, args)
            thread.inside = True
            try:
                result = redispatch(keys & AFTER, *args, **kwargs)
            except BaseException:
                self._done(issue, Outcome.FAILED)
                raise
            finally:
                thread.inside = False
            self._watch(issue, result)
            return result

        return kernel

    def _issue(self, operator: Operator, args: tuple[Any, ...]) -> Issue | None:
        """Counts it; None where it cannot be."""
        try:
            group = ProcessGroup.unbox(args[operator.group])
            name = group.group_name
            tensors = tensors_in(args[operator.payload]) if operator.payload >= 0 else []
            if tensors and tensors[0].device.type == "meta":
                return None
            binding = self._binding(name)
            if binding is None:
                return None
            roles = binding.roles.get(name) or [Role.OTHER]
            role = next((r for r in roles if r in GRADIENT.get(operator.op, ())), roles[0])
            traffic = Traffic.OURS if name in self._ours else self._traffic(binding, role, operator.op, tensors)
            if traffic is Traffic.GRADIENT and binding.armed:
                binding.armed = False
                self._fire(binding.handle)
            nbytes = bytes_of(tensors[0]) if len(tensors) == 1 else sum(map(bytes_of, tensors))
            time_ns = binding.ledger.collective_issued(role, operator.op, traffic, nbytes, len(tensors))
            how = self._how(self._backend(group, name, args[0]), operator.op, traffic, nbytes)
            return Issue(binding, role, operator.op, traffic, time_ns, how)
        except Exception:
            return None

    def _binding(self, name: str) -> Binding | None:
        if self._active is not None and name in self._active.roles:
            return self._active
        bindings = self._bindings
        return next((b for b in bindings.values() if name in b.roles), next(iter(bindings.values()), None))

    def _traffic(self, binding: Binding, role: Role, op: Op, tensors: list[torch.Tensor]) -> Traffic:
        gradient = (
            role in GRADIENT.get(op, ())
            and (self._thread.late or torch._C._current_graph_task_id() >= 0)
            and bool(tensors)
            and (tensors[0].is_floating_point() or tensors[0].is_complex())
            and (binding.sizes is None or sum(t.numel() for t in tensors) in binding.sizes)
        )
        return Traffic.GRADIENT if gradient else Traffic.OTHER

    # --- completion -----------------------------------------------------------------------------------------------------

    def _done(self, issue: Issue | None, outcome: Outcome) -> None:
        if issue is not None and self._bindings.get(issue.binding.handle) is issue.binding:
            issue.binding.ledger.collective_done(issue.role, issue.op, issue.traffic, issue.time_ns, outcome)

    def _watch(self, issue: Issue | None, result: Any) -> None:
        if issue is None:
            return
        try:
            if result is None:  # monitored_barrier blocks
                self._done(issue, Outcome.OK)
                return
            boxed = result[-1] if isinstance(result, tuple | list) else result
            if boxed is None or issue.how is How.UNKNOWN:
                self._done(issue, Outcome.UNKNOWN)
                return
            work = Work.unbox(boxed)
            if issue.how is How.FUTURE:
                self._flying.add(id(issue))
                work.get_future().add_done_callback(partial(self._completed, issue))
                return
            self._outstanding.append((issue, work))
            while len(self._outstanding) > OUTSTANDING:
                self._done(self._outstanding.popleft()[0], Outcome.UNKNOWN)
        except Exception:
            self._done(issue, Outcome.UNKNOWN)

    def _how(self, backend: str, op: Op, traffic: Traffic, nbytes: int) -> How:
        if backend == "gloo":
            return How.UNKNOWN if op in WITHOUT_GLOO_FUTURE else How.FUTURE
        light = nbytes <= SMALL_BYTES or traffic is Traffic.OURS or (traffic is Traffic.GRADIENT and self._active is not None)
        return How.POLL if light and backend != "fake" else How.UNKNOWN

    def _backend(self, group: ProcessGroup, name: str, first: Any) -> str:
        while isinstance(first, list) and first:
            first = first[0]
        device = first.device if isinstance(first, torch.Tensor) else CPU
        key = (id(group), name, device.type)
        known = self._backends.get(key)
        if known is None:
            known = self._backends[key] = group._get_backend(device).name()
        return known

    def _completed(self, issue: Issue, future: Any) -> None:
        """On a thread of the backend's, as a rule."""
        try:
            future.value()
        except Exception:
            outcome = Outcome.FAILED
        else:
            outcome = Outcome.OK
        with self._completing:
            self._done(issue, outcome)
        self._flying.discard(id(issue))

    def _at_exit(self) -> None:
        """A callback that finds the interpreter ending aborts the process."""
        end = time.monotonic() + EXIT_S
        while self._flying and time.monotonic() < end:
            time.sleep(0.001)

    def _ended(self, issue: Issue, work: Work) -> bool:
        try:
            if not work.is_completed():
                return False
        except Exception:
            self._done(issue, Outcome.UNKNOWN)
            return True
        self._done(issue, Outcome.OK)
        return True
