"""How many backwards this process has begun, for whoever watches a loop: hooks on a tensor miss one that ran before they were there.

torch.autograd.backward is replaced while anybody counts; Tensor.backward calls it by that name. Thread class: any.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

_begun = 0
_watchers = 0
_restore: list[Callable[[], None]] = []


def begun() -> int:
    """Since the start, while counted; without those inside another backward (recomputation)."""
    return _begun


def count() -> None:
    global _watchers  # noqa: PLW0603 - one per process, as torch.autograd is
    _watchers += 1
    if _watchers > 1:
        return
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> None:
        global _begun  # noqa: PLW0603
        if torch._C._current_graph_task_id() == -1:
            _begun += 1
        original(*args, **kwargs)

    def restore() -> None:
        if torch.autograd.backward is backward:  # nobody has wrapped it since
            torch.autograd.backward = original

    torch.autograd.backward = backward
    _restore.append(restore)


def ignore() -> None:
    """Ends one count()."""
    global _watchers  # noqa: PLW0603
    _watchers -= 1
    if _watchers == 0:
        _restore.pop()()
