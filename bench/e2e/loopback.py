"""DDP on this machine's loopback: what gradgate itself costs, in a window and in a micro-step's enter and exit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradgate
from hsdp import sharded
from loops import Trainer, model
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

NEVER = 2**20  # micro-steps of a window that does not end here


class Nothing:
    """What a `with` statement costs by itself."""

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def repeated(context: Callable[[], Any], times: int) -> Callable[[], None]:
    def loop() -> None:
        for _ in range(times):
            with context():
                pass

    return loop


def repeat(arm: Callable[[], None], times: int) -> Callable[[], None]:
    def loop() -> None:
        for _ in range(times):
            arm()

    return loop


def windows(bench: Any, name: str, layers: int, width: int, batch: int, rounds: int, times: int) -> None:
    """One wrapper for both loops, so that nothing differs but the loop; each has an optimizer of its own, without state."""
    ddp = DistributedDataParallel(model(layers, width))
    by_hand, gated = Trainer(ddp, width, batch), Trainer(ddp, width, batch)
    by_hand.every()
    sync = gradgate.attach(ddp, gated.optimizer, accumulate=len(gated.data), mode="window")
    arms = {f"{name}_by_hand": repeat(by_hand.no_sync, times), f"{name}_gradgate": repeat(gated.gated(sync), times)}
    bench.measure(arms, rounds, warm_up=3)
    counts = sync.stats()
    if counts["late"] or counts["windows"] != counts["windows_full"]:
        raise RuntimeError(f"of {counts['windows']} windows {counts['windows_full']} were full and {counts['late']} late")
    bench.figure(f"{name}_windows_per_turn", times)
    sync.close()


def enter_and_exit(bench: Any, name: str, trainer: Trainer, others: dict[str, Any]) -> None:
    """Suppressed micro-steps with nothing inside, against other contexts."""
    for _ in range(3):  # DDP lays its buckets out anew after the first
        trainer.every()
    times, rounds = bench.options["micro_steps"], bench.options["micro_step_rounds"]
    with gradgate.attach(trainer.module, trainer.optimizer, accumulate=NEVER, mode="window") as sync:
        contexts = {f"with_{name}": sync.micro_step, **others}
        bench.measure({what: repeated(context, times) for what, context in contexts.items()}, rounds, warm_up=3)


def run(bench: Any) -> None:
    options = bench.options
    ddp = DistributedDataParallel(model(2, 8))
    enter_and_exit(bench, "ddp", Trainer(ddp, 8, 2, 1), {"with_no_sync": ddp.no_sync, "with_nothing": Nothing})
    enter_and_exit(bench, "fsdp", sharded({"layers": 2, "width": 8, "batch": 2}, init_device_mesh("cpu", (2,))), {})
    for size in options["sizes"]:
        windows(bench, **size)
