"""Parameters kept unsharded from a window's first forward to its last backward: one all-gather per group and window."""

from __future__ import annotations

from typing import Any

from .fsdp2_state import groups_of, reshard, shard_group


class Keep:
    """Writes what set_reshard_after_forward and set_reshard_after_backward write, and what was there before once a window is over.

    While parameters are kept, those registered in the module are plain tensors whose values an optimizer does not update: release()
    before a step, or the next forward runs on old weights.
    """

    def __init__(self, root: Any, states: list[Any]) -> None:
        self._root = root
        self._states = states
        self._groups = [g for state in states for g in groups_of(state) if (pg := shard_group(g)) is not None and pg.size() > 1]
        self._former: list[tuple[Any, bool]] | None = None

    def __bool__(self) -> bool:
        return bool(self._groups)

    def unsharded_bytes(self) -> int:
        """What a rank holds on top of its shards while all parameters are unsharded."""
        total = 0
        for group in self._groups:
            for p in group.fsdp_params:
                kind = group.mp_policy.param_dtype or p.sharded_param.dtype
                total += p._orig_size.numel() * kind.itemsize
        return total

    def hold(self, last: bool) -> None:
        """Before a forward: not resharded after it, and after its backward only in the `last` micro-step."""
        if self._former is None:
            self._former = [(self._mesh_of(g), g.reshard_after_backward) for g in self._groups]
        for group, (_, backward) in zip(self._groups, self._former, strict=True):
            group.post_forward_mesh_info = None
            group.reshard_after_backward = backward if last else False

    def held(self) -> list[Any]:
        """The groups that are kept now."""
        return self._groups if self._former is not None else []

    def release(self) -> None:
        """Reshards what is unsharded; twice is fine."""
        if self._former is None:
            return
        for group, (mesh, backward) in zip(self._groups, self._former, strict=True):
            group.post_forward_mesh_info = mesh
            group.reshard_after_backward = backward
            reshard(group)
        self._former = None

    def _mesh_of(self, group: Any) -> Any:
        """What will be there when the window is over: lazy initialisation sets the root's to None, unless the user chose."""
        if self._root._is_root is None and group in groups_of(self._root) and getattr(self._root, "_auto_reshard_after_forward", True):
            return None
        return group.post_forward_mesh_info
