"""Lightning's checkpoints, for an optimizer whose groups are merged. Lightning itself is not imported.

In a LightningModule, one line; in a Callback the same with its arguments:

    def on_load_checkpoint(self, checkpoint):
        gradgate.param_groups.regroup_checkpoint(checkpoint)

Lightning calls this before it makes the optimizers (after, with its strategies for FSDP and DeepSpeed), and loads afterwards what it finds
in the checkpoint. Strategies that read an optimizer's state from the files themselves (ModelParallelStrategy, FSDP's and DeepSpeed's
sharded files) have none in there: nothing is done then.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from ..errors import InvalidArgument
from . import layout, settings
from .regroup import regroup_state_dict
from .schedulers import PER_GROUP

STATES, SCHEDULERS = "optimizer_states", "lr_schedulers"
_log = logging.getLogger("gradgate")


def regroup_checkpoint(
    checkpoint: MutableMapping[str, Any], optimizers: Any = (), *, ignore: Collection[str] = (), per_group: Collection[str] = ()
) -> None:
    """Regroups checkpoint["optimizer_states"] and checkpoint["lr_schedulers"] in place, for the optimizers that will load them.

    `optimizers`: those, in the checkpoint's order, or whatever configure_optimizers() returns; `self.configure_optimizers()` will do, as
    nothing is kept of it but the layout. Without, each saved optimizer is grouped as merge() would, and parameters without state are taken
    for frozen: enough for a checkpoint of before into merged optimizers, but not for the way back. A scheduler is regrouped with the
    optimizer that it was configured with, or else with that whose number of groups and initial learning rates are its own.
    `ignore`, `per_group`: as regroup_state_dict has them.
    A dict without these keys, and what fits already, is left as it is. All is done or nothing.
    Errors: InvalidArgument, where regroup_state_dict refuses, for another number of optimizers than was saved, and for a scheduler that
    could belong to several optimizers with a different result.
    """
    if not isinstance(checkpoint, MutableMapping):
        raise InvalidArgument(f"the checkpoint is {type(checkpoint).__name__}; give the dict that on_load_checkpoint gets, or torch.load's")
    states, schedulers = checkpoint.get(STATES), checkpoint.get(SCHEDULERS)
    if not isinstance(states, list) or not states:
        return
    targets, owners = _configured(optimizers)
    if not targets and optimizers != () and optimizers is not None:
        raise InvalidArgument(f"there is no optimizer in {type(optimizers).__name__}; give self.configure_optimizers(), or nothing")
    if targets and len(targets) != len(states):
        raise InvalidArgument(
            f"the checkpoint has the state of {len(states)} optimizers, and {len(targets)} were given: "
            "give all that will load it, in its order"
        )
    saved = _Saved(states, targets or [None] * len(states), {"ignore": ignore, "per_group": per_group})
    given = schedulers if isinstance(schedulers, list) else []
    if len(owners) != len(given):
        owners = [None] * len(given)
    regrouped = [saved.scheduler(number, state, owner) for number, (state, owner) in enumerate(zip(given, owners, strict=True))]
    checkpoint[STATES] = [saved.regrouped(index)[0] for index in range(len(states))]
    if given:
        checkpoint[SCHEDULERS] = regrouped


class _Saved:
    """The optimizers' states of one checkpoint, and the optimizers that will load them, None where they are not known."""

    def __init__(self, states: Sequence[Any], targets: Sequence[Any], options: dict[str, Collection[str]]) -> None:
        self.options = options
        self.states = states
        self.targets = [_trained(place, states[place]) if target is None else target for place, target in enumerate(targets)]

    def regrouped(self, index: int, scheduler: Any = None) -> tuple[Any, Any]:
        try:
            return regroup_state_dict(self.states[index], scheduler, target=self.targets[index], **self.options)
        except InvalidArgument as refused:
            raise InvalidArgument(f"checkpoint['{STATES}'][{index}]: {refused}") from refused

    def scheduler(self, number: int, state: Any, owner: int | None) -> Any:
        lists = list(_lists(state))
        if owner is not None or len(self.states) == 1:
            return self.regrouped(owner or 0, state)[1]
        candidates = [index for index, saved in enumerate(self.states) if _belongs(lists, saved)]
        # At the checkpoint, too, the learning rates of the one it belongs to are what the scheduler had set.
        exact = [index for index in candidates if _rates(self.states[index], "lr", state.get("_last_lr", ()))]
        candidates = exact or candidates
        if len(candidates) == 1:
            return self.regrouped(candidates[0], state)[1]
        found = [self._attempt(index, state) for index in candidates or range(len(self.states))]
        if any(settings.fingerprint(one) != settings.fingerprint(found[0]) for one in found):
            fits = f"fits {' and '.join(map(str, candidates))}" if candidates else f"fits none of the {len(self.states)}"
            raise InvalidArgument(
                f"which optimizer checkpoint['{SCHEDULERS}'][{number}] belongs to cannot be told, it {fits}: give what "
                "configure_optimizers() returns as second argument, or call regroup_state_dict for each optimizer with its own schedulers"
            )
        if isinstance(found[0], InvalidArgument):
            raise found[0]
        return found[0]

    def _attempt(self, index: int, state: Any) -> Any:
        try:
            return self.regrouped(index, state)[1]
        except InvalidArgument as refused:
            return refused


