"""What one attachment consists of, and the policy in force: modes, division, sums, parity, memory."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import sys
from typing import TYPE_CHECKING, Any

import torch

from . import auto, parity, policy, statistics
from .adapters.base import Plan, Role
from .ledger import GradgateError, Refused
from .prediction import Prediction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .adapters.base import Adapter
    from .agreement import Agreement
    from .guards import Guards
    from .ledger import Ledger, Verdict
    from .micro_step import MicroStep
    from .options import Options
    from .tap import Tap
    from .window import Window

_OPEN_PLANS = {"window": Plan.ACCUMULATE, "window_replica": Plan.SHARD, "every_micro_step": Plan.REDUCE}
ENFORCEMENTS = ("unspecified", "off", "audit", "enforce")


class Job:
    ledger: Ledger
    window: Window | None = None
    guards: Guards | None = None
    micro_step: MicroStep
    agreement: Agreement | None = None
    place: str = ""  # of this attachment among all of its ranks
    named: str = ""  # key of its name among those of this process
    models: Sequence[torch.nn.Module] = ()
    windows_before = 0  # of the runs that this one goes on with
    left_alone: bool = False  # its wrappers do as the script has it, and are counted
    uneven_seen: bool = False  # some window in which ranks differed in micro-steps, or skipped one: all ranks know
    enforcement_fixed: bool = False  # what drives the loop has been arranged for enforcing, or for not, at start

    def __init__(
        self, options: Options, adapters: list[Adapter], optimizers: list[torch.optim.Optimizer], tap: Tap, notes: list[tuple[str, str]]
    ) -> None:
        self.options = options
        self.adapters = adapters
        self.optimizers = optimizers
        self.tap = tap
        self.accumulate = options.accumulate
        self.strict = options.strict
        self.variable = options.variable
        self._held = [(a, a.parameters()) for a in adapters]
        self.parameters = list({id(p): p for _, held in self._held for p in held}.values())
        groups = [g for a in adapters for g in a.groups()]
        self.roles = sum(1 << role for role in {g.role for g in groups})
        self.always_sums = options.divide == "active"
        self.means: dict[str, float] = {}
        self.discards = 0  # of closed windows
        self.unsettled = True
        self.undo: list[Callable[[], object]] = []  # when closed
        self._notes = notes
        self._closed = False
        self._final: dict[str, Any] | None = None
        self.ladder: auto.Rungs = auto.ladder(adapters, options, self._notes)
        self.given_ladder = self.ladder  # as the options have it
        self.mode = self.ladder.mode
        self._keep = self.ladder.keep
        self._sizes_final = False
        self.prediction: Prediction | None = None

    @property
    def world(self) -> int:
        return self.agreement.world if self.agreement is not None else 1

    @property
    def rank(self) -> int:
        return self.agreement.rank if self.agreement is not None else 0

    def group_names(self) -> frozenset[str]:
        return frozenset(g.process_group.group_name for a in self.adapters for g in a.groups())

    def facts(self) -> dict[str, str]:
        """What must be equal on all ranks, beyond what the ledger compares itself."""
        # FSDP1's original parameters are views of what this rank holds of them, once they have been used.
        views = {id(p) for adapter, held in self._held if adapter.kind == "fsdp1" for p in held}
        shapes = [(() if id(p) in views else tuple(p.shape), str(p.dtype)) for p in self.parameters]
        digest = hashlib.sha256(repr(shapes).encode()).hexdigest()[:16]
        options = self.options
        return {
            "torch": torch.__version__,
            "wrappers": "+".join(a.kind for a in self.adapters),
            "parameters": f"{len(self.parameters)} ({digest})",
            "uneven": options.uneven,
            "divide": options.divide,
            "bucket_mb": str(options.bucket_mb),
            "wire": str(options.wire),
            "keep_params": str(options.keep_params),
            "parity_every": str(options.parity_every),
        }

    def settle_options(self) -> None:
        """With the ledger there: applies what has an effect, and tells what has none."""
        self.enforcement = ENFORCEMENTS[self.ledger.enforcement]
        self.started_enforcing = self.enforcement == "enforce" and not self.left_alone
        self.driven: list[Adapter] = []
        self._enforce(self.started_enforcing)
        for reason, text in self._notes:
            self.ledger.warn(reason, text)
        for adapter in self.adapters:
            given: dict[str, Any] = {"bucket_mb": self.options.bucket_mb, "wire": self.options.wire}
            for option, value in given.items():
                nothing = adapter.no_effect(option, value) if value is not None else None
                if nothing is not None:
                    self.ledger.warn(nothing.reason, nothing.text)
                    given[option] = None
            if self.driven:
                adapter.configure(keep_params=self.ladder.keep, **given)
        self._check_gloo()

    def _enforce(self, enforcing: bool) -> None:
        """Sets which wrappers are driven. Once they are they stay so, and reduce in every micro-step where nothing is enforced."""
        self.enforcing = enforcing
        alone = all(adapter.kind == "plain" for adapter in self.adapters)  # then nobody else reduces
        if enforcing or alone:
            self.driven = self.adapters
        if not enforcing:
            self.mode = "every_micro_step"
        members = [a.parameters() for a in self.driven if a.flag_read == "forward"]
        self.probes = [p for held in members for p in (*held[:2], *held[-2:])]

    def drive(self, enforcing: bool) -> None:
        """Between windows of a running job: enforces from here on, or counts alone."""
        self._enforce(enforcing)
        if self.window is not None and self.window.adapters is not self.driven:
            self.window.adapters = self.driven
            self.micro_step.drive()

    def _check_gloo(self) -> None:
        from .adapters import fsdp_gloo  # noqa: PLC0415 - torch builds differ in what they have

        sharded = [g.process_group for a in self.adapters for g in a.groups() if g.role == Role.SHARD]
        if any("gloo" in torch.distributed.get_backend(g) for g in sharded) and not fsdp_gloo.gloo_reduce_scatter_averages():
            self.ledger.warn(*fsdp_gloo.SUMS)

    def disarm(self, adapter: Adapter) -> Callable[[], None]:
        """adapter.disarm; where gradgate reduces by itself, also the end of what the backward began, still inside the micro-step."""
        if adapter.kind != "plain":
            return adapter.disarm
        tap, ledger, alone = self.tap, self.ledger, len(self.adapters) == 1

        def disarm() -> None:
            adapter.disarm()
            if adapter.reduced() is not False:
                return
            tap.late(True)
            try:
                adapter.check()
                if not alone and not adapter.reduced() and ledger.issued() > 0:
                    adapter.late()  # the other wrappers have reduced in this backward, and this one waited for them
            finally:
                tap.late(False)

        return disarm

    # --- before a micro-step ---------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        self.tap.poll()
        self.unsettled = False
        self.learn_sizes()
        if not self.enforcing:
            self.micro_step.open_plan = Plan.REDUCE
            self.unsettled = not self._sizes_final
            return
        fresh = self.window is None or not self.window.micro_steps
        if fresh and (self.mode != self.ladder.mode or self._keep != self.ladder.keep):
            self.take_rung()
        plan = _OPEN_PLANS[self.mode]
        for adapter in self.adapters:
            if adapter.overridden:
                groups = ", ".join(sorted(adapter.overridden))
                adapter.overridden.clear()
                self.ledger.warn(
                    "override", f"the flags of {groups} were changed by another hand inside a window; gradgate has set them anew"
                )
            must = adapter.must_reduce()
            if must is not None:
                self.ledger.warn(must.reason, must.text)
                self.ledger.declare_extra(Role.DP, 1)
                plan, self.unsettled = Plan.REDUCE, True
        self.micro_step.open_plan = plan
        self.unsettled |= plan is Plan.REDUCE and not self._sizes_final

    def learn_sizes(self) -> None:
        """Tells the tap what gradients look like, until that is for good."""
        if self._sizes_final:
            return
        told = [adapter.gradient_sizes() for adapter in self.adapters if adapter.groups()]
        known = [sizes for sizes, _ in told if sizes is not None]
        self._sizes_final = all(final for _, final in told)
        self.tap.gradient_sizes(self.ledger, frozenset().union(*known) if len(known) == len(told) else None)

    def sizes_changed(self) -> None:
        self._sizes_final = False

    def take_rung(self) -> None:
        """Between windows."""
        self.ledger.set_mode(self.ladder.mode)
        if not self.enforcing:
            return
        self.mode, self._keep = self.ladder.mode, self.ladder.keep
        for adapter in self.adapters:
            adapter.configure(bucket_mb=None, wire=None, keep_params=self._keep)

    def predict(self, beside: bool = False) -> None:
        """Observed windows: from here on their reduction is put into the backward that likely ends them, where that can be undone.
        `beside`: on some rank backwards ran outside the micro-steps that the loop seems to have. Nothing where nothing is enforced."""
        if not self.enforcing:
            return
        why = "" if self.tap.seeing else "collectives cannot be counted in this process"
        if beside:
            why = "the loop has more backwards than micro-steps, so which of them ends a window is not known"
        if not all(adapter.averages() for adapter in self.adapters):
            why = "a communication hook of the script's reduces, and reducing twice what outruns a prediction could change its result"
        if why:
            self.ledger.warn("unpredicted", f"every window is reduced at its step, not in its last backward: {why}")
        elif self.agreement is not None:
            self.prediction = Prediction()

    # --- at the end of a window ------------------------------------------------------------------------------------------

    def reduced(self, adapter: Adapter, in_time: bool) -> bool:
        """Whether what this wrapper holds has been reduced by its last backward."""
        groups = adapter.groups()
        if not groups:
            return True
        if not in_time and self.mode != "every_micro_step":
            return False
        told = adapter.reduced()
        if told is not None:
            return told
        return not self.tap.seeing or all(self.ledger.issued(g.role) > 0 for g in groups)

    def parity(self) -> int:
        """A hash of what all ranks should hold equal; 0 in windows that are not sampled."""
        return parity.of_replicas(self._held, self.agreement.world) if self.agreement is not None and self._sampled() else 0

    def _sampled(self) -> bool:
        every = self.options.parity_every
        return every > 0 and self.ledger.window_index % every == 0

    def differing_replicas(self) -> str:
        """Which ranks hold another shard than their replicas, in windows that are sampled. A collective where there are replicas."""
        if self.agreement is None or not self.roles & (1 << Role.REPLICATE) or not self._sampled():
            return ""
        return parity.odd_ranks(self.agreement.gather(parity.of_shards(self._held)))

    def headroom(self) -> int:
        return self.ladder.headroom_bytes(self.ledger.window_index)

    def adopt(self, verdict: Verdict) -> None:
        """Decides on the next rung, with all ranks; it is taken when the next window begins."""
        if self.enforcing:
            self.ladder.climb(self.ledger.window_index, verdict.min_headroom_bytes)

    def ended(self, verdict: Verdict) -> None:
        """The window has been published; the next has not begun."""
        self.uneven_seen |= verdict.unequal or verdict.max_skipped > 0
        if self.prediction is not None and self.prediction.ended(verdict):
            self.ledger.predict(self.prediction.micro_steps)

    def policy_news(self, adopted: bool, offered: bool) -> None:
        """The window has been published; the next has not begun."""
        if adopted:
            policy.take_up(self, self.ledger.policy())
        if offered:
            waiting = self.ledger.policy_offered()
            self.ledger.policy_answer(waiting.version, policy.vet(self, waiting))

    def at_exit(self) -> None:
        """A process that ends well without close() is not one that was lost; one that ends by an exception is."""
        if not self._closed and not hasattr(sys, "last_value"):
            with contextlib.suppress(GradgateError):
                self.ledger.close()

    def stats(self) -> dict[str, Any]:
        return statistics.collect(self) if self._final is None else dict(self._final)

    def check_open(self, what: str) -> None:
        if self._closed:
            raise Refused(f"{what} after sync.close()")

    def _refuse_begin(self, _last: int) -> int:
        self.check_open("sync.micro_step()")
        return 0

    def close(self) -> None:
        if self._closed:
            return
        if self.window is not None and self.window.inside:
            raise Refused("sync.close() inside a micro-step; leave the `with sync.micro_step():` block first")
        self._closed = True
        atexit.unregister(self.at_exit)
        if self.window is not None:
            self.window.end_of_attachment()
        if self.guards is not None:
            self.guards.close()
        for adapter in self.adapters:
            adapter.close()
        while self.undo:
            self.undo.pop()()
        self.tap.unbind(self.ledger)
        self.ledger.close()
        self._final = statistics.collect(self)
        if self.window is not None:
            self.micro_step.refuse(self._refuse_begin)
        self.ledger.destroy()
        if self.agreement is not None:
            self.agreement.close()
