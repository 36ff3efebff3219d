"""What torch.distributed.checkpoint.load is to fill, laid out as the checkpoint has it: parameter groups and schedulers' lists.

DCP reads the paths of the dict it is given and no others ("optim.param_groups.0.lr"). Into 28 groups it reads the first 28 of a
checkpoint's 465, and says nothing; into 465 it misses param_groups.28 of a checkpoint with 28. So the dict has to have the checkpoint's:

    wanted = {"optim": get_optimizer_state_dict(model, optimizer), "scheduler": scheduler.state_dict()}  # and the model's, and more
    saved = dcp_layout(wanted, reader)
    dcp.load(saved, storage_reader=reader)
    optim, schedule = regroup_state_dict(saved["optim"], saved["scheduler"], target=wanted["optim"])
    set_optimizer_state_dict(model, optimizer, optim); scheduler.load_state_dict(schedule)

Needs neither a process group nor a distributed build; every rank does the same from the same metadata.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from ..errors import InvalidArgument
from .schedulers import PER_GROUP

if TYPE_CHECKING:
    from torch.distributed.checkpoint import StorageReader

Path = tuple[str | int, ...]

SHOWN = 4  # so many names in an error, then their number


def dcp_layout(state_dict: Mapping[str, Any], storage_reader: StorageReader) -> dict[str, Any]:
    """`state_dict` in the layout of the reader's checkpoint, for dcp.load; regroup_state_dict then brings it back into its own.

    state_dict is what one would give to dcp.load: an optimizer's state from get_optimizer_state_dict, or a dict that holds such ones. Each
    optimizer's param_groups, and the lists in the schedulers' states beside it, are replaced by empty ones as the checkpoint has them. The
    tensors of `state` are the given ones, which dcp.load fills in place; lists and dicts that it writes to are copies. An object with
    state_dict and load_state_dict (DCP's Stateful) that holds such a state is replaced by that, and is the caller's to load in the end.
    An optimizer in the flattened form fits any groups: its keys come back in the checkpoint's order.
    Errors: InvalidArgument where the reader has no metadata, `state_dict` has neither an optimizer's nor a scheduler's state, the
    checkpoint has no such optimizer at that place or has it in another form, or lacks state of one of its parameters.
    """
    layout = _Layout(_metadata(storage_reader))
    given = {key: _resolved(value) for key, value in state_dict.items()}
    made = layout.of(given, ())
    if not layout.found:
        raise InvalidArgument(
            f"there is no optimizer's state in the given dict, which has {_some(given)}: give what dcp.load is to fill, "
            "with get_optimizer_state_dict(model, optimizer) in it"
        )
    return {key: state_dict[key] if value is given[key] else value for key, value in made.items()}


class _Layout:
    """What the checkpoint has, by path; `found` counts the states that were laid out."""

    def __init__(self, metadata: Any) -> None:
        paths: Mapping[str, Path] = metadata.planner_data or {}  # none where the planner did not flatten: each entry is whole then
        kinds: Mapping[str, Any] = metadata.state_dict_metadata
        names = [*(key for key in paths if key in kinds), *(key for key in kinds if key not in paths)]  # in the saved dict's order
        self.leaves = {tuple(paths.get(key, (key,))): kinds[key] for key in names}
        self.above = {path[:length] for path in self.leaves for length in range(len(path) + 1)}
        self.groups: dict[Path, int] = {}  # by the place of the optimizer, its number of groups
        for path in self.above:
            if len(path) > 1 and path[-2] == "param_groups" and isinstance(path[-1], int):
                self.groups[path[:-2]] = max(self.groups.get(path[:-2], 0), path[-1] + 1)
        self.found = 0

    def of(self, value: Any, at: Path) -> Any:
        """The value itself where there is nothing to lay out in it."""
        if isinstance(value, Mapping):
            if self._counted(_is_optimizer(value)):
                return self._optimizer(value, at)
            if self._counted(_is_flattened(value)):
                return self._flattened(value, at)
            if self._counted(_is_scheduler(value)):
                return {key: self._scheduler_entry(held, (*at, str(key))) for key, held in value.items()}
            made = {key: self.of(held, (*at, str(key))) for key, held in value.items()}
            return made if any(made[key] is not held for key, held in value.items()) else value
        if isinstance(value, list):
            held = [self.of(one, (*at, place)) for place, one in enumerate(value)]
            return held if any(new is not old for new, old in zip(held, value, strict=True)) else value
        return value

    def _counted(self, found: bool) -> bool:
        self.found += found
        return found

    def _optimizer(self, given: Mapping[str, Any], at: Path) -> dict[str, Any]:
        groups: list[Any] = given["param_groups"]
        if any(isinstance(name, int) for group in groups for name in group["params"]):
            raise InvalidArgument(
                f"{_dotted(at)} numbers its parameters, as optimizer.state_dict() does, and the numbers depend on the groups: "
                "save and load get_optimizer_state_dict(model, optimizer), or use torch.save"
            )
        whole = self._whole((*at, "param_groups"))
        if not whole and at not in self.groups:
            raise InvalidArgument(self._absent(at, "flatten_optimizer_state_dict=True"))
        state: Mapping[str, Any] = given["state"]
        self._check_state([(*at, "state", str(name), str(key)) for name, held in state.items() for key in held], at)
        made = dict(given) | {"state": _copied(state)}
        made["param_groups"] = groups if whole else self._empty((*at, "param_groups"), groups)
        return made

    def _flattened(self, given: Mapping[str, Any], at: Path) -> dict[str, Any]:
        names = [path[-1] for path in self.leaves if path[:-1] == at and str(path[-1]).startswith(("state.", "param_groups."))]
        if not names:
            raise InvalidArgument(self._absent(at, "flatten_optimizer_state_dict=False"))
        self._check_state([(*at, key) for key in given if key.startswith("state.")], at)
        ordered = [str(name) for name in names if name in given]
        return {key: given[key] for key in [*ordered, *(key for key in given if key not in set(ordered))]}

    def _scheduler_entry(self, value: Any, at: Path) -> Any:
        if not isinstance(value, list) or any(map(_is_scheduler, value)):
            return self.of(value, at)
        if at not in self.above and at[-1] != "lr_lambdas":
            return list(value)
        made = self._empty(at, value) if at in self.above else []
        if isinstance(made, list) and at[-1] == "lr_lambdas" and len(set(self.groups.values())) == 1:
            made += [{} for _ in range(len(made), *self.groups.values())]  # dicts with nothing in them leave no path
        return made

    def _whole(self, at: Path) -> bool:
        """As one entry, with whatever is in it: what torch before 2.4 did with parts that have no tensors."""
        return any(at[:length] in self.leaves for length in range(len(at) + 1))

    def _check_state(self, needed: Iterable[Path], at: Path) -> None:
        missing = [path for path in needed if path not in self.above and not self._whole(path)]
        if missing:
            raise InvalidArgument(
                f"the checkpoint lacks {_some(map(_dotted, missing))}: its {_dotted(at)} was saved with another optimizer or with fewer "
                "trained parameters; leave these out of the given state, and load with StateDictOptions(strict=False), to begin them anew"
            )

    def _absent(self, at: Path, other: str) -> str:
        flattened = {path[:-1] for path in self.leaves if str(path[-1]).startswith("param_groups.")}
        if at in {*self.groups, *flattened}:
            return f"the checkpoint has {_dotted(at)} as get_optimizer_state_dict gives it with {other}: get it so to load it"
        places = sorted(map(_dotted, {*self.groups, *flattened}))
        return (
            f"the checkpoint has no optimizer at {_dotted(at)}; it has {'one at ' + _some(places) if places else 'none'}: "
            "give dcp_layout a dict with the keys of the one that was saved"
        )

    def _empty(self, at: Path, like: list[Any]) -> Any:
        """What is under this path: None for each object, and uninitialised tensors on the device where `like` has such."""
        below = {path[len(at) :]: path for path in self.leaves if path[: len(at)] == at}
        return _nested({path: _placeholder(self.leaves[whole], like, path[1:]) for path, whole in below.items()})


def _metadata(reader: Any) -> Any:
    try:
        metadata = reader.read_metadata()
    except Exception as failed:  # whatever the storage raises
        metadata = _own_metadata(reader)
        if metadata is None:
            raise InvalidArgument(
                f"{type(reader).__name__} has no metadata ({type(failed).__name__}: {failed}): give the reader of a complete checkpoint "
                "that torch.distributed.checkpoint.save has written"
            ) from failed
    if getattr(metadata, "state_dict_metadata", None) is None:
        raise InvalidArgument(f"{type(reader).__name__}.read_metadata() gave {type(metadata).__name__}: that is no checkpoint's metadata")
    return metadata


def _own_metadata(reader: Any) -> Any:
    """This rank's: all there is of a checkpoint that was saved with use_collectives=False."""
    group = torch.distributed
    rank = group.get_rank() if group.is_available() and group.is_initialized() else 0
    with contextlib.suppress(Exception):
        return reader.read_metadata(rank=rank)


def _resolved(value: Any) -> Any:
    stateful = not isinstance(value, Mapping) and hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
    return value.state_dict() if stateful else value


def _is_optimizer(value: Mapping[str, Any]) -> bool:
    groups = value.get("param_groups")
    has_groups = isinstance(groups, list) and all(isinstance(group, Mapping) and "params" in group for group in groups)
    return has_groups and isinstance(value.get("state"), Mapping)


def _is_flattened(value: Mapping[str, Any]) -> bool:
    return any(isinstance(key, str) and key.startswith("param_groups.") for key in value)


def _is_scheduler(value: object) -> bool:
    return isinstance(value, Mapping) and any(isinstance(value.get(key), list) for key in (*PER_GROUP, "_schedulers"))


def _copied(value: Any) -> Any:
    """The dicts and lists copied, what is in them shared."""
    if isinstance(value, Mapping):
        return {key: _copied(held) for key, held in value.items()}
    return [_copied(held) for held in value] if isinstance(value, list) else value


def _nested(leaves: dict[Path, Any]) -> Any:
    if () in leaves:
        return leaves[()]
    parts: dict[str | int, dict[Path, Any]] = {}
    for path, value in leaves.items():
        parts.setdefault(path[0], {})[path[1:]] = value
    if not all(isinstance(key, int) for key in parts):
        return {key: _nested(part) for key, part in parts.items()}
    return [_nested(parts[place]) if place in parts else {} for place in range(max(map(int, parts)) + 1)]


def _placeholder(kind: Any, like: list[Any], path: Path) -> torch.Tensor | None:
    if not hasattr(kind, "properties"):
        return None
    return torch.empty(kind.size, dtype=kind.properties.dtype, device=_device_of(like, path))


def _device_of(like: list[Any], path: Path) -> torch.device:
    for value in like:
        held = value.get(path[0]) if path and isinstance(value, Mapping) else value
        if isinstance(held, torch.Tensor):
            return held.device
    return torch.device("cpu")


def _dotted(path: Path) -> str:
    return ".".join(map(str, path)) or "the top of the dict"


def _some(names: Iterable[Any]) -> str:
    listed = [str(name) for name in names]
    return ", ".join(listed[:SHOWN]) + (f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else "")
