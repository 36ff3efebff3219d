"""DeepSpeed's engine under attach, ZeRO stages 0 to 3: what is reduced when, and what the engine's optimizer steps with.

Each parameter's gradient is the micro-step's number c: 1, 2, 3, … on rank 0 and ten times that on rank 1. With learning rate 1 a step moves
a weight by its reduced gradient. Full windows of four: 55; of their last micro-step alone, as T17 has it: 22.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

import gradgate
import rows
import torch
from counting import profiled
from rows import row
from torch import nn

N = 4
SIZES = (5, 7, 1)


class Lines(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lines = nn.ParameterList([nn.Parameter(torch.zeros(size)) for size in SIZES])

    def forward(self, c: torch.Tensor) -> torch.Tensor:
        return torch.stack([(line * c).sum() for line in self.lines]).sum()


def engine(stage: int, steps: int, *, zero: dict[str, Any] | None = None, **config: Any) -> Any:
    """`steps`: its own gradient_accumulation_steps, by which it divides the loss."""
    deepspeed = importlib.import_module("deepspeed")
    logging.disable(logging.WARNING)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it is compiled
    model = Lines()
    given = {
        **{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": steps, "gradient_clipping": 0.0, "steps_per_print": 10**9},
        **{"zero_optimization": {"stage": stage, **(zero or {})}, "zero_allow_untested_optimizer": True, **config},
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=given, dist_init_required=False)[0]


def moved(of: Any) -> float:
    """How far the weights have moved, where all have moved alike."""
    deepspeed = importlib.import_module("deepspeed")
    with deepspeed.zero.GatheredParameters(list(of.module.parameters()), enabled=of.zero_optimization_stage() == 3):
        values = {-float(v) for p in of.module.parameters() for v in p.detach().float().flatten()}
    assert len(values) == 1, values
    return values.pop()


def micro_step(of: Any, rank: int, c: int) -> None:
    of.backward(of(torch.tensor(float(c * (10 if rank else 1)))))


def attached(of: Any, **options: Any) -> Any:
    return gradgate.attach(of, of.optimizer, **{"accumulate": N, "deadline_s": 20, "handshake_deadline_s": 20, **options})


def windows(of: Any, sync: Any, rank: int, sizes: list[int], *, each: bool = False, divisor: int | None = None) -> list[float]:
    """What each window's step moved the weights by. `each`: the engine's step is called after each micro-step, as DeepSpeed's loops do."""
    out, before = [], moved(of)
    for size in sizes:
        for c in range(1, size + 1):
            with sync.micro_step():
                micro_step(of, rank, c)
            if each or sync.boundary:
                of.step()
        if sync.flush(divisor=divisor):
            of.step()
        out.append(moved(of) - before)
        before += out[-1]
    return out


def counted(of: Any, sync: Any, call: Callable[[], list[float]]) -> dict[str, Any]:
    """With the profiler's count of what carries gradients: all that is of that kind, without ballots and what the engine's step sends."""
    op = "reduce_scatter" if of.zero_optimization_stage() == 3 else "all_reduce"
    before = sync.stats()["ours"].get(op, 0)
    with profiled() as seen:
        out = call()
    stats = sync.stats()
    beside = (
        stats["ours"].get(op, 0) - before + (stats["steps"] if op == "all_reduce" and of.zero_optimization_stage() else 0)
    )  # its overflow check
    told = {"gradgate": stats["gradient"], "profiler": {op: seen[op] - beside}}
    keys = ("windows_full", "windows_partial", "windows_mismatched", "reductions", "suppressed", "late", "steps", "mode")
    return {"moved": out, **told, **{key: stats[key] for key in keys}, "told": sorted(stats["told"])}


def by_stage(
    name: str, expected: Callable[[int], dict[str, Any]], does: Callable[[int, int], dict[str, Any]], stages: Sequence[int] = (0, 1, 2, 3)
) -> None:
    """One row for each stage."""
    for stage in stages:

        def run(rank: int, world: int, stage: int = stage) -> dict[str, Any]:
            return does(stage, rank)

        run.__name__ = f"{name}_zero{stage}"
        globals()[run.__name__] = row(**expected(stage))(run)