def _trained(place: int, state: Any) -> Any:
    """A target without the parameters that no state was saved for, which are frozen most likely; None where there are none, or it fits."""
    saved = layout.of_state_dict(state)
    if saved is None or not saved.idle or saved.merged(()).sizes == saved.sizes:
        return None
    _log.warning(
        "param_groups: checkpoint['%s'][%d] has no state for %d of %d parameters: they are taken for frozen and left out, as merge() does; "
        "give regroup_checkpoint(checkpoint, self.configure_optimizers()) where the optimizer has them",
        *(STATES, place, len(saved.idle), len(saved.flat)),
        extra={"reason": "frozen_assumed"},
    )
    wanted = saved.without_idle().merged(())
    names = wanted.names or [[] for _ in wanted.keys]
    groups = [
        {**held, "params": keys, **({"param_names": called} if called else {})}
        for held, keys, called in zip(wanted.settings, wanted.keys, names, strict=True)
    ]
    return {"state": saved.state, "param_groups": groups}


def _configured(given: Any) -> tuple[list[Any], list[int | None]]:
    """The optimizers in what configure_optimizers() may return, and for each scheduler in it its optimizer's place."""
    optimizers: list[Any] = []
    schedulers: list[Any] = []

    def take(held: Any) -> None:
        if hasattr(held, "param_groups"):
            optimizers.append(held)
        elif hasattr(held, "optimizer") and hasattr(held, "load_state_dict"):
            schedulers.append(held)
        elif isinstance(held, Mapping):
            for key in ("optimizer", "lr_scheduler", "scheduler"):
                take(held.get(key))
        elif isinstance(held, list | tuple):
            for one in held:
                take(one)

    take(given)
    places = {id(optimizer.param_groups): place for place, optimizer in enumerate(optimizers)}
    return optimizers, [places.get(id(scheduler.optimizer.param_groups)) for scheduler in schedulers]


def _lists(state: Any) -> Iterator[tuple[str, list[Any]]]:
    """What a scheduler's state, and those it holds, have for each group."""
    if isinstance(state, Mapping):
        for key, value in state.items():
            if key in PER_GROUP and isinstance(value, list):
                yield key, value
            else:
                yield from _lists(value)
    elif isinstance(state, list | tuple):
        for value in state:
            yield from _lists(value)


def _rates(state: Mapping[str, Any], key: str, values: Sequence[Any]) -> bool:
    return settings.fingerprint([group.get(key) for group in state["param_groups"]]) == settings.fingerprint(values)


def _belongs(lists: list[tuple[str, list[Any]]], state: Any) -> bool:
    if not isinstance(state, Mapping) or not isinstance(state.get("param_groups"), list):
        return False
    count = len(state["param_groups"])
    return all(len(values) == count and (name != "base_lrs" or _rates(state, "initial_lr", values)) for name, values in lists)
