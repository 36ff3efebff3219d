"""One-dimensional FSDP2 over two nodes of one rank each: gradients deferred, and parameters kept unsharded inside the window.

The window's parts are measured by leaving one out: the backward's all-gathers, then the forward's, then all of them.
"""

from __future__ import annotations

from typing import Any

from hsdp import attached, sharded
from loops import calibrate
from torch.distributed.device_mesh import init_device_mesh


def run(bench: Any) -> None:
    options = bench.options
    mesh = init_device_mesh("cpu", (2,))
    by_hand, alone = sharded(options, mesh), sharded(options, mesh)
    module: Any = by_hand.module

    # Unsharded once, in the warm-up, and never reduced: computing, and what the wrapper's own Python costs.
    alone.module.set_reshard_after_forward(False)
    alone.module.set_reshard_after_backward(False)
    alone.module.set_requires_gradient_sync(False)

    def deferred(last: bool) -> None:
        module.set_requires_gradient_sync(last)

    def gathered(forward: bool, window: bool) -> None:
        """When parameters are gathered anew: for each backward, and for each micro-step's forward."""
        module.set_reshard_after_forward(forward)
        module.set_reshard_after_backward(window)

    def every() -> None:
        gathered(True, True)
        by_hand.every()

    def deferring() -> None:
        gathered(True, True)
        by_hand.flagged(deferred)

    def forward_gathers_only() -> None:
        gathered(False, True)
        by_hand.flagged(deferred)

    def keep(last: bool) -> None:
        gathered(False, last)
        deferred(last)

    def keeping() -> None:
        by_hand.flagged(keep)

    calibrate(bench, every, alone.every, options["share"], options["rate"])
    arms = {
        "computing": alone.every,
        "every": every,
        "deferred": deferring,
        "forward_gathers": forward_gathers_only,
        "kept_by_hand": keeping,
        "kept": attached(sharded(options, mesh), "window", keep_params=True),
    }
    bench.measure(arms, options["rounds"])
