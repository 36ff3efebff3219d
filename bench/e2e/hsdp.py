"""HSDP over two nodes of two ranks each: sharded inside a node, replicated across."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradgate
from loops import Trainer, calibrate, model
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard


def sharded(options: dict[str, Any], mesh: DeviceMesh) -> Trainer:
    """Groups of two layers."""
    layers = model(options["layers"], options["width"])
    for i in range(0, len(layers), 2):
        fully_shard([layers[i], layers[i + 1]], mesh=mesh)
    fully_shard(layers, mesh=mesh)
    return Trainer(layers, options["width"], options["batch"])


def attached(trainer: Trainer, mode: str, *, keep_params: bool = False) -> Callable[[], None]:
    sync = gradgate.attach(trainer.module, trainer.optimizer, accumulate=len(trainer.data), mode=mode, keep_params=keep_params)
    return trainer.gated(sync)


def run(bench: Any) -> None:
    options = bench.options
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    inside = sharded(options, mesh["shard"])  # never leaves the node: computing, and what sharding costs
    by_hand = sharded(options, mesh)

    def replica(last: bool) -> None:
        by_hand.module.set_requires_all_reduce(last)

    def window(last: bool) -> None:
        by_hand.module.set_requires_gradient_sync(last)

    calibrate(bench, by_hand.every, inside.every, options["share"], options["rate"])
    replica_gated, window_gated = (sharded(options, mesh) for _ in range(2))
    arms = {
        "computing": inside.every,
        "every": by_hand.every,
        "replica_by_hand": lambda: by_hand.flagged(replica),
        "window_by_hand": lambda: by_hand.flagged(window),
        "replica": attached(replica_gated, "window_replica"),
        "window": attached(window_gated, "window"),
    }
    bench.measure(arms, options["rounds"])
