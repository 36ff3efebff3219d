"""The window in progress: what its micro-steps have done, and how it ends.

    open ── boundary, step guard or flush ──► ballot ──► late reduction, if not reduced ──► closed
                                              closed ── step, or next micro-step ──► published

A rank that reduces in its backward sends the ballot just before its first gradient collective, so that it travels beside them; one
that has not reduced when its window ends sends it then and is late. Whatever is refused is refused by values that all ranks share.
Thread class: the loop's thread, but for `_first_gradient`, which runs where the backward does.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from . import closing, division, retrying
from .adapters.base import Plan, Unreduced
from .ledger import GradgateError, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from .adapters.base import Adapter, Group
    from .agreement import Agreement
    from .checkpoint_kept import Kept
    from .job import Job
    from .ledger import Ledger, Verdict


_live: list[Window] = []


class Window:
    """State of one attachment's windows. `attention`: the next micro-step has something to do before it begins."""

    job: Job
    adapters: list[Adapter]
    ledger: Ledger
    agreement: Agreement | None
    begin: Callable[[int], int]
    end: Callable[[], None]
    verdict: Verdict
    sums: list[float] | None
    attention: bool = True
    due: bool = True  # the last window is to be published, or modes to be set
    inside: bool = False  # a micro-step is open
    closing: bool = False  # and it is the boundary
    closed: bool = False  # reduced, and not yet published
    outrunnable: bool = False  # where it was predicted to end: the next micro-step goes on with it
    at_boundary: bool = False  # the last thing that happened is that a window was closed with data
    discarded: bool = False
    discarding: bool
    any_items: bool
    skipped: int = 0
    skips: int
    skips_before: int = 0  # the boundary micro-step
    probes_before: list[tuple[int, int]]
    item_steps: int  # micro-steps that told items
    scaler_decided: bool  # whether to step
    items: int = 0
    micro_steps: int = 0  # ended ones of the open window
    planned: int = 0  # micro-steps that it will have, where that is looked ahead
    kept: Kept | None = None  # what a checkpoint has reduced of it
    saves: int = 0  # of it, so far
    told_of_save: bool = False  # that one failed without this rank
    closed_size: int
    mended_by: str = ""  # what made the guard close a window early
    sent_again: Sequence[Group] = ()  # where the next micro-step would send what a failed one has sent
    leave: Callable[[], None] | None = None  # where the loop does not tell its micro-steps: ends the open one

    def __init__(self, job: Job) -> None:
        self.job = job
        self.adapters = job.driven
        self.ledger = job.ledger
        self.agreement = job.agreement
        self.begin, self.end = job.tap.steps(job.ledger)
        self._earlier_micro_steps = 0
        self.scalars: dict[str, list[Any]] = {}  # of sync.mean; those told after a ballot left without sums wait for the next
        self._beside: list[Window] = []  # attachments that reduce over the same groups
        names = job.group_names()
        for other in _live:
            if names & other.job.group_names():
                self._beside.append(other)
                other._beside.append(self)
                other.attention = True
        _live.append(self)
        self._reset()

    def _reset(self) -> None:
        self._earlier_micro_steps += self.micro_steps
        self.micro_steps = 0
        self.items = 0
        self.any_items = False
        self.item_steps = 0
        self.scaler_decided = False
        self.skips = 0
        self.discarding = False
        self.planned = self.saves = 0
        self.told_of_save = False
        if self.kept is not None:
            self.kept = None
            self.job.micro_step.begin_by(self.begin)
        self._wait_ns = 0

    @property
    def all_micro_steps(self) -> int:
        return self._earlier_micro_steps + self.micro_steps

    # --- micro-steps -----------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Before a micro-step begins, when something is to be done first: the last window is published, modes change."""
        for other in self._beside:
            if other.inside:
                raise Refused(
                    "a micro-step of another attachment is open, on the same process group, so their collectives cannot be told apart: "
                    "leave it first, or attach both models together: gradgate.attach([a, b], [optimizer_a, optimizer_b], …)"
                )
        if self.sent_again:
            retrying.await_others(self, self.sent_again)
            self.sent_again = ()
        if not self.due:
            self.attention = bool(self._beside)
            return
        if self.closed:
            if self.mended_by:
                raise Refused(
                    f"{self.mended_by} ran after micro-step {self.closed_size} of {self.job.accumulate}, and no optimizer step followed: "
                    "gradients scaled then and those that this one adds would mix. Call it at the boundary, under `if sync.boundary:`"
                )
            if self.outrunnable and not self.scaler_decided:
                self.closed = False
            else:
                self.publish()
        self.at_boundary = False
        self.job.prepare()
        self.due = self.job.unsettled
        self.attention = self.due or bool(self._beside)

    def open_boundary(self, arms: Sequence[Any]) -> None:
        self.closing = True
        self.skips_before = self.skips
        self.probes_before = closing.probes(self)
        if self.agreement is not None:
            self.job.tap.on_first_gradient(self.ledger, self._first_gradient)
        for arm in arms:
            arm(Plan.REDUCE)
        self.job.learn_sizes()  # arming may have changed them

    def _first_gradient(self) -> None:
        assert self.agreement is not None
        self.agreement.issue(closing.vote(self, contributes=True))

    def close_boundary(self) -> None:
        """The boundary's backward is over."""
        self.closing = False
        self.job.tap.on_first_gradient(self.ledger, None)
        self.job.tap.raise_error(self.ledger)
        try:
            if not self.discarding:
                for adapter in self.adapters:
                    adapter.check()
        except Unreduced as unreduced:
            self.ledger.fail(str(unreduced))
            raise
        if self.job.prediction is not None and not self.voted:
            return  # the script kept this backward from reducing
        closing.refuse_without_backward(self)
        self.conclude(in_time=True)

    def micro_step_failed(self, error: BaseException) -> None:
        """An exception left the micro-step: the window is as before it, unless collectives have been issued."""
        began = self.closing and (self.ledger.issued() > 0 or self.voted)
        self.closing = self.inside = False
        self.job.tap.on_first_gradient(self.ledger, None)
        if began:
            for adapter in self.adapters:
                adapter.disarm()
            closing.tell_failure(self, error)
        else:
            self.sent_again = retrying.sent_again(self, [adapter for adapter in self.adapters if adapter.abandon()])
            self.attention |= bool(self.sent_again)
            if self.sent_again and retrying.of_a_lost_rank(error):
                closing.name_missing(self, error)
            self.ledger.micro_step_abandon()

    # --- the end of a window ---------------------------------------------------------------------------------------------

    def conclude(self, *, in_time: bool = False, divisor: int = 0) -> bool:
        """Ends the window on all ranks. True if anybody brought data, so that a step follows."""
        began = time.perf_counter_ns()
        self.settle()
        if self.agreement is None:
            verdict = self.ledger.verdict_alone(closing.vote(self, contributes=True, divisor=divisor))
        else:
            if not self.agreement.issued:
                closing.prepare_to_be_late(self, in_time)
                self.agreement.issue(closing.vote(self, contributes=False, divisor=divisor))
            try:
                verdict = self.agreement.read()
            except GradgateError as error:
                if not in_time and self.job.mode == "every_micro_step":
                    error.add_note(closing.UNEVEN)
                self.ledger.window_close(stepped=False, failed=True)
                raise
        kept = self.kept
        brought = verdict.max_micro_steps > 0 or kept is not None
        idle = brought and verdict.min_skipped >= verdict.max_micro_steps and not (kept is not None and kept.gradients)
        self.discarded = verdict.any_discard or idle  # nobody has anything
        division.refuse_unknown_shares(self, verdict)
        if verdict.max_micro_steps > 0:
            division.scale_own(self.job, self, verdict, divisor)
            closing.reduce_the_rest(self, verdict, in_time)
        sums = division.sums(self.job, self) if verdict.any_sums else None
        closing.tell_differences(self, verdict)
        self.skipped = verdict.max_skipped + (kept.unseen_skips if kept is not None else 0)
        if self.discarded:
            closing.drop(self)
        elif brought:
            division.scale(self, verdict, sums, divisor)
        if not brought:  # what nobody brought data to is no window
            self._reset()
            return False
        self.verdict = verdict
        self.sums = sums
        self.closed_size = self.micro_steps
        self._wait_ns += time.perf_counter_ns() - began
        self.closed = self.attention = self.due = True
        self.outrunnable = in_time and self.job.prediction is not None
        self.at_boundary = not self.discarded
        self.job.adopt(verdict)
        if self.discarded:
            self.publish()
        return self.at_boundary

    def publish(self, *, stepped: bool = False) -> None:
        """Hands the closed window to the ledger."""
        verdict = self.verdict
        if not (stepped or self.discarded or self.scaler_decided) and self.job.optimizers:
            self.ledger.warn("unstepped", f"window {self.ledger.window_index} was reduced, and no optimizer stepped on it")
        closed = self.ledger.window_close(
            stepped=stepped,
            discarded=self.discarded,
            min_micro_steps=verdict.min_micro_steps,
            max_micro_steps=verdict.max_micro_steps,
            active_ranks=int(self.sums[1]) if self.sums else 0,
            disagreed=verdict.unequal and not self.job.variable,
            skipped=self.skips,
            items=self.items,
            global_items=int(self.sums[0]) if self.sums else self.items,
            wait_ns=self._wait_ns,
        )
        self.closed = False
        self.mended_by = ""
        self._reset()
        self.job.ended(verdict)
        if closed.policy_adopted or closed.policy_offered:
            self.job.policy_news(bool(closed.policy_adopted), bool(closed.policy_offered))

    # --- around the step -------------------------------------------------------------------------------------------------

    def end_of_attachment(self) -> None:
        _live.remove(self)
        for other in _live:
            if self in other._beside:
                other._beside.remove(self)

    @property
    def voted(self) -> bool:
        """This window's ballot has left, with the first gradient of its boundary."""
        return self.agreement is not None and self.agreement.issued

    def settle(self) -> None:
        """Outside a micro-step: what was kept unsharded is resharded."""
        if self.leave is not None:
            self.leave()
        if not self.inside:
            for adapter in self.adapters:
                adapter.settle()

    def require_reduced(self, what: str) -> None:
        """Before anything that reads gradients as reduced: ends an open window, late. `what` is for messages."""
        if self.leave is not None:
            self.leave()
        if self.inside:
            raise Refused(f"{what} inside a micro-step: its gradients are not complete. Leave the `with sync.micro_step()` block first")
        if self.closed or self.micro_steps == 0:
            return
        self.conclude()
        if what != "optimizer.step":
            self.mended_by = what if self.job.accumulate and self.closed_size < self.job.accumulate else ""

    def zeroed(self, parameters: Callable[[], list[torch.Tensor]] | None = None) -> None:
        """Gradients were thrown away by the loop, of all parameters or of these; in the middle of a window the deferred ones go as well."""
        if self.micro_steps and not self.closed and (not self.inside or self.leave is not None):
            gone = parameters() if parameters is not None else list(self.job.parameters)
            ids = {id(p) for p in gone}
            for adapter in self.adapters:
                if not ids.isdisjoint(map(id, adapter.parameters())):
                    adapter.discard()
            if self.kept is not None and not self.kept.untouched(self):
                self.kept.drop(gone)
        if self.closed and self.outrunnable and all(p.grad is None for p in self.job.parameters):
            self.publish()  # nothing is left for another micro-step to add to

    def stepping(self) -> None:
        """The optimizer steps now."""
        self.require_reduced("optimizer.step")
        if self.closed:
            self.publish(stepped=True)
