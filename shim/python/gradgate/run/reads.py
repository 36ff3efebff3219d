"""Whether a script reads gradients by itself: a norm of its own, say, between the backward and the step.

Where reductions wait for the step such code would see this rank's share alone. What torch reads is no matter: its optimizers, clipping and
unscaling are guarded. `grad` is a property of the parameters' classes while anybody watches. Thread class: any.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import torch

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_GUARDED = (f"nn{os.sep}utils{os.sep}clip_grad.py", f"amp{os.sep}grad_scaler.py")  # enforced, gradients are reduced from there on
# They look at what kind of tensor a gradient is, and clip through torch.
_HARMLESS = (f"{os.sep}accelerate{os.sep}accelerator.py", f"{os.sep}transformers{os.sep}trainer.py")
_grad: Any = torch._C.TensorBase.grad
_watchers: dict[int, Reads] = {}  # by parameter
_kinds: list[type] = []
_rounds = itertools.count()


class Reads:
    """`told`: of a read by anybody else, with its file and line. `guarded`: one by torch before which enforcing would have reduced."""

    def __init__(self, parameters: Iterable[torch.Tensor], told: Callable[[str], None], guarded: Callable[[], None]) -> None:
        self._parameters = list(parameters)  # their ids stay theirs
        self._told = told
        self._guarded = guarded
        for parameter in self._parameters:
            _watchers[id(parameter)] = self
            _watch(type(parameter))

    def close(self) -> None:
        for parameter in self._parameters:
            _watchers.pop(id(parameter), None)
        while _kinds and not _watchers:
            del _kinds.pop().grad  # type: ignore[attr-defined]

    def see(self, frame: FrameType) -> None:
        name = frame.f_code.co_filename
        if name.startswith(_TORCH):
            if name.endswith(_GUARDED):
                self._guarded()
        elif not name.startswith(_OURS) and not name.endswith(_HARMLESS):
            self._told(f"{name}:{frame.f_lineno}")


class Early:
    """Reads of gradients that an enforced window would not have reduced yet. `holds`: whether an open window has any."""

    def __init__(self, parameters: Iterable[torch.Tensor], holds: Callable[[], bool], tell: Callable[[str], None] | None = None) -> None:
        self.where = ""  # the first one
        self._tell = tell
        self.reduced = False  # from here to the end of the window gradients are what the step needs, enforced or not
        self._holds = holds
        self._reads = Reads(parameters, self._told, self._guarded)
        self.close = self._reads.close

    def _told(self, where: str) -> None:
        if self.where or self.reduced or not self._holds() or torch._C._current_graph_task_id() != -1:
            return
        self.where = where
        if self._tell is not None:
            self._tell(where)

    def _guarded(self) -> None:
        self.reduced = True


class Notice:
    """What one rank tells all of a window that has not been reduced yet: each finds it once it is. `window`: the index of the open one."""

    def __init__(self, group: Any, window: Callable[[], int]) -> None:
        self._window = window
        distributed = torch.distributed
        prefix = f"gradgate/run/notice/{group.group_name}/{next(_rounds)}"
        self._store = distributed.PrefixStore(prefix, distributed.distributed_c10d._get_default_store())

    def give(self, text: str) -> None:
        window = self._window()
        self._store.set(f"text/{window}", text)
        self._store.add(f"given/{window}", 1)  # answers when the store has both

    def given(self) -> str:
        """Of the window before the open one. Later ones may have been told of by ranks that are ahead."""
        window = self._window() - 1
        return self._store.get(f"text/{window}").decode() if self._store.check([f"given/{window}"]) else ""


def agreed(group: Any, told: str) -> list[str]:
    """What each rank of the group tells. All call it, as often as the others."""
    distributed = torch.distributed
    ranks = distributed.get_process_group_ranks(group)
    store = distributed.PrefixStore(f"gradgate/run/{group.group_name}/{next(_rounds)}", distributed.distributed_c10d._get_default_store())
    store.set(str(distributed.get_rank()), told or "-")
    return [text if text != "-" else "" for text in (store.get(str(rank)).decode() for rank in ranks)]


def _get(tensor: torch.Tensor) -> torch.Tensor | None:
    watcher = _watchers.get(id(tensor))
    if watcher is not None:
        watcher.see(sys._getframe(1))
    gradient: torch.Tensor | None = _grad.__get__(tensor)
    return gradient


def _watch(kind: type) -> None:
    if kind.grad is _grad and kind is not torch.Tensor:  # type: ignore[attr-defined]
        kind.grad = property(_get, _grad.__set__, _grad.__delete__)  # type: ignore[attr-defined]
        _kinds.append(kind)
