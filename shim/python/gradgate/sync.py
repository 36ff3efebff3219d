"""What attach() returns: the object that a training loop talks to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from . import checkpoint, closing, division, guarded_step
from .ledger import Refused
from .micro_batches import MicroBatch
from .micro_batches import micro_batches as _micro_batches
from .micro_step import BY_COUNT, LAST, MicroStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from .job import Job
    from .window import Window


def _count(items: int) -> int:
    if isinstance(items, bool) or not isinstance(items, int) or not 0 <= items <= 2**40:
        raise ValueError(f"items={items!r}: must be a count, an int from 0 to 2**40")
    return items


class Sync:
    """One attachment. Thread class: one thread, the training loop's."""

    def __init__(self, job: Job, window: Window) -> None:
        self._job = job
        self.window = window
        self._micro_step = MicroStep(window)
        job.micro_step = self._micro_step

    # --- micro-steps -----------------------------------------------------------------------------------------------------

    def micro_step(self, *, last: bool | None = None, items: int | None = None) -> MicroStep:
        """A context around forward and backward of one micro-batch. `last`: whether it closes its window, told before the forward; by
        default the accumulate-th does. `items`: what the loss is a sum over (tokens, boxes); gradients are then divided once by the
        items of all ranks in the window. Raises Refused inside another micro-step."""
        if self.window.inside:
            raise Refused("sync.micro_step() inside a micro-step; leave the `with sync.micro_step():` block first")
        step = self._micro_step
        step.last = BY_COUNT if last is None else LAST if last else 1
        step.items = items if items is None else _count(items)
        return step

    def enter(self, last: int) -> None:
        self._micro_step.last = last
        self._micro_step.__enter__()

    def leave(self, error: BaseException | None, items: int | None) -> None:
        self._micro_step.items = items if items is None else _count(items)
        self._micro_step.__exit__(type(error) if error else None, error, None)

    def micro_batches(self, loader: Iterable[Any]) -> Iterator[MicroBatch]:
        """Yields the loader's batches as micro-steps that know their window's size; no flush is needed. Collective: all ranks iterate."""
        if not self._job.accumulate:
            raise ValueError("micro_batches needs a declared window; attach with accumulate=N instead of 'observe'")
        if self._job.options.uneven == "zeros" and not all(adapter.late_alone for adapter in self._job.adapters):
            raise ValueError(
                "uneven='zeros': this wrapper's forward is a collective, so a rank without data cannot go on; use uneven='stop'"
            )
        return _micro_batches(self, loader, self._job.accumulate, self._job.options.uneven)

    @property
    def boundary(self) -> bool:
        """Whether the window is reduced and the optimizer may step, until the next micro-step begins. False after a discarded window.
        Where windows are observed: whether there is anything to step on."""
        return self.window.at_boundary or (not self._job.accumulate and self.window.micro_steps > 0)

    def flush(self, divisor: int | None = None) -> bool:
        """Ends what is left at the end of the data, on all ranks; True if any rank brought micro-steps: then step. `divisor`: what the
        loop divided each loss by; gradients are multiplied by divisor / actual size. Where ranks may hold different numbers of
        windows, call it in a `while`. Raises Refused for a divisor that ranks cannot share."""
        if divisor is not None and (isinstance(divisor, bool) or not isinstance(divisor, int) or divisor < 1):
            raise ValueError(f"divisor={divisor!r}: must be the int that the loop divided each loss by")
        self._job.check_open("sync.flush()")
        if self.window.closed and self.window.mended_by:  # clipped or unscaled first: reduced, and waiting for its step
            division.flush_mended(self.window, divisor or 0)
            self.window.mended_by = ""
            return True
        if self.window.closed:
            self.window.publish()
        if self.window.agreement is None and self.window.micro_steps == 0:
            return False
        return self.window.conclude(divisor=divisor or 0)

    # --- what a rank may say ---------------------------------------------------------------------------------------------

    def skip(self) -> None:
        """Inside a micro-step, before its backward, which is then not run: this rank contributes nothing to it. The others are told at
        the boundary; `skipped` tells there. For a decision that all ranks share before the backward use skip_if."""
        if not self.window.inside:
            raise Refused("sync.skip() outside a micro-step; call it inside `with sync.micro_step():`, instead of the backward")
        self.window.skips += 1

    def skip_if(self, condition: bool) -> bool:
        """Votes whether to skip this micro-step: True on all ranks if any says so. A small collective: every rank calls it in every
        micro-step."""
        if not self.window.inside:
            raise Refused("sync.skip_if() outside a micro-step; call it inside `with sync.micro_step():`, before the backward")
        agreed = bool(condition)
        if self.window.agreement is not None:
            told = self.window.agreement.gather(int(agreed))
            ranks = [rank for rank, said in enumerate(told) if said]
            agreed = bool(ranks)
            if agreed:
                self.window.ledger.warn(
                    "skipped", f"window {self.window.ledger.window_index}: all ranks skip a micro-step; ranks {ranks} asked for it"
                )
        if agreed:
            self.window.skips += 1
        return agreed

    def discard(self) -> None:
        """No rank steps this window: its gradients are thrown away on all ranks, and `boundary` is False. To be called before the
        boundary's backward, by any rank; or after the boundary, by all: they see the same, reduced, gradients."""
        if not self.window.closed and not self.window.inside and self.window.micro_steps == 0:
            raise Refused("sync.discard() and no window is open: call it in a micro-step, between two of a window, or at its boundary")
        if self.window.closed:
            closing.throw_away(self.window)
        elif self.window.voted:
            raise Refused(
                "sync.discard() after the boundary's backward has begun: the ranks have agreed on this window already. Call it before that "
                "backward; or, on all ranks, after the `with sync.micro_step():` block, where gradients are reduced and alike"
            )
        else:
            self.window.discarding = True

    def mean(self, **values: Any) -> None:
        """Adds numbers or one-element tensors whose mean over the window's micro-steps and all ranks is wanted; `means` has it after the
        boundary. It rides beside the ballot, once a window. At most 16 names, the same on all ranks."""
        scalars = self.window.scalars
        self._job.always_sums = True  # the ballot may leave before the values are told
        for name, value in values.items():
            entry = scalars.setdefault(name, [0.0, 0])
            entry[0] = entry[0] + (value.detach() if hasattr(value, "detach") else float(value))
            entry[1] += 1
        if len(scalars) > division.MAX_SCALARS:
            raise ValueError(
                f"sync.mean: {len(scalars)} names in one window ({', '.join(sorted(scalars))}); at most {division.MAX_SCALARS}"
            )

    @property
    def means(self) -> dict[str, float]:
        """Of the last window that had any."""
        return self._job.means

    @property
    def skipped(self) -> int:
        """The most micro-steps that any rank skipped in the window that was closed last."""
        return self.window.skipped

    @property
    def discarded(self) -> bool:
        """Whether the window that was closed last was thrown away."""
        return self.window.discarded

    # --- the step --------------------------------------------------------------------------------------------------------

    def step(
        self,
        *,
        scaler: Any = None,
        scheduler: Any = None,
        max_norm: float | None = None,
        closure: Callable[[], Any] | None = None,
    ) -> bool:
        """The guarded order: reduce, unscale, clip, step, schedule, zero. Does nothing and returns False when no window has ended.
        Returns whether the optimizers stepped; the scheduler moves only then."""
        return guarded_step.step(self, scaler, scheduler, max_norm, closure)

    def stats(self) -> dict[str, Any]:
        """Counts of this rank since attach, the same that the daemon shows. See statistics.collect for the keys."""
        return self._job.stats()

    # --- checkpoints -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the run is; in the middle of a window also what it has accumulated, reduced: all ranks call it there, outside a
        micro-step. Its tensors are not to be changed. See checkpoint_format for the keys."""
        return checkpoint.state_dict(self._job)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on in the window that state_dict() was called in: on all ranks, with data from its next micro-step on. InvalidArgument
        names what does not fit; nothing is loaded then."""
        checkpoint.load_state_dict(self._job, state)

    def close(self) -> None:
        """Restores the wrappers and the optimizers; tells the daemon goodbye. No collective; twice is fine. Counts can
        still be read. Raises Refused inside a micro-step."""
        self._job.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
