"""The dictionary that sync.state_dict() gives: version 1, and how a given one is read.

    gradgate      1, the version
    windows       that have ended: information
    accumulate    micro-steps of a window, 0: observed
    mode          in force when it was saved: information
    micro_steps   of the open window, the most of any rank: what the data has to go on after. 0: no window is open, and all below is empty
    ranks         per rank [micro-steps, skipped, items, micro-steps that told items, micro-steps that its window was to have or 0]
    discard       whether a rank has discarded the open window
    means         of sync.mean [name, total, count] over all ranks
    holds         the names in `gradients`, sorted
    gradients     {name: mean over the ranks of each one's sum over the open window's micro-steps}; DTensors where parameters are

The keys are always the same, and what varies is in lists, which torch.distributed.checkpoint takes whole. A given dict is not trusted:
each error names key and value, before anything is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .checkpoint_kept import Done
from .division import MAX_SCALARS
from .errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

VERSION = 1
KEYS = ("gradgate", "windows", "accumulate", "mode", "micro_steps", "ranks", "discard", "means", "holds", "gradients")
_MOST = 2**53
_ROW = 5
_SHOWN = 80


class Saved(NamedTuple):
    """As given, with types and ranges checked; gradients are not compared with the model yet."""

    windows: int = 0
    accumulate: int = 0
    mode: str = "window"
    ranks: tuple[Done, ...] = ()
    planned: tuple[int, ...] = ()
    discard: bool = False
    means: dict[str, tuple[float, float]] = {}
    gradients: Mapping[str, torch.Tensor] = {}

    @property
    def micro_steps(self) -> int:
        return max((done.micro_steps for done in self.ranks), default=0)

    def state(self) -> dict[str, Any]:
        return {
            "gradgate": VERSION,
            "windows": self.windows,
            "accumulate": self.accumulate,
            "mode": self.mode,
            "micro_steps": self.micro_steps,
            "ranks": [[*done, planned] for done, planned in zip(self.ranks, self.planned, strict=True)],
            "discard": self.discard,
            "means": [[name, total, count] for name, (total, count) in sorted(self.means.items())],
            "holds": sorted(self.gradients),
            "gradients": dict(self.gradients),
        }


def wrong(key: str, value: object, what: str) -> InvalidArgument:
    try:
        text = repr(value) if not hasattr(value, "dtype") else f"a tensor of shape {tuple(value.shape)} and {value.dtype}"  # type: ignore[attr-defined]
    except Exception:
        text = f"a {type(value).__name__} that cannot be shown"
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    shown = " ".join("".join(c if c.isprintable() else " " for c in shown).split())
    return InvalidArgument(f"sync.load_state_dict: {key} is {shown}: {what}. Nothing was loaded")


def read(state: Any) -> Saved:
    """InvalidArgument for whatever state_dict() would not have written."""
    if not isinstance(state, Mapping):
        raise wrong("the state", state, "must be the dict that sync.state_dict() gave")
    version = state.get("gradgate")
    if isinstance(version, bool) or not isinstance(version, int):
        raise wrong("gradgate", version, "must be the version of the format, so this is no state of sync.state_dict()")
    if version != VERSION:
        raise wrong("gradgate", version, f"this version of gradgate reads {VERSION}; load it with the one that saved it")
    try:
        state = dict(state)
    except Exception as error:
        raise wrong("the state", None, f"it cannot be read ({type(error).__name__})") from error
    for key in KEYS:
        if key not in state:
            raise wrong(key, None, "it is missing, so the state is truncated; load all that sync.state_dict() gave")
    ranks, planned = _ranks(state["ranks"])
    saved = Saved(
        windows=_count("windows", state["windows"]),
        accumulate=_count("accumulate", state["accumulate"]),
        mode=_text("mode", state["mode"]),
        ranks=ranks,
        planned=planned,
        discard=_flag("discard", state["discard"]),
        means=_means(state["means"]),
        gradients=_gradients(state["gradients"], state["holds"]),
    )
    if _count("micro_steps", state["micro_steps"]) != saved.micro_steps:
        raise wrong("micro_steps", state["micro_steps"], f"`ranks` says {saved.micro_steps}; the state was changed since it was saved")
    if not saved.ranks and (saved.gradients or saved.means):
        raise wrong("ranks", state["ranks"], "must tell what each rank had done, for there are gradients or means of an open window")
    return saved


def _count(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise wrong(key, value, "must be a count, an int of at least 0")
    return value


def _flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise wrong(key, value, "must be True or False")
    return value


def _text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise wrong(key, value, "must be a text")
    return value


def _number(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(key, value, "must be a number")
    try:
        return float(value)
    except OverflowError:
        raise wrong(key, value, "must be a number that a float can hold") from None


def _list(key: str, value: object) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise wrong(key, value, "must be a list")
    return value


def _ranks(value: object) -> tuple[tuple[Done, ...], tuple[int, ...]]:
    rows = []
    for rank, row in enumerate(_list("ranks", value)):
        key = f"ranks[{rank}]"
        if len(_list(key, row)) != _ROW:
            raise wrong(key, row, f"must be {_ROW} counts")
        *done, planned = (_count(f"{key}[{i}]", entry) for i, entry in enumerate(row))
        one = Done(*done)
        if one.skips > one.micro_steps or one.item_steps > one.micro_steps:
            raise wrong(key, row, "skips, or tells items of, more micro-steps than there were")
        if one.items and not one.item_steps:
            raise wrong(key, row, "has items, and no micro-step that told them")
        if planned and planned < one.micro_steps:
            raise wrong(key, row, "has done more micro-steps than its window was to have")
        rows.append((one, planned))
    if rows and not any(done.micro_steps for done, _ in rows):
        raise wrong("ranks", value, "no rank has done a micro-step, so no window is open, and the list must be empty")
    return tuple(done for done, _ in rows), tuple(planned for _, planned in rows)


def _means(value: object) -> dict[str, tuple[float, float]]:
    means = {}
    for i, entry in enumerate(_list("means", value)):
        key = f"means[{i}]"
        if len(_list(key, entry)) != len(("name", "total", "count")):
            raise wrong(key, entry, "must be a name, a total and a count")
        name, total, count = _text(key, entry[0]), _number(key, entry[1]), _number(key, entry[2])
        if name in means:
            raise wrong(key, entry, "the name is there twice")
        if not count > 0:
            raise wrong(key, entry, "the count must be positive")
        means[name] = (total, count)
    if len(means) > MAX_SCALARS:
        raise wrong("means", value, f"{len(means)} names; at most {MAX_SCALARS}")
    return means


def _gradients(value: object, holds: object) -> Mapping[str, torch.Tensor]:
    if not isinstance(value, Mapping):
        raise wrong("gradients", value, "must be a dict of tensors by parameter name")
    wanted = [_text("holds", name) for name in _list("holds", holds)]
    for name in wanted:
        if name not in value:
            raise wrong(
                f"gradients[{name!r}]",
                None,
                "it is missing, and `holds` names it: the window was open when it was saved. Load it with "
                "gradgate.checkpoint.load(…) in place of torch.distributed.checkpoint.load(…); with torch.load, give all that was saved",
            )
    for name in value:
        if name not in wanted:
            raise wrong(f"gradients[{name!r}]", value[name], "`holds` does not name it; the state was changed since it was saved")
    return value
