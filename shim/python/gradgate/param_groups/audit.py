"""How many parameter groups an optimizer has, how many it needs, and what merging them saves, measured on the spot.

    print(gradgate.param_groups.audit(optimizer))

The optimizer, its tensors, its hooks, its schedulers and the random numbers stay as they are: what is timed is the step of a copy.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, cast

import torch

from ..errors import InvalidArgument
from . import _page, _timing, merging, schedulers, settings
from ._rehearsal import Rehearsal
from ._steps import Group, Unmeasurable, first_line, implementation
from .report import Report


@dataclass(frozen=True)
class Audit:
    """Times are medians in milliseconds of one step by itself; None where it was not measured. str() is a page to read."""

    optimizer: str  # its class
    groups: int
    needed: int  # as many as merge_optimizer would leave
    parameters: int  # tensors that are trained
    elements: int
    frozen: int  # tensors in the groups that ask for no gradient
    settings: tuple[dict[str, Any], ...]  # of each needed group
    implementation: str  # "for-loop", "foreach", "fused", "own" (not torch's), or what each group has: "foreach (3), for-loop (1)"
    merged_implementation: str
    chosen: str  # by whom: "torch" where neither foreach nor fused was given, else (or where it has no such choice) "optimizer"
    measured_on: str  # the devices of the parameters
    step_ms: float | None = None  # with the groups as they are
    merged_ms: float | None = None  # with the groups it needs
    interval_ms: float | None = None  # a difference up to this is chance: the same step against itself, in the same rounds (A/A)
    alternatives: dict[str, float] = dataclasses.field(default_factory=dict)  # merged, and with "foreach" or "fused"
    rounds: int = 0
    cut: int | None = None  # elements that tensors were cut to, None: measured whole
    unmeasured: str = ""  # why not
    notes: tuple[str, ...] = ()

    @property
    def saving_ms(self) -> float | None:
        """Of a step, by merging alone; below zero where it takes longer."""
        return None if self.step_ms is None or self.merged_ms is None else self.step_ms - self.merged_ms

    @property
    def share(self) -> float | None:
        """Of a step, what merging alone saves; None also where tensors were cut."""
        return None if self.saving_ms is None or not self.step_ms or self.cut is not None else self.saving_ms / self.step_ms

    @property
    def verdict(self) -> str:
        """On merging alone: "saves", "costs", "no verdict" (chance is wider), "nothing to merge", "not measured"."""
        if self.groups == self.needed:
            return "nothing to merge"
        if self.saving_ms is None or self.interval_ms is None:
            return "not measured"
        if abs(self.saving_ms) <= self.interval_ms:
            return "no verdict"
        return "saves" if self.saving_ms > 0 else "costs"

    @property
    def advice(self) -> str:
        return _page.advice(self)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: all fields and properties."""
        shown = [{key: _plain(value) for key, value in group.items()} for group in self.settings]
        derived = {key: getattr(self, key) for key in ("saving_ms", "share", "verdict", "advice")}
        return {**dataclasses.asdict(dataclasses.replace(self, settings=())), "notes": list(self.notes), **derived, "settings": shown}

    def __str__(self) -> str:
        return _page.page(self)


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(held) for held in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value if value is None or isinstance(value, bool | int | float | str) else settings.shown(value)


def _inside(optimizer: Any) -> torch.optim.Optimizer:
    """torch's optimizer, out of Lightning's or Accelerate's wrapper."""
    while (held := getattr(optimizer, "optimizer", None)) is not None and held is not optimizer:
        if getattr(held, "param_groups", None) is not getattr(optimizer, "param_groups", ()):
            break
        optimizer = held
    if not isinstance(optimizer, torch.optim.Optimizer):
        hint = "; audit them one by one" if isinstance(optimizer, list | tuple) else ""
        raise InvalidArgument(f"audit() was given {type(optimizer).__name__}: give a torch optimizer{hint}")
    return optimizer


def _merged(optimizer: torch.optim.Optimizer) -> Report:
    """As merge_optimizer would do it, with the schedulers that are found."""
    groups = optimizer.param_groups
    later: list[dict[str, Any]] | None = None
    notes: tuple[str, ...] = ()
    try:
        later = schedulers.Live(optimizer, (), ()).settings()
    except InvalidArgument as why:
        notes = (f"not counting what schedulers keep apart: {why}",)
    members = [member for index, group in enumerate(groups) for member in merging.members_of(index, group)]
    out = {id(held.tensor) for held in members if not held.tensor.requires_grad and held.tensor not in optimizer.state}
    if len(out) == len({id(held.tensor) for held in members}):
        out = set()
    old = [settings.of_group(group) for group in groups]
    return merging.combine(old, members, (), out, later).report(notes)


def _users_keys(optimizer: torch.optim.Optimizer, report: Report) -> list[str]:
    """Keys that somebody put into the groups, as names, and without which there would be fewer."""
    told = {key: count for key, count in report.kept_apart_by.items() if key not in optimizer.defaults and key.isidentifier()}
    return [f"without the key {key!r} it would need {count:,}: merge(groups, ignore=({key!r},))" for key, count in told.items()]


def _merged_groups(groups: list[Group], report: Report) -> list[Group]:
    kept = []
    for members, held in zip(report.members, report.settings, strict=True):
        kept.append({**held, "params": [parameter for index in members for parameter in groups[index]["params"]]})
    return kept


