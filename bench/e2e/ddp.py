"""DDP over two nodes of one rank each."""

from __future__ import annotations

from typing import Any

import gradgate
from loops import Trainer, calibrate, model
from torch.nn.parallel import DistributedDataParallel


def run(bench: Any) -> None:
    options = bench.options
    by_hand, gated = (
        Trainer(DistributedDataParallel(model(options["layers"], options["width"])), options["width"], options["batch"]) for _ in range(2)
    )
    calibrate(bench, by_hand.every, by_hand.unreduced, options["share"], options["rate"])
    sync = gradgate.attach(gated.module, gated.optimizer, accumulate=len(gated.data), mode="window")
    arms = {"computing": by_hand.unreduced, "every": by_hand.every, "by_hand": by_hand.no_sync, "window": gated.gated(sync)}
    bench.measure(arms, options["rounds"], warm_up=2)