def t17_by_hand(stage: int, rank: int) -> dict[str, Any]:
    of = engine(stage, 1)
    for c in range(1, N + 1):
        micro_step(of, rank, c)
    of.step()
    return {"moved": moved(of)}


by_stage("t17_without_gradgate", lambda stage: {"moved": 22.0 if stage in (1, 2) else 55.0}, t17_by_hand)


def deferred(stage: int, **more: Any) -> dict[str, Any]:
    """What is expected of two full windows and a partial one between them, by the mode of least memory."""
    each = stage >= 2
    told = ["zero_partitions_gradients"] if each else []
    return {
        **{"windows_full": 2, "windows_partial": 1, "windows_mismatched": 0, "steps": 3, "mode": "every_micro_step" if each else "window"},
        **{"reductions": 10 if each else 3, "suppressed": 0 if each else 7 + 1, "late": 0 if each else 1, "told": told, **more},
    }


def t17_attached(stage: int, rank: int) -> dict[str, Any]:
    of = engine(stage, 1)
    sync = attached(of)
    with sync:
        return counted(of, sync, lambda: windows(of, sync, rank, [4, 2, 4], divisor=4))


by_stage(
    "t17_attached",
    lambda stage: deferred(stage, moved=[55.0, 33.0, 55.0], told=["deepspeed_window", *deferred(stage)["told"]]),
    t17_attached,
)


def own_window(stage: int, rank: int) -> dict[str, Any]:
    """T22's partial window: 1 + 2 and 10 + 20, by 4, rescaled to 2; without gradgate it would leak into the next."""
    of = engine(stage, N)
    sync = attached(of, accumulate="observe")
    with sync:
        return counted(of, sync, lambda: windows(of, sync, rank, [4, 2, 4], each=True, divisor=4))


by_stage("own_window", lambda stage: deferred(stage, moved=[13.75, 8.25, 13.75]), own_window)


def held_back(stage: int, rank: int) -> dict[str, Any]:
    of = engine(stage, N)
    sync = attached(of, mode="window")
    with sync:
        return counted(of, sync, lambda: windows(of, sync, rank, [4, 2, 4], each=stage == 2, divisor=4))


by_stage("held_back", lambda stage: deferred(0, moved=[13.75, 8.25, 13.75], late=3), held_back, stages=(2, 3))


def overlapping(stage: int, rank: int) -> dict[str, Any]:
    of = engine(stage, N, zero={"overlap_comm": True, "reduce_bucket_size": 8})
    sync = attached(of)
    with sync:
        told = counted(of, sync, lambda: windows(of, sync, rank, [4, 2], divisor=4))
    return {**told, "told": told["told"]}


by_stage("overlapping", lambda stage: {"moved": [13.75, 8.25], "windows_mismatched": 0}, overlapping, stages=(1, 2))


def dropped(stage: int, rank: int) -> dict[str, Any]:
    """A window thrown away before its end, one after its boundary, and one that counts."""
    of = engine(stage, 1)
    sync = attached(of)
    with sync:
        for place in (2, N):
            for c in range(1, N + 1):
                with sync.micro_step():
                    micro_step(of, rank, 100 * c)
                if c == place:
                    sync.discard()
                of.step() if sync.boundary else None
        nothing = moved(of)
        after = windows(of, sync, rank, [4])
        stats = sync.stats()
    return {"nothing": nothing, "after": after, "discarded": stats["windows_discarded"], "steps": stats["steps"]}


by_stage("dropped", lambda _: {"nothing": 0.0, "after": [55.0], "discarded": 2, "steps": 1}, dropped)


def by_items(stage: int, rank: int) -> dict[str, Any]:
    """Sums over 1 + 2 + 3 + 4 items on each rank: (10 + 100) / 20."""
    of = engine(stage, 1)
    sync = attached(of)
    with sync:
        for c in range(1, N + 1):
            with sync.micro_step(items=c):
                micro_step(of, rank, c)
        of.step()
    return {"moved": moved(of)}


by_stage("by_items", lambda _: {"moved": 5.5}, by_items)


