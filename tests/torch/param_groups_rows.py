"""What the tests of parameter groups compare on ranks whose parameters are sharded by FSDP2."""

from __future__ import annotations

from typing import Any

import grouped_model
import grouped_runs
import torch
from gradgate.param_groups import merge, merge_optimizer
from grouped_runs import IMPLEMENTATIONS, MIDDLE, STEPS, WAYS, Kind
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

ADAMW, SGD = Kind("AdamW", base_lr=1e-3), Kind("SGD", {"momentum": 0.9}, base_lr=0.1)


def two_ranks(rank: int, world: int) -> dict[str, Any]:
    """Of each implementation and way of merging, what differs in this rank's shards."""
    rows: dict[str, Any] = {}
    wanted = [(ADAMW, "for-loop", WAYS[1:]), (ADAMW, "foreach", WAYS), (ADAMW, "fused", WAYS[1:]), (SGD, "foreach", WAYS[1:])]
    for kind, name, ways in wanted:
        plain = Trained(kind, name, "unmerged")
        for way in ways:
            merged = Trained(kind, name, way)
            rows[f"{kind}, {name}, {way}"] = {
                "differ": grouped_runs.differences(plain.tensors, merged.tensors),
                "groups": len(merged.optimizer.param_groups),
                "settings kept": plain.settings == merged.settings,
                "sharded": sum(isinstance(tensor, DTensor) for tensor in merged.names),
                "moved": merged.moved >= 0.9 * grouped_model.TENSORS,  # softmax lets no gradient through to the biases of keys
            }
    empty = [name for tensor, name in plain.names.items() if tensor.to_local().numel() == 0]
    return {"rows": rows, "empty": sorted(empty), "refused": refusal(), "in part": in_part()}


def in_part() -> dict[str, Any]:
    """Blocks and layers are sharded, what is around them is not: tensors of two kinds with the same settings."""
    plain, merged = (Trained(ADAMW, "foreach", way, whole_model=False) for way in ("unmerged", WAYS[0]))
    kinds = [len({isinstance(tensor, DTensor) for tensor in group["params"]}) for group in merged.optimizer.param_groups]
    return {"differ": grouped_runs.differences(plain.tensors, merged.tensors), "groups": len(kinds), "kinds in each": set(kinds)}


def build(whole_model: bool = True) -> torch.nn.Module:
    """Some blocks and layers are sharded by themselves. A rank has less of tensors whose first dimension is 5, or nothing where it is 1."""
    model: Any = grouped_model.build(narrow=True)
    for part in (*model.blocks[::4], *model.layers[::3]):
        fully_shard(part)
    return fully_shard(model) if whole_model else model  # type: ignore[no-any-return]


class Trained:
    """A training that is over: what the optimizer holds, by name."""

    def __init__(self, kind: Kind, name: str, way: str, whole_model: bool = True) -> None:
        model = build(whole_model)
        groups = kind.groups(model)
        self.optimizer = kind.make(merge(groups) if way == "built merged" else groups, IMPLEMENTATIONS[name])
        before = {tensor: whole(tensor) for tensor, _ in grouped_runs.each(self.optimizer)}
        for step in range(STEPS):
            if way == "merged midway" and step == MIDDLE:
                merge_optimizer(self.optimizer)
            grouped_model.backward(model, step)
            self.optimizer.step()
        every = grouped_runs.names_of(model)
        self.names: dict[Any, str] = {tensor: every[tensor] for tensor in before}
        self.tensors = grouped_runs.held(every, self.optimizer)
        self.settings = grouped_runs.settings(every, self.optimizer)
        self.moved = sum(not torch.equal(whole(tensor), was) for tensor, was in before.items())


def whole(tensor: Any) -> torch.Tensor:
    held = tensor.detach()
    return (held.full_tensor() if isinstance(held, DTensor) else held).clone()  # type: ignore[no-any-return]


def refusal() -> str:
    try:
        Trained(SGD, "fused", "unmerged")
    except NotImplementedError as error:
        return str(error)
    return ""
