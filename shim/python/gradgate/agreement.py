"""Carries gradgate's own numbers between the ranks of a job: ballots, sums, votes.

A Gloo group of its own, made after the handshake, so that its collectives only ever pair with each other, whatever the trainer does
on its groups, and reading a result never synchronises with a device. All ranks issue the same calls in the same order. Every wait has
the job's deadline; when it is over, the ranks that did not come are named through the store.

Thread class: the loop's thread; `issue` also from the thread that runs the backward.
"""

from __future__ import annotations

import contextlib
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .ledger import DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch.distributed import ProcessGroup

    from .ledger import Ledger, Verdict, Vote

_SOON_S = 1.0  # a rank that has waited this long tells the others where it is


_CONSEQUENCES = ("contributes:", "closes:", "headroom:", "sums:")  # fields that differ since others do

_abandoned: list[Any] = []  # groups with a collective that will not end: to destroy one waits for it


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Groups made meanwhile. torch derives the name from how many groups this process is in, which may differ between the ranks of a
    part of the world, and come again when one was destroyed."""
    module: Any = dist.distributed_c10d
    original = module._process_group_name
    module._process_group_name = lambda *_args, **_kwargs: name
    try:
        yield
    finally:
        module._process_group_name = original


class Agreement:
    def __init__(self, job: ProcessGroup, ledger: Ledger, deadline_s: float, name: str) -> None:
        """`name`: the same on all ranks of the job, and no other group's."""
        ranks = dist.get_process_group_ranks(job)
        self.world = len(ranks)
        self.rank = dist.get_rank(job)
        self._ledger = ledger
        self._deadline_s = deadline_s
        # Its own time-out comes after ours, which names ranks.
        local = self.world < dist.get_world_size()
        with _named(name) if local else contextlib.nullcontext():
            timeout = timedelta(seconds=deadline_s + 5)
            self.group = dist.new_group(ranks, timeout=timeout, backend="gloo", use_local_synchronization=local)
        assert self.group is not None
        self.name: str = self.group.group_name
        self._words = torch.frombuffer(ledger.ballot_words, dtype=torch.int64)
        self._ballot: Any = None
        self._by_max = dist.AllreduceOptions()
        self._by_max.reduceOp = dist.ReduceOp(dist.ReduceOp.MAX)
        self._by_max.asyncOp = True

    def store(self, where: str) -> Any:
        """A part of the job's store for what is not said by collectives, named alike on all ranks."""
        return dist.PrefixStore(f"gradgate/checkpoint/{self.name}/{where}", dist.distributed_c10d._get_default_store())

    def issue(self, vote: Vote) -> None:
        """Sends this rank's ballot on its way. Does not block."""
        self._ledger.vote(vote)
        self._ballot = self.group.allreduce([self._words], self._by_max)

    @property
    def issued(self) -> bool:
        return self._ballot is not None

    def read(self) -> Verdict:
        """Waits for the ballot that was issued and tells what it says."""
        work, self._ballot = self._ballot, None
        self._wait(work)
        return self._ledger.verdict()

    def describe(self) -> str:
        """Who differs in what; on all ranks, after a verdict that says so."""
        rows = [torch.empty(self._ledger.row_words, dtype=torch.int64) for _ in range(self.world)]
        own = torch.tensor(self._ledger.ballot_row(), dtype=torch.int64)
        self._wait(dist.all_gather(rows, own, group=self.group, async_op=True))
        clauses = self._ledger.describe(torch.cat(rows).tolist()).split("; ")
        return "; ".join(clause for clause in clauses if not clause.startswith(_CONSEQUENCES))

    def sum(self, values: Sequence[float]) -> list[float]:
        out = torch.tensor(values, dtype=torch.float64)
        self._wait(dist.all_reduce(out, group=self.group, async_op=True))
        return out.tolist()

    def extremes(self, values: Sequence[int]) -> tuple[list[int], list[int]]:
        """(minimum, maximum) of each value over the ranks."""
        both = torch.tensor([*values, *(-v for v in values)], dtype=torch.int64)
        self._wait(dist.all_reduce(both, op=dist.ReduceOp.MAX, group=self.group, async_op=True))
        out = both.tolist()
        return [-v for v in out[len(values) :]], out[: len(values)]

    def maximum(self, values: torch.Tensor) -> None:
        """Elementwise, in place, over int64 on the CPU."""
        self._wait(dist.all_reduce(values, op=dist.ReduceOp.MAX, group=self.group, async_op=True))

    def gather(self, value: int) -> list[int]:
        return [row[0] for row in self.rows([value])]

    def rows(self, values: Sequence[int]) -> list[list[int]]:
        """Every rank's values; as many on each."""
        rows = [torch.empty(len(values), dtype=torch.int64) for _ in range(self.world)]
        self._wait(dist.all_gather(rows, torch.tensor(values, dtype=torch.int64), group=self.group, async_op=True))
        return [row.tolist() for row in rows]

    def _wait(self, work: Any) -> None:
        end = time.monotonic() + self._deadline_s
        try:
            if self._wait_for(work, min(_SOON_S, self._deadline_s / 4)):
                return
            self._ledger.arrived()
            done = self._wait_for(work, end - time.monotonic())
        except RuntimeError as broken:
            _abandoned.append(self.group)
            missing = self._ledger.missing()
            raise DeadlineExceeded(missing or "the connection between the ranks broke") from broken
        if not done:
            _abandoned.append(self.group)
            raise DeadlineExceeded(self._ledger.missing() or f"no answer from the other ranks within {self._deadline_s:g} s")

    @staticmethod
    def _wait_for(work: Any, seconds: float) -> bool:
        """Asks, since Gloo's wait takes its group's time-out for the caller's."""
        end, pause = time.monotonic() + seconds, 20e-6
        while not work.is_completed():
            if time.monotonic() >= end:
                return False
            time.sleep(pause)
            pause = min(1.5 * pause, 0.002)
        work.wait()  # raises what it failed with
        return True

    def close(self) -> None:
        if self.group is not None and self.group not in _abandoned and dist.is_initialized():
            with contextlib.suppress(Exception):
                dist.destroy_process_group(self.group)
        self.group = None
