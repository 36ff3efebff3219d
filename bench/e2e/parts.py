"""What a micro-step is made of, each part by leaving one out, and whole windows in every mode by hand: what the planner is given, and
what it should predict. Before that a job that gradgate runs, for the planner to measure by itself.

Parts are of loops that never reduce: computing alone; with the forward's all-gathers; with all of them; inside a node with the
reduce-scatter. A reduction is what reducing in every micro-step takes beyond them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradgate
from hsdp import attached, sharded
from loops import Trainer, calibrate, model
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.parallel import DistributedDataParallel


def unreduced(options: dict[str, Any], mesh: DeviceMesh, *, forward: bool, backward: bool, reduced: bool = False) -> Callable[[], None]:
    """A loop that gathers for each forward and each backward, or not; `reduced` only inside the mesh that it is given."""
    trainer = sharded(options, mesh)
    module: Any = trainer.module
    module.set_reshard_after_forward(backward)
    module.set_reshard_after_backward(forward)
    module.set_requires_gradient_sync(reduced)
    return trainer.every


def flagged(options: dict[str, Any], mesh: DeviceMesh, name: str, *, keep: bool = False) -> Callable[[], None]:
    """A mode by hand: the flag that is set in the last micro-step alone, and whether parameters are kept until then."""
    trainer = sharded(options, mesh)
    module: Any = trainer.module
    if keep:
        module.set_reshard_after_forward(False)

    def setter(last: bool) -> None:
        if keep:
            module.set_reshard_after_backward(last)
        getattr(module, name)(last)

    return lambda: trainer.flagged(setter)


def observed(bench: Any, loop: Callable[[], None]) -> Callable[[], None]:
    """Windows of a job that gradgate runs, one after the other; then its daemon is asked for a plan. Returns the loop."""
    for _ in range(bench.options["windows"]):
        loop()
    bench.ask("plan", "")
    return loop


def ddp(bench: Any) -> None:
    options = bench.options
    by_hand, gated = (
        Trainer(DistributedDataParallel(model(options["layers"], options["width"])), options["width"], options["batch"]) for _ in range(2)
    )
    calibrate(bench, by_hand.every, by_hand.unreduced, options["share"], options["rate"])
    sync = gradgate.attach(gated.module, gated.optimizer, accumulate=len(gated.data), mode="window")
    job = observed(bench, gated.gated(sync))
    arms = {"job": job, "computing": by_hand.unreduced, "every_micro_step": by_hand.every, "window": by_hand.no_sync}
    bench.measure(arms, options["rounds"], warm_up=2)


def fsdp(bench: Any) -> None:
    options = bench.options
    mesh = init_device_mesh("cpu", (2,))
    every = sharded(options, mesh).every
    computing = unreduced(options, mesh, forward=False, backward=False)
    calibrate(bench, every, computing, options["share"], options["rate"])
    job = observed(bench, attached(sharded(options, mesh), "window", keep_params=False))
    arms = {
        "job": job,
        "computing": computing,
        "forward": unreduced(options, mesh, forward=True, backward=False),
        "gathers": unreduced(options, mesh, forward=True, backward=True),
        "every_micro_step": every,
        "window": flagged(options, mesh, "set_requires_gradient_sync"),
        "window, parameters kept": flagged(options, mesh, "set_requires_gradient_sync", keep=True),
    }
    bench.measure(arms, options["rounds"])


def hsdp(bench: Any) -> None:
    options = bench.options
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    inside = mesh["shard"]
    every = sharded(options, mesh).every
    shard_sync = unreduced(options, inside, forward=True, backward=True, reduced=True)
    calibrate(bench, every, shard_sync, options["share"], options["rate"])
    job = observed(bench, attached(sharded(options, mesh), "window_replica"))
    arms = {
        "job": job,
        "computing": unreduced(options, inside, forward=False, backward=False),
        "forward": unreduced(options, inside, forward=True, backward=False),
        "gathers": unreduced(options, inside, forward=True, backward=True),
        "shard_sync": shard_sync,
        "every_micro_step": every,
        "window_replica": flagged(options, mesh, "set_requires_all_reduce"),
        "window": flagged(options, mesh, "set_requires_gradient_sync"),
        "window_replica, parameters kept": flagged(options, mesh, "set_requires_all_reduce", keep=True),
        "window, parameters kept": flagged(options, mesh, "set_requires_gradient_sync", keep=True),
    }
    bench.measure(arms, options["rounds"])


def run(bench: Any) -> None:
    {"ddp": ddp, "fsdp": fsdp, "hsdp": hsdp}[bench.options["shape"]](bench)
