"""Rows about checkpoints in windows of every kind: items, ranks without data, looked ahead, flushed, observed."""

from __future__ import annotations

from typing import Any

import checkpointed as c
import trainers as t
from rows import row


class Items(c.Run):
    def train(self, data: Any, items: Any = None, skip: Any = ()) -> c.Run:
        return super().train(data, [2 ** (i % 2) for i in range(len(data))], skip)


@row(resumed=True, uninterrupted=True, means=True)
def items(rank: int, world: int) -> dict[str, Any]:
    """Items of a window are 1 + 2 + 1 + 2 on each rank, so that the division is not exact: the same bytes all the same."""
    return c.differences(lambda: Items(c.ddp()), rank, 2)


@row(resumed=True, uninterrupted=True, micro_steps=2, late=2)
def ranks_without_data(rank: int, world: int) -> dict[str, Any]:
    """Rank 1 brings nothing in the first part, rank 0 nothing in the second: both are active, in a run that is loaded, too."""
    options = {"windows": "variable", "divide": "active"}
    data = c.feed(rank, 0, 2)
    found, runs, state = [], [], dict[str, Any]()
    for kind in ("saved", "loaded", "left"):
        run = c.Run(c.ddp(), options)
        run.train(c.feed(rank, 0, 4))  # all know the reducer's buckets
        if kind != "loaded":
            run.train(data if rank == 0 else [])
        if kind == "saved":
            state = run.saved()
        if kind == "loaded":
            run.close()
            run = c.Run(c.ddp(), options).load(state)
        run.train(data if rank == 1 else [])
        assert run.sync.flush()
        run.optimizer.step()
        found.append(run.bytes())
        runs.append(run.close())
    return {
        "resumed": found[0] == found[1],
        "uninterrupted": found[0] == found[2],
        "micro_steps": state["sync"]["micro_steps"],
        "late": sum(run.sync.stats()["late"] for run in runs[:2]),
    }


@row(resumed=True, uninterrupted=True, skipped=[1, 1, 1])
def skipped_micro_steps(rank: int, world: int) -> dict[str, Any]:
    found, skipped, state = [], [], dict[str, Any]()
    for kind in ("saved", "loaded", "left"):
        run = c.Run(c.ddp())
        if kind != "loaded":
            run.train(c.feed(rank, 0, 2), skip=[rank])
        if kind == "saved":
            state = run.saved()
        if kind == "loaded":
            run.load(state)
        run.train(c.feed(rank, 2, 2))
        found.append(run.bytes())
        skipped.append(run.sync.skipped)
        run.close()
    return {"resumed": found[0] == found[1], "uninterrupted": found[0] == found[2], "skipped": skipped}


@row(resumed=True, uninterrupted=True, sizes=[3, 3, 3], left=[1, 1])
def looked_ahead(rank: int, world: int) -> dict[str, Any]:
    """The last window has 3 of 4 micro-batches; it is saved after 2, and the run that loads is fed the third."""
    data = c.feed(rank, 0, 7)
    found, sizes, left, state = [], list[int](), list[int](), dict[str, Any]()
    for kind in ("saved", "loaded", "left"):
        run = c.Run(c.ddp())
        if kind == "loaded":
            run.load(state)
        batches = data[6:] if kind == "loaded" else data
        for i, micro in enumerate(run.sync.micro_batches(batches)):
            size = round(1 / micro.scale)
            with micro:
                (run.model(micro.data * 9) * micro.scale).backward()
            if micro.boundary:
                run.step_at_boundary()
                sizes += [size] if size != c.N else []
            elif i == 5 and kind == "saved":
                state = run.saved()
                left.append(len(data) - 4 - state["sync"]["micro_steps"])
        left += [i + 1] if kind == "loaded" else []
        found.append(run.bytes())
        run.close()
    return {"resumed": found[0] == found[1], "uninterrupted": found[0] == found[2], "sizes": sizes, "left": left}


@row(gradients=[c.N / 3 * 2.5, 2.5])
def another_size_than_looked_ahead(rank: int, world: int) -> dict[str, Any]:
    """It was to have 4 micro-batches, losses were divided by 4; data ends after 3."""
    found: list[float | None] = []
    state: dict[str, Any] = {}
    for data in ([1.0, 2.0, 3.0, 4.0], [4.5]):
        run = c.Run(t.ddp())
        if found:
            run.load(state)
            found.clear()
        for i, micro in enumerate(run.sync.micro_batches(data)):
            with micro:
                (run.model(micro.data) * micro.scale).backward()
            if micro.boundary:
                found.append(t.one(t.gradients(run.model)))
                run.step_at_boundary()
            elif i == 1:
                state = run.saved()
        run.close()
    return {"gradients": [c.N / 3 * 2.5, found[0]]}


@row(gradients=[[11.0, 11.0], [11.0, 11.0]])
def flush_with_a_divisor(rank: int, world: int) -> dict[str, Any]:
    """1 + 2 + 3 and 10 + 20 + 30 divided by 4, flushed after three: times 4 / 3. Saved after two, or after three."""
    found = []
    for at in (2, 3):
        values, state = [], dict[str, Any]()
        for loads in (False, True):
            run = c.Run(t.ddp())
            data = t.data(rank, 3)
            if loads:
                run.load(state)
            else:
                for x in data[:at]:
                    with run.sync.micro_step():
                        (run.model(x) / 4).backward()
                state = run.saved()
            for x in data[at:]:
                with run.sync.micro_step():
                    (run.model(x) / 4).backward()
            assert run.sync.flush(divisor=4)
            values.append(t.one(t.gradients(run.model)))
            run.optimizer.step()
            run.close()
        found.append(values)
    return {"gradients": found}


@row(gradients=[55.0, 55.0])
def observed_windows(rank: int, world: int) -> dict[str, Any]:
    found, state = [], dict[str, Any]()
    for loads in (False, True):
        run = c.Run(t.ddp(), {"accumulate": "observe"})
        if loads:
            run.load(state)
        for i, x in enumerate(t.data(rank)[2 * loads :]):
            with run.sync.micro_step():
                run.model(x).backward()
            if i == 1 and not loads:
                state = run.saved()
        run.sync.flush()
        found.append(t.one(t.gradients(run.model)))
        run.optimizer.step()
        run.close()
    return {"gradients": found}
