"""What a merge did, and why it did no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from ..errors import InvalidArgument
from . import settings

T = TypeVar("T")
ROWS_SHOWN = 40
NAMES_SHOWN = 6


def listed(names: Sequence[str], shown: int = NAMES_SHOWN) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


@dataclass(frozen=True)
class Apart:
    """Why the new group `group` did not become one with `nearest`, the earlier group that is most like it."""

    group: int
    nearest: int
    keys: dict[str, tuple[str, str]]  # key: (value in nearest, value in group), "-" where the key is missing

    def __str__(self) -> str:
        differences = ", ".join(f"{key} {theirs} ≠ {ours}" for key, (theirs, ours) in self.keys.items())
        return f"group {self.group} is not group {self.nearest}: {differences}"


@dataclass(frozen=True)
class Report:
    """Numbers of groups are those of parameter groups; `members[i]` are the old groups that became the new group i."""

    before: int
    members: tuple[tuple[int, ...], ...]
    parameters: int  # tensors in the new groups
    elements: int
    sizes: tuple[int, ...]  # tensors in each new group
    settings: tuple[dict[str, Any], ...]  # of each new group
    frozen: tuple[str, ...] = ()  # left out: they ask for no gradient
    repeated: tuple[str, ...] = ()  # given more than once, kept once
    notes: tuple[str, ...] = ()
    _compared: tuple[dict[str, Any], ...] = field(
        default=(), repr=False
    )  # of each old group: its settings, and what schedulers hold for it

    @property
    def after(self) -> int:
        return len(self.members)

    @cached_property
    def kept_apart_by(self) -> dict[str, int]:
        """The keys that keep groups apart, each with the number of groups there would be without it, and without those that always differ
        with it, as initial_lr does with lr."""
        used = [self._compared[index] for members in self.members for index in members]
        without = {keys[0]: len(settings.partition(used, keys)) for keys in self._together}
        return {key: count for key, count in without.items() if count < self.after}

    @cached_property
    def _together(self) -> list[list[str]]:
        """The keys that vary, those that differ between the same groups together."""
        patterns: dict[tuple[int, ...], list[str]] = {}
        for key in self._varying:
            seen: dict[Any, int] = {}
            printed = [settings.fingerprint(group[key]) if key in group else None for group in self._firsts]
            patterns.setdefault(tuple(seen.setdefault(value, len(seen)) for value in printed), []).append(key)
        return list(patterns.values())

    @cached_property
    def _firsts(self) -> list[dict[str, Any]]:
        """What was compared, of each new group's first old one."""
        return [self._compared[members[0]] for members in self.members]

    @cached_property
    def _varying(self) -> list[str]:
        keys = dict.fromkeys(key for group in self._firsts for key in group)
        return [key for key in keys if len({settings.fingerprint(group[key]) if key in group else None for group in self._firsts}) > 1]

    @cached_property
    def apart(self) -> tuple[Apart, ...]:
        """For each new group but the first, what keeps it from the earlier one that is most like it."""
        printed = [{key: settings.fingerprint(value) for key, value in group.items()} for group in self._firsts]
        found = []
        for ours in range(1, len(printed)):
            distances = [len(set(printed[theirs].items()) ^ set(printed[ours].items())) for theirs in range(ours)]
            nearest = distances.index(min(distances))
            keys = settings.differing(self._firsts[nearest], self._firsts[ours], ())
            found.append(Apart(ours, nearest, keys or {"(what else holds its tensors)": ("one", "another")}))
        return tuple(found)

    def collapse(self, values: Sequence[T], name: str = "lr_lambda") -> list[T]:
        """One value for each new group from one for each old group, as for LambdaLR(optimizer, report.collapse(lambdas)).

        Errors: InvalidArgument where the number is wrong, or where old groups that became one have different values.
        """
        if len(values) != self.before:
            raise InvalidArgument(f"{name} has {len(values)} values; there were {self.before} parameter groups: give one for each")

        def refusal(one: int, odd: int) -> str:
            number = next(number for number, members in enumerate(self.members) if one in members)
            return (
                f"{name} differs between the groups {one} and {odd}, which became group {number}: {settings.shown(values[one])} ≠ "
                f"{settings.shown(values[odd])}; give such groups a key that differs, as 'schedule', before merging, and they stay apart"
            )

        return [settings.agreed(values, members, refusal) for members in self.members]

    def __str__(self) -> str:
        lines = [f"{self.before:,} parameter groups became {self.after:,}: {self.parameters:,} tensors, {self.elements:,} elements"]
        columns = [keys[0] for keys in self._together]
        rows = [["group", "of groups", "tensors", *columns]]
        for number, (members, size) in enumerate(zip(self.members, self.sizes, strict=True)):
            held = self._firsts[number]
            cells = [settings.shown(held[key], 24) if key in held else "-" for key in columns]
            rows.append([str(number), str(len(members)), str(size), *cells])
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines += ["  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows[: ROWS_SHOWN + 1]]
        if self.after > ROWS_SHOWN:
            lines.append(f"  … and {self.after - ROWS_SHOWN} more")
        if self.kept_apart_by:
            lines.append("kept apart by " + ", ".join(f"{key} (without it {count:,})" for key, count in self.kept_apart_by.items()))
        if self.frozen:
            lines.append(f"left out, frozen: {len(self.frozen)}: {listed(self.frozen)}")
        if self.repeated:
            lines.append(f"given more than once, kept once: {len(self.repeated)}: {listed(self.repeated)}")
        return "\n".join([*lines, *self.notes])
