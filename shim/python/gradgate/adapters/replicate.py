"""replicate(), the older one, which keeps a DistributedDataParallel beside the module and builds it in the first forward."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from .base import Group, Role
from .comm_hooks import Wire, reduce_in_wire_type
from .ddp import Ddp


def state_of(module: torch.nn.Module) -> Any:
    """Its state, or None if the module itself is not replicated by it; the one over FSDP has another."""
    try:
        from torch.distributed._composable.contract import STATE_KEY  # noqa: PLC0415
        from torch.distributed._composable.replicate import _ReplicateState  # noqa: PLC0415
    except ImportError:
        return None
    states = module.__dict__.get(STATE_KEY, {}).values()
    return next((state for state in states if isinstance(state, _ReplicateState)), None)


class Replicate(Ddp):
    """DDP's flag is set anew from `_no_sync` in each forward. Buffers are not broadcast: DDP wraps the parameters alone."""

    kind = "replicate"

    def __init__(self, module: torch.nn.Module, state: Any) -> None:
        self._state = state
        super().__init__(module)
        self._set_flag(state.__dict__, "_no_sync", False)

    @property
    def _ddp(self) -> Any:
        return self._state.__dict__.get("_ddp")

    def groups(self) -> list[Group]:
        if self._ddp is not None:
            return super().groups()
        given, mesh = (self._state._init_kwargs.get(name) for name in ("process_group", "device_mesh"))
        group = given if given is not None else mesh.get_group(mesh_dim=0) if mesh is not None else dist.group.WORLD
        return [Group(group, Role.DP)]

    def parameters(self) -> list[torch.nn.Parameter]:
        if self._ddp is not None:
            return super().parameters()
        ignored = {id(p) for module in self._state._init_args[1] for p in module.parameters()}
        return [p for p in self.module.parameters() if p.requires_grad and id(p) not in ignored]

    def _set_bucket_bytes(self, size: int) -> None:
        if self._ddp is not None:
            super()._set_bucket_bytes(size)
        else:
            self._state._init_kwargs["bucket_cap_mb"] = size / 2**20

    def _register_hook(self, state: Wire) -> None:
        if self._ddp is not None:
            super()._register_hook(state)
        else:
            state.process_group = self.groups()[0].process_group
            self._state._comm_hook_args.append(((state, reduce_in_wire_type), {}))

    def _user_hook(self) -> str:
        if self._ddp is not None or self._wire is not None:
            return super()._user_hook()
        hooks = self._state._comm_hook_args
        return getattr(hooks[0][0][-1], "__qualname__", "a hook") if hooks else ""
