"""Lightning's Trainer with gradgate's callback on FSDP2, where Lightning itself reduces in each micro-step, on FSDP1, and with a scaler."""

from __future__ import annotations

from typing import Any

import torch
import trainers as t
from rows import row

RS = "reduce_scatter"


def sharding(make: Any) -> Any:
    """`net` as a group of its own, on the strategy's mesh."""

    class Sharded(make):  # type: ignore[misc]
        def configure_model(self) -> None:
            torch.distributed.fsdp.fully_shard(self.net, mesh=self.device_mesh["data_parallel"])

    return Sharded


def fsdp2(make: Any, declared: int | None = None, **options: Any) -> dict[str, Any]:
    import lightning_modules as m
    from lightning.pytorch.strategies import ModelParallelStrategy

    def run(callback: Any) -> dict[str, Any]:
        strategy: Any = ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)
        return m.fit(sharding(make), callback, 6, strategy=strategy, **options)

    plain, gated = run(None), run(m.SyncCallback(declared, mode="window"))
    return gated | {"same": plain["hash"] == gated["hash"], "before": plain["profiler"][RS]}


@row(same=True, gradient={RS: 2}, before=6, at=[3, 5], suppressed=4, late=0, told=[], steps=2)
def fsdp2_automatic(rank: int, world: int) -> dict[str, Any]:
    import lightning_modules as m

    return fsdp2(m.Automatic, accumulate_grad_batches=m.N)


@row(same=True, gradient={RS: 2}, before=6, at=[3, 5], suppressed=5, late=1, told=[], steps=2)
def fsdp2_manual_declared(rank: int, world: int) -> dict[str, Any]:
    import lightning_modules as m

    return fsdp2(m.Manual, m.N)


@row(same=True, gradient={RS: 2}, before=6, at=[3, 5], suppressed=6, late=2, told=[], steps=2)
def fsdp2_manual_observed(rank: int, world: int) -> dict[str, Any]:
    import lightning_modules as m

    return fsdp2(m.Manual)


@row(same=True, steps=2, told=[])
def fsdp2_validation_throws_an_open_window_away(rank: int, world: int) -> dict[str, Any]:
    """Lightning zeroes gradients before a validation in manual optimization: those that wait as well."""
    import lightning_modules as m

    return fsdp2(m.Manual, m.N, val_check_interval=3)


@row(same=True, gradient={RS: 2}, before=2, at=[3, 5], suppressed=4, late=0, told=[], steps=2)
def fsdp1_automatic(rank: int, world: int) -> dict[str, Any]:
    import lightning_modules as m
    from lightning.pytorch.strategies import FSDPStrategy

    class OnCpu(FSDPStrategy):
        """Lightning offers it on GPUs alone."""

        @property
        def root_device(self) -> torch.device:
            return torch.device("cpu")

        def _setup_model(self, model: Any) -> Any:
            fsdp = torch.distributed.fsdp.FullyShardedDataParallel
            return fsdp(model, device_id=torch.device("cpu"), use_orig_params=True)

    def run(callback: Any) -> dict[str, Any]:
        strategy: Any = OnCpu()
        return m.fit(m.Automatic, callback, 6, strategy=strategy, accumulate_grad_batches=m.N)

    plain, gated = run(None), run(m.SyncCallback(mode="window"))
    return gated | {"same": plain["hash"] == gated["hash"], "before": plain["profiler"][RS]}


@row(scales=[65536.0, 32768.0, 32768.0], weights=[0.0, -16.0], reductions=2, windows=2, told=[])
def t37_a_scaler_skips_on_all_ranks(rank: int, world: int) -> dict[str, Any]:
    """Infinite in rank 1's second micro-step of the first window; the second window steps."""
    import lightning.pytorch
    import lightning_modules as m
    from lightning.pytorch.plugins.precision import MixedPrecision

    class Overflowing(m.Automatic):
        def __init__(self) -> None:
            super().__init__()
            self.net = t.Units(dtype=torch.float32)  # type: ignore[assignment]

        def loss(self, x: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.net(1.0))

        def training_step(self, x: torch.Tensor, number: int) -> Any:
            return self.net(float("inf") if (number, self.global_rank) == (1, 1) else 16.0)

        def configure_optimizers(self) -> Any:
            return t.sgd(self, lr=1.0)

    scales, weights = [65536.0], []
    scaler: Any = torch.amp.GradScaler("cpu", init_scale=65536.0)

    class Look(lightning.pytorch.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if (batch_idx + 1) % m.N == 0:
                scales.append(scaler.get_scale())
                weights.append(t.one(t.weights(pl_module)))

    class Scaled(MixedPrecision):
        def forward_context(self) -> Any:
            return torch.autocast("cpu", enabled=False)

    plugin: Any = Scaled("16-mixed", "cpu", scaler)
    callback = m.SyncCallback()
    found = m.fit(Overflowing, callback, 8, [Look()], plugins=[plugin], accumulate_grad_batches=m.N)
    return found | {"scales": scales, "weights": weights}
