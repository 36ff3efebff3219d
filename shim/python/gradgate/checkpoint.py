"""Checkpoints of an attachment: sync.state_dict(), sync.load_state_dict(state), and load() for torch.distributed.checkpoint.

    torch.distributed.checkpoint.save({"model": …, "optim": …, "sync": sync}, checkpoint_id=folder)     # every rank
    gradgate.checkpoint.load({"model": …, "optim": …, "sync": sync}, checkpoint_id=folder)      # also on another number of ranks

Between two windows there is nothing to keep but where the run is. Inside one, all ranks reduce what they have accumulated, as the boundary
would, and keep it aside (checkpoint_kept.py); the state holds that sum, which any number of ranks and any wrapper can load. The run that
saved goes on, and adds the rest of its window to what is aside, as a run does that loads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from . import checkpoint_names
from .checkpoint_format import Saved, wrong
from .checkpoint_load import load_state_dict
from .checkpoint_save import idle_window, state_dict
from .errors import InvalidArgument

if TYPE_CHECKING:
    from .job import Job

__all__ = ["load", "load_state_dict", "state_dict"]


class _Expecting:
    """An attachment as torch.distributed.checkpoint.load is to fill it: it loads in place, so it must be told what there is."""

    def __init__(self, job: Job, metadata: Any, key: str) -> None:
        self._job = job
        paths = {tuple(path): name for name, path in (metadata.planner_data or {}).items()}
        self._kinds = {
            path[2]: metadata.state_dict_metadata[name]
            for path, name in paths.items()
            if len(path) == 3 and path[:2] == (key, "gradients")  # noqa: PLR2004 - key, "gradients", name
        }

    def state_dict(self) -> dict[str, Any]:
        idle_window(self._job, "gradgate.checkpoint.load()")
        parameters = checkpoint_names.parameters(self._job) if self._kinds else {}
        wanted: dict[str, torch.Tensor] = {}
        for name, kind in self._kinds.items():
            parameter = parameters.get(name)
            if parameter is None:
                raise wrong(f"gradients[{name!r}]", None, "the checkpoint has it, and this attachment trains no such parameter")
            wanted[name] = torch.zeros_like(parameter).detach()
            if kind.size != parameter.shape or kind.properties.dtype != wanted[name].dtype:
                raise wrong(
                    f"gradients[{name!r}]",
                    f"{tuple(kind.size)}, {kind.properties.dtype}",
                    f"the parameter has {tuple(parameter.shape)}, {wanted[name].dtype}: attach the model of then",
                )
        return Saved(gradients=wanted).state()

    def load_state_dict(self, state: Any) -> None:
        load_state_dict(self._job, state)


def load(state_dict: dict[str, Any], *, checkpoint_id: Any = None, storage_reader: Any = None, **options: Any) -> None:
    """torch.distributed.checkpoint.load(state_dict, …), also where the checkpoint was saved in the middle of a window. Attachments are
    found at the top of state_dict, under the key that they were saved with. Collective, as that is."""
    import torch.distributed.checkpoint as dcp  # noqa: PLC0415 - takes a while

    from .sync import Sync  # noqa: PLC0415 - which imports this

    if storage_reader is None:
        if checkpoint_id is None:
            raise InvalidArgument("gradgate.checkpoint.load: give checkpoint_id, or a storage_reader")
        storage_reader = dcp.FileSystemReader(checkpoint_id)
    metadata = storage_reader.read_metadata()
    wanted = {key: _Expecting(value._job, metadata, key) if isinstance(value, Sync) else value for key, value in state_dict.items()}
    dcp.load(wanted, checkpoint_id=checkpoint_id, storage_reader=storage_reader, **options)
    state_dict.update((key, value) for key, value in wanted.items() if not isinstance(value, _Expecting))