def given_back(stage: int, rank: int) -> dict[str, Any]:
    """Closed after a partial window, the engine's own count begins anew."""
    of = engine(stage, N)
    before = {name for name in vars(of) if callable(vars(of)[name])}
    with attached(of) as sync:
        windows(of, sync, rank, [4, 3], divisor=4)
    start = moved(of)
    for c in range(1, 2 * N + 1):
        micro_step(of, rank, c)
        of.step()
    own = {name for name in vars(of) if callable(vars(of)[name])} - before
    return {"moved": moved(of) - start, "left": sorted(own), "boundary": of._is_gradient_accumulation_boundary}


by_stage("given_back", lambda _: {"moved": 13.75 + 35.75, "left": [], "boundary": None}, given_back)


def own_steps(stage: int, rank: int) -> dict[str, Any]:
    """An engine that steps in each micro-step, as it and the loop have it: no step is lost, and none is on unreduced gradients."""
    of = engine(stage, 1)
    sync = attached(of)
    out = []
    with sync:
        for c in range(1, 4):
            with sync.micro_step():
                micro_step(of, rank, c)
            of.step()
            out.append(moved(of))
        stats = sync.stats()
    return {"moved": out, "partial": stats["windows_partial"], "steps": stats["steps"]}


by_stage("own_steps", lambda _: {"moved": [5.5, 16.5, 33.0], "partial": 3, "steps": 3}, own_steps)


def failing(stage: int, rank: int) -> dict[str, Any]:
    """A forward fails in the middle of a window, on all ranks, and is tried again."""
    of = engine(stage, 1)
    sync = attached(of)
    with sync:
        for c in range(1, N + 1):
            if c == 3:
                with rows.refused(FloatingPointError), sync.micro_step():
                    of(torch.tensor(1.0))
                    raise FloatingPointError
            with sync.micro_step():
                micro_step(of, rank, c)
        of.step()
        stats = sync.stats()
    return {"moved": moved(of), "reductions": stats["reductions"]}


by_stage("failing", lambda stage: {"moved": 55.0, "reductions": 1 if stage < 2 else 4}, failing)


def refusals(stage: int, rank: int) -> dict[str, Any]:
    of = engine(stage, N)
    with rows.refused(ValueError) as inner:
        gradgate.attach(of.module, accumulate=N)
    sync = attached(of)
    with sync:
        with rows.refused(gradgate.Refused) as inside, sync.micro_step():
            of.step()
        for c in range(1, N + 1):
            with sync.micro_step():
                micro_step(of, rank, c)
        with rows.refused(ValueError) as clipped:
            sync.step(max_norm=1.0)
        stepped = sync.step()
    with rows.refused(ValueError) as variable:
        attached(of, windows="variable")
    return {"inner": inner, "inside": inside, "clipped": clipped, "variable": variable, "stepped": stepped, "moved": moved(of)}


by_stage(
    "refusals",
    lambda _: {
        **{"inner": rows.Says("attach the engine", "gradgate.attach(engine"), "inside": rows.Says("inside a micro-step")},
        **{"clipped": rows.Says("gradient_clipping"), "variable": rows.Says("windows='equal'"), "stepped": True, "moved": 13.75},
    },
    refusals,
)


def unmanaged(stage: int, _rank: int) -> dict[str, Any]:
    of = engine(stage, 1, managed_gradient_accumulation=False)
    with rows.refused(ValueError) as refused:
        attached(of)
    return {"refused": refused}


by_stage("unmanaged", lambda _: {"refused": rows.Says("managed_gradient_accumulation=false", "nothing to attach")}, unmanaged, stages=(1,))


def as_it_is(stage: int, rank: int) -> dict[str, Any]:
    of = engine(stage, N)
    sync = attached(of)
    with sync:
        told = counted(of, sync, lambda: windows(of, sync, rank, [4, 4], each=True))
    return {**told, "enforcement": sync.stats()["enforcement"]}


for _stage in range(4):

    def _audited(rank: int, world: int, stage: int = _stage) -> dict[str, Any]:
        return as_it_is(stage, rank)

    _audited.__name__ = f"audited_zero{_stage}"
    globals()[_audited.__name__] = row(
        env={"GRADGATE": "audit"}, enforcement="audit", moved=[13.75, 13.75], reductions=8 if _stage >= 2 else 2, steps=2
    )(_audited)
