"""A job of ledgers in one process: a thread for each rank, a store between them, and the ballot's all-reduce."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from gradgate.ledger import Ledger, Verdict, Vote


class MapStore:
    """torch.distributed.Store's set, get and wait over a dictionary."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        with self._changed:
            self.values[key] = value
            self._changed.notify_all()

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: all(key in self.values for key in keys), timeout.total_seconds()):
                raise RuntimeError(f"wait timeout, keys: {keys}")

    def check(self, keys: list[str]) -> bool:
        with self._changed:
            return all(key in self.values for key in keys)

    def get(self, key: str) -> bytes:
        with self._changed:
            return self.values[key]


class Job:
    def __init__(self, world: int, **options: Any) -> None:
        self.world = world
        self.store = MapStore()
        self.options = {"accumulate": 4, "roles": 1, "daemon_dir": "", "deadline_s": 20.0, "handshake_deadline_s": 20.0, **options}
        self._barrier = threading.Barrier(world, timeout=30)
        self._rows: list[list[int]] = [[] for _ in range(world)]
        self.failures: list[BaseException | None] = [None] * world

    def create(self, rank: int, **options: Any) -> Ledger:
        return Ledger(rank=rank, world_size=self.world, store=self.store, **{**self.options, **options})

    def run(self, body: Callable[[int], None]) -> None:
        """`body` on every rank; the first failure is raised."""

        def one(rank: int) -> None:
            try:
                body(rank)
            except BaseException as failure:
                self.failures[rank] = failure
                self._barrier.abort()

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.world)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        broken = [f for f in self.failures if f is not None]
        for failure in sorted(broken, key=lambda f: isinstance(f, threading.BrokenBarrierError)):
            raise failure

    def gather(self, rank: int, row: list[int]) -> list[list[int]]:
        self._rows[rank] = row
        self._barrier.wait()
        rows = list(self._rows)
        self._barrier.wait()
        return rows

    def vote(self, rank: int, ledger: Ledger, vote: Vote) -> Verdict:
        ledger.vote(vote)
        for i, values in enumerate(zip(*self.gather(rank, list(ledger.ballot_words)), strict=True)):
            ledger.ballot_words[i] = max(values)
        return ledger.verdict()

    def describe(self, rank: int, ledger: Ledger) -> str:
        return ledger.describe([word for row in self.gather(rank, ledger.ballot_row()) for word in row])


def micro_step(ledger: Ledger, collectives: int = 0, last: int = 0) -> int:
    closes = ledger.micro_step_begin(last)
    issue(ledger, collectives)
    ledger.micro_step_end()
    return closes


def issue(ledger: Ledger, collectives: int) -> None:
    for _ in range(collectives):
        ledger.collective_done(0, 0, 0, ledger.collective_issued(0, 0, 0, 100), 0)


def until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True