def _implementations(optimizer: torch.optim.Optimizer, groups: list[Group]) -> list[str]:
    """The most frequent first."""
    trained = [group for group in groups if any(parameter.requires_grad for parameter in group["params"])]
    counts = Counter(implementation(optimizer, group) for group in trained or groups)
    return [f"{kind} ({count})" if len(counts) > 1 else kind for kind, count in counts.most_common()]


def _measure(optimizer: torch.optim.Optimizer, merged: list[Group], kind: str, deadline: float) -> dict[str, Any]:
    """Audit's fields of times. Unmeasurable where it cannot be."""
    rehearsal = Rehearsal(optimizer)
    with _timing.same_random_numbers(rehearsal.devices):
        groups = optimizer.param_groups
        same = len(merged) == len(groups)
        step = rehearsal.step_of(groups)
        steps = {"step": step, "again": step} if same else {"step": step, "merged": rehearsal.step_of(merged), "again": step}
        notes = []
        after = {"foreach": ("fused",), "fused": (), "own": ()}.get(kind, ("foreach", "fused"))
        for other in after:
            if all(other in group for group in groups):
                try:
                    steps[other] = rehearsal.step_of(merged, other)
                except Unmeasurable as why:
                    notes.append(f"{other}=True is not possible here: {why}")
        times = _timing.in_turn(steps, rehearsal.synchronize, deadline)
    medians = {name: _timing.median(taken) for name, taken in times.items()}
    step_ms = _timing.median(times["step"] + times["again"])
    return {
        "step_ms": step_ms,
        "merged_ms": medians.get("merged", step_ms),
        "interval_ms": _timing.chance(times["step"], times["again"]),
        "alternatives": {name: medians[name] for name in after if name in medians},
        "rounds": len(times["step"]),
        "cut": rehearsal.cut,
        "notes": tuple(notes),
    }


def audit(optimizer: torch.optim.Optimizer, *, measure: bool = True, seconds: float = 2.0) -> Audit:
    """What the optimizer's parameter groups cost. Changes nothing; any rank may call it alone; between steps, on the thread that steps.

    Measuring steps a copy: parameters, gradients and state once more while it lasts, or tensors cut to 1024 elements where that is more
    than half of what is free. A GPU's peak memory statistics see the copy. `seconds` bounds it softly: three rounds are run however long
    they take. Closures, hooks and a profiler's records are not in the times. A sharded parameter is timed as this rank's part, a plain
    tensor. An optimizer whose step cannot be called on a copy is audited without times, and `unmeasured` says why.

    Errors: InvalidArgument for what is no optimizer, for `seconds` that is no positive number, for `measure` that is no bool.
    """
    begin = _timing.clock()
    if not isinstance(measure, bool):
        raise InvalidArgument(f"measure={measure!r}: True, or False to count groups alone")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds <= 0:
        raise InvalidArgument(f"seconds={seconds!r}: a positive number, about how long measuring may take; measure=False measures nothing")
    optimizer = _inside(optimizer)
    report = _merged(optimizer)
    merged = _merged_groups(optimizer.param_groups, report)
    kinds = _implementations(optimizer, optimizer.param_groups)
    tensors = {id(each): each for group in optimizer.param_groups for each in group["params"]}
    choices = [group[key] for group in optimizer.param_groups for key in ("foreach", "fused") if key in group]
    found = Audit(
        optimizer=type(optimizer).__name__,
        groups=len(optimizer.param_groups),
        needed=report.after,
        parameters=sum(each.requires_grad for each in tensors.values()),
        elements=sum(each.numel() for each in tensors.values() if each.requires_grad),
        frozen=sum(not each.requires_grad for each in tensors.values()),
        settings=report.settings,
        implementation=", ".join(kinds),
        merged_implementation=", ".join(_implementations(optimizer, merged)),
        chosen="torch" if choices and all(choice is None for choice in choices) else "optimizer",
        measured_on=_page.devices([each.device for each in tensors.values()]),
        unmeasured="" if measure else "measure=False",
        notes=(*report.notes, *_users_keys(optimizer, report), *_notes(optimizer, list(tensors.values()))),
    )
    if not measure:
        return found
    try:
        with torch.no_grad():
            figures = _measure(optimizer, merged, kinds[0].partition(" ")[0], begin + seconds)
    except Unmeasurable as why:
        return dataclasses.replace(found, unmeasured=str(why))
    except Exception as error:  # of someone's step, or of memory
        return dataclasses.replace(found, unmeasured=f"stepping a copy raised {type(error).__name__}: {first_line(error)}")
    return dataclasses.replace(found, **{**figures, "notes": found.notes + cast(tuple[str, ...], figures["notes"])})


def _notes(optimizer: torch.optim.Optimizer, tensors: list[torch.Tensor]) -> list[str]:
    notes = []
    replaced = vars(optimizer).get("step")
    if replaced is not None and not hasattr(replaced, "_wrapped_by_lr_sched"):
        notes.append("optimizer.step is replaced on this object (compiled or wrapped): measured is the step of its class")
    if any(hasattr(each, "to_local") for each in tensors):
        notes.append("sharded parameters: measured on this rank's parts as plain tensors, without what DTensor adds to each operation")
    return notes
