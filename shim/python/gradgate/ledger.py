"""A rank's ledger in Python: gradgate.h's, with statuses as exceptions.

The hot calls, `micro_step_begin` and `micro_step_end`, are closures over addresses that were made once. Thread class: the loop's
thread; `vote` also where the backward runs. No torch.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from . import _abi
from .ballot import Verdict, Vote, fill, read
from .counts import MODES, OPERATIONS, Counts
from .errors import DeadlineExceeded, Disagreement, GradgateError, InvalidArgument, Refused, Unavailable
from .rendezvous import StoreBridge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .rendezvous import StoreLike

__all__ = [
    "OPERATIONS",
    "DeadlineExceeded",
    "Disagreement",
    "GradgateError",
    "InvalidArgument",
    "Ledger",
    "Refused",
    "Unavailable",
    "Verdict",
    "Vote",
]

_TEXT_BYTES = 4096
SHARED_REASONS = frozenset(
    {
        *("ranks_disagree", "ranks_skipped", "skipped", "parity", "means_differ", "stray_parameters", "double_reduction"),
        *("static_graph_first_reduction", "no_replica_dimension", "shards_nothing", "no_shard_dimension", "window_replica_fsdp1"),
        *("keep_params_unsharded", "keep_params_fsdp1", "no_sharded_parameters", "bucket_after_first_forward", "bucket_fsdp1"),
        *("bucket_fsdp2", "no_buckets", "wire_user_hook", "wire_fsdp1", "wire_fsdp2", "ddp_mixed_precision"),
        *("optimizer_in_backward", "steps_before_reduction", "pipeline_schedule", "local_sgd", "python_process_group"),
        "reduces_in_step",
        *("zero_partitions_gradients", "deepspeed_window", "deepspeed_reduces_once", "deepspeed_counted", "deepspeed_overwrites"),
        *("bucket_deepspeed", "wire_deepspeed", "keep_params_deepspeed"),
        "gloo_reduce_scatter_sums",
    }
)
_log = logging.getLogger("gradgate")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


class Ledger(Counts):
    """Created on all ranks together: shakes hands through `store`, within `handshake_deadline_s`. `handle` is the gg_ledger's address,
    for the tap; it stays valid until destroy(). `told`: the first warning of each reason."""

    def __init__(
        self,
        *,
        accumulate: int,
        mode: str = "window",
        variable: bool = False,
        strict: bool = False,
        rank: int = 0,
        world_size: int = 1,
        local_rank: int = -1,
        roles: int = 0,
        store: StoreLike | None = None,
        job_name: str | None = None,
        daemon_dir: str | None = None,
        facts: Mapping[str, str] | None = None,
        scope: str = "",
        deadline_s: float = 300.0,
        handshake_deadline_s: float = 60.0,
    ) -> None:
        super().__init__()
        self.world_size = world_size
        self._rank = rank
        self.told: dict[str, str] = {}
        self._store = StoreBridge(store) if store is not None else None
        self._on_log = _abi.Log(self._told)
        options = _abi.LedgerOptions(
            accumulate=accumulate,
            mode=MODES[mode],
            windows=int(variable),
            strict=int(strict),
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            roles=roles,
            store=self._store.handle if self._store is not None else None,
            job_name=_bytes(job_name),
            daemon_dir=_bytes(daemon_dir),
            facts="".join(f"{name}={value}\n" for name, value in (facts or {}).items()).encode(),
            scope=scope.encode(),
            deadline_ns=int(deadline_s * 1e9),
            handshake_deadline_ns=int(handshake_deadline_s * 1e9),
            log=self._on_log,
        )
        out = _abi.Pointer()
        status = self._c.gg_ledger_create(options, out, self._error_at)
        if self._store is not None:
            self._store.reraise()
        self._check(status)
        self.handle = out.value or 0
        self.enforcement: int = self._c.gg_ledger_enforcement(self.handle)  # _abi.ENFORCEMENT_…
        self.micro_step_begin, self.micro_step_end = self._hot_calls()
        self._text = _abi.create_string_buffer(_TEXT_BYTES)
        self._vote = _abi.Vote()
        self._count = _abi.Number()
        self._check(self._c.gg_ledger_vote(self.handle, None, None, 0, _abi.addressof(self._count), self._error_at))
        # Reduced in place, by MAX over all ranks, between vote() and verdict().
        self.ballot_words = _abi.words(self._count.value)
        self.row_words = self._count.value // 2
        self._row: list[int] = [0] * self.row_words

    def _hot_calls(self) -> tuple[Callable[..., int], Callable[[], None]]:
        begin, end = self._c.gg_ledger_micro_step_begin, self._c.gg_ledger_micro_step_end
        handle, error_at, check = self.handle, self._error_at, self._check
        closes = _abi.Number()
        closes_at = _abi.addressof(closes)

        def micro_step_begin(last: int = _abi.LAST_BY_COUNT) -> int:
            """1 if this micro-step closes its window."""
            status = begin(handle, last, closes_at, error_at)
            if status:
                check(status)
            return closes.value

        def micro_step_end() -> None:
            status = end(handle, error_at)
            if status:
                check(status)

        return micro_step_begin, micro_step_end

    def _told(self, _user: object, _severity: int, reason: bytes, message: bytes) -> None:
        code, text = reason.decode(), message.decode(errors="replace")
        self.told[code] = text
        # What all ranks are told alike is printed by the first.
        level = logging.DEBUG if self._rank and code in SHARED_REASONS else logging.WARNING
        _log.log(level, "gradgate [%s], rank %d: %s", code, self._rank, text, extra={"reason": code})

    def set_mode(self, mode: str) -> None:
        self._check(self._c.gg_ledger_set_mode(self.handle, MODES[mode], self._error_at))

    def policy(self) -> _abi.Policy:
        """The one in force; version 0: none was adopted."""
        out = _abi.Policy()
        self._check(self._c.gg_ledger_policy_get(self.handle, out, self._error_at))
        return out

    def policy_offered(self) -> _abi.Policy:
        """What waits for policy_answer; version 0: nothing."""
        out = _abi.Policy()
        self._check(self._c.gg_ledger_policy_offered(self.handle, out, self._error_at))
        return out

    def policy_answer(self, version: int, rejection: int) -> None:
        """REJECTION_NONE: this rank votes for it from the next ballot on."""
        self._check(self._c.gg_ledger_policy_answer(self.handle, version, rejection, self._error_at))

    def predict(self, micro_steps: int) -> None:
        """The next window will likely have as many; 0: not known. See gg_ledger_predict."""
        self._check(self._c.gg_ledger_predict(self.handle, micro_steps, self._error_at))

    def micro_step_abandon(self) -> None:
        self._check(self._c.gg_ledger_micro_step_abandon(self.handle, self._error_at))

    # --- the ballot ------------------------------------------------------------------------------------------------------

    def vote(self, vote: Vote) -> None:
        """Writes this rank's ballot into ballot_words, to be reduced by MAX."""
        c, words = self._vote, self.ballot_words
        fill(c, vote)
        words_at, count_at = _abi.addressof(words), _abi.addressof(self._count)
        self._check(self._c.gg_ledger_vote(self.handle, c, words_at, len(words), count_at, self._error_at))
        self._row = words[: self.row_words]

    def ballot_row(self) -> list[int]:
        """This rank's part of describe()'s rows: what it voted last."""
        return list(self._row)

    def verdict(self) -> Verdict:
        """What ballot_words say, once reduced."""
        out, words = _abi.Verdict(), self.ballot_words
        self._check(self._c.gg_ledger_verdict(self.handle, _abi.addressof(words), len(words), out, self._error_at))
        return read(out)

    def verdict_alone(self, vote: Vote) -> Verdict:
        """In a world of one."""
        self.vote(vote)
        return self.verdict()

    def describe(self, rows: Sequence[int]) -> str:
        """Who differs in what, of all ranks' rows, rank after rank; empty if nobody does."""
        array = _abi.words(len(rows), rows)
        at = _abi.addressof(array)
        self._check(self._c.gg_ledger_describe(self.handle, at, len(rows), _abi.addressof(self._text), _TEXT_BYTES, self._error_at))
        return self._text.value.decode(errors="replace")

    def arrived(self) -> None:
        """This rank has waited a while: tells the others where."""
        self._check(self._c.gg_ledger_arrived(self.handle, self._error_at))

    def missing(self) -> str:
        """This rank's wait has failed: who did not come; empty if all did."""
        self._check(self._c.gg_ledger_missing(self.handle, _abi.addressof(self._text), _TEXT_BYTES, self._error_at))
        return self._text.value.decode(errors="replace")

    def fail(self, why: str) -> None:
        """This rank cannot go on, alone; the others find `why`. Twice is fine."""
        self._check(self._c.gg_ledger_fail(self.handle, why.encode(), self._error_at))

    # --- the end of a window ---------------------------------------------------------------------------------------------

    def late_begin(self) -> None:
        self._check(self._c.gg_ledger_late_begin(self.handle, self._error_at))

    def window_close(
        self,
        *,
        stepped: bool,
        failed: bool = False,
        discarded: bool = False,
        min_micro_steps: int = 0,
        max_micro_steps: int = 0,
        active_ranks: int = 0,
        disagreed: bool = False,
        skipped: int = 0,
        items: int = 0,
        global_items: int = 0,
        wait_ns: int = 0,
    ) -> _abi.Window:
        """Publishes the window and begins the next. See gg_window_end, gg_window."""
        end = _abi.WindowEnd(
            stepped=int(stepped),
            failed=int(failed),
            discarded=int(discarded),
            min_micro_steps=min_micro_steps,
            max_micro_steps=max_micro_steps,
            active_ranks=active_ranks,
            disagreed=int(disagreed),
            skipped=skipped,
            item_count_local=items,
            item_count_global=global_items,
            wait_ns=wait_ns,
        )
        out = _abi.Window()
        self._check(self._c.gg_ledger_window_close(self.handle, end, out, self._error_at))
        return out

    def warn(self, reason: str, message: str) -> None:
        """Counts a warning; the first of each reason is logged."""
        self._check(self._c.gg_ledger_warn(self.handle, reason.encode(), message.encode(), self._error_at))

    def declare_extra(self, group: int, count: int = 1) -> None:
        """Reductions of this window that the framework forces."""
        self._check(self._c.gg_ledger_declare_extra(self.handle, group, count, self._error_at))

    def close(self) -> None:
        """Ends the ledger; counts can still be read. Twice is fine."""
        self._check(self._c.gg_ledger_close(self.handle, self._error_at))

    def destroy(self) -> None:
        """Frees the ledger: when no tap knows it any more. Nothing else may be called then."""
        handle, self.handle = self.handle, 0
        self._c.gg_ledger_destroy(handle)
