"""Models wrapped by FSDP2 in all ways, and the comparison of deferring with reducing each micro-step."""

from __future__ import annotations

import contextlib
import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import counting
import exact
import sharded
import torch
from gradgate.adapters import fsdp2
from gradgate.adapters.base import Plan
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def make(mesh: Any, policy: Any = None, dtype: Any = None) -> Any:
    net = sharded.Net(dtype or torch.float64)
    for block in net.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy or MixedPrecisionPolicy())
    return fully_shard(net, mesh=mesh, mp_policy=policy or MixedPrecisionPolicy())


def replicated(mesh: Any) -> Any:
    net = sharded.Net()
    old = "mesh" not in inspect.signature(replicate).parameters  # before torch 2.10: two dimensions, and another name for them
    given: Any = (
        {"device_mesh": init_device_mesh("cpu", (mesh.size(), 1), mesh_dim_names=("replicate", "shard"))} if old else {"mesh": mesh}
    )
    for part in (*net.blocks, net):
        cast(Any, replicate)(part, **given)
    return net


def grouped(mesh: Any) -> Any:
    net = sharded.Net()
    fully_shard([net.blocks[0], net.blocks[1]], mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net


def adapted(net: Any, keep: bool = False) -> Any:
    [adapter] = fsdp2.find(net)
    adapter.configure(bucket_mb=None, wire=None, keep_params=keep)
    return adapter


def refusal(function: Callable[[], object]) -> str:
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _uncounted() -> contextlib.AbstractContextManager[Counter[str]]:
    return contextlib.nullcontext(Counter())


def parity(
    rank: int,
    world: int,
    mesh: Any,
    windows: Any,
    late: Any = (),
    plan: Plan = Plan.ACCUMULATE,
    *,
    build: Callable[[Any], Any] = make,
    around: Any = None,
    keep: bool = False,
    counted: bool = True,
    optimizer: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Whether deferring leaves the parameters that reducing each micro-step leaves, and both's counts. `late`: indices of windows."""
    profiled: Callable[[], Any] = counting.profiled if counted else _uncounted
    plain, net = build(mesh), build(mesh)
    plain.around = net.around = around
    with profiled() as plain_counts:
        sharded.reduce_each(plain, windows, rank, world, sharded.stepping(plain, **(optimizer or {})))
    adapter = adapted(net, keep)
    with profiled() as counts:
        sharded.deferred(net, adapter, windows, rank, world, sharded.stepping(net, **(optimizer or {})), plan, late)
    adapter.close()
    return {
        "same": exact.parameter_hash(net.parameters()) == exact.parameter_hash(plain.parameters()),
        "moved": any(bool(p.full_tensor().any()) for p in net.parameters()),
        "counts": dict(counts),
        "plain": dict(plain_counts),
        "left": [name for group in adapter._groups for name in group.__dict__ if name == "post_backward"],
    }
