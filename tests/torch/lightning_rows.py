"""Lightning's Trainer with gradgate's callback: automatic and manual optimization on DDP."""

from __future__ import annotations

from typing import Any

import gradgate
import torch
import trainers as t
from rows import row

AR = "all_reduce"


@row(same=True, ranks=True, at=[3, 7, 11, 15, 17], reductions=5, late=0, suppressed=13, windows=5, windows_full=4, told=[])
def automatic(rank: int, world: int) -> dict[str, Any]:
    import lightning_modules as m

    return m.both(m.Automatic, 18, accumulate_grad_batches=m.N)


@row(same=True, ranks=True, at=[1, 3, 5, 3, 5], reductions=5, late=0, suppressed=7, windows_full=4, told=[])
def automatic_windows_that_a_scheduler_lengthens(rank: int, world: int) -> dict[str, Any]:
    import lightning_modules as m

    return m.both(m.Automatic, 6, max_epochs=2, more=lambda: [m.pl.callbacks.GradientAccumulationScheduler({0: 2, 1: 4})])


@row(same=True, ranks=True, at=[3, 6, 3, 6], reductions=4, windows_full=2, late=0, told=[], steps=4)
def automatic_clipped_validated_limited_and_saved(rank: int, world: int) -> dict[str, Any]:
    import tempfile

    import lightning_modules as m

    folder = tempfile.mkdtemp()
    options: Any = {"gradient_clip_val": 2.0**20, "val_check_interval": 3, "limit_train_batches": 7, "max_epochs": 2}
    options |= {"enable_checkpointing": True, "default_root_dir": folder, "accumulate_grad_batches": m.N}
    return m.both(m.Automatic, 10, more=lambda: [m.pl.callbacks.ModelCheckpoint(folder, every_n_train_steps=1)], **options)


@row(same=True, ranks=True, at=[3, 7, 11, 15, 17], reductions=5, suppressed=16, late=3, windows=5, plain_reductions=18, told=[])
def manual_observed(rank: int, world: int) -> dict[str, Any]:
    """The first two windows and the last, shorter, one at their step; the two between in the backward that was predicted."""
    import lightning_modules as m

    found = m.both(m.Manual, 18)
    return found | {"plain_reductions": found["plain"][AR]}


@row(same=True, ranks=True, at=[3, 7, 11, 15, 17], reductions=5, late=1, suppressed=14, windows=5, windows_full=4, told=[])
def manual_declared(rank: int, world: int) -> dict[str, Any]:
    import lightning_modules as m

    return m.both(m.Manual, 18, m.N)


def decision(batches: int) -> dict[str, Any]:
    """Two optimizer steps of fits that end there: the bytes are the same, and boxes are counted over all ranks."""
    import lightning_modules as m

    found = m.both(m.Normalised, batches, m.N)
    boxes = found["gradgate"][AR] - found["gradient"][AR] - found["windows"]
    return found | {"before": found["plain"][AR], "boxes": boxes}


@row(same=True, ranks=True, at=[3], gradient={AR: 1}, before=4 + 1, boxes=1, suppressed=3, late=0, steps=1)
def decision_intermediate(rank: int, world: int) -> dict[str, Any]:
    """Batches 1 to 3 issue nothing."""
    return decision(4)


@row(same=True, ranks=True, at=[3, 7], gradient={AR: 2}, before=8 + 2, boxes=2, suppressed=6, late=0, windows_full=2, steps=2)
def decision_complete(rank: int, world: int) -> dict[str, Any]:
    """In the backward of the fourth."""
    return decision(8)


@row(same=True, ranks=True, at=[3, 5], gradient={AR: 2}, before=6 + 2, boxes=2, windows=2, windows_full=1, late=1, steps=2)
def decision_partial_flush(rank: int, world: int) -> dict[str, Any]:
    """Once, at the step."""
    return decision(6)


@row(same=True, ranks=True, told=[], gradient={AR: 4}, before=8 * 2 * 2, late=4, steps=4)
def manual_two_optimizers(rank: int, world: int) -> dict[str, Any]:
    """Plain Lightning reduces in each of 16 backwards, and its map of used parameters; gradgate at each of four steps."""
    import lightning_modules as m

    found = m.both(m.Adversarial, 8, strategy="ddp_find_unused_parameters_true")
    return found | {"before": found["plain"][AR]}


@row(seen=[13.75, 35.75], late=2)
def manual_hooks_see_reduced_gradients(rank: int, world: int) -> dict[str, Any]:
    """Where windows are observed, the first two are reduced at their step: before the module's own hook there."""
    import lightning_modules as m

    seen = []

    class Fixture(m.Manual):
        def loss(self, x: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.net(torch.ones(4, dtype=torch.float64)).sum() * float((self.number + 1) * 10**self.global_rank))

        def training_step(self, x: torch.Tensor, number: int) -> Any:
            self.number = number
            return super().training_step(x, number)

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            seen.append(t.one(t.values([self.net.bias.grad])))

    found = m.fit(Fixture, m.SyncCallback(), 8, num_sanity_val_steps=0, limit_val_batches=0)
    return found | {"seen": seen}


@row(restored=True, same=True, windows=1, at=[3, 7], raised="stopped")
def an_exception_restores_and_the_next_fit_counts_anew(rank: int, world: int) -> dict[str, Any]:
    import lightning_modules as m

    class Failing(m.Automatic):
        def training_step(self, x: torch.Tensor, number: int) -> Any:
            if number == 5:
                raise ValueError("stopped")
            return super().training_step(x, number)

    callback, raised = m.SyncCallback(), ""
    trainer = m.trainer_of([callback], accumulate_grad_batches=m.N)
    try:
        trainer.fit(Failing(), m.loader(8), m.loader(1))
    except ValueError as error:
        raised = str(error)
    t.KEPT.append(trainer)
    first = callback.stats()
    ddp = trainer.strategy.model
    restored = getattr(ddp, "require_backward_grad_sync", True) and "block_backward_sync" not in vars(trainer.strategy)
    plain = m.fit(m.Automatic, None, 8, accumulate_grad_batches=m.N)
    again = m.fit(m.Automatic, callback, 8, accumulate_grad_batches=m.N)
    same = plain["hash"] == again["hash"] and again["windows"] == 2
    return {"restored": restored and callback.sync is None, "same": same, "windows": first["windows"], "at": again["at"], "raised": raised}


@row(same=True, told=["static_graph_first_reduction"], gradient={AR: 2 + 1}, at=[0, 3, 7], reductions=3)
def t5_static_graph(rank: int, world: int) -> dict[str, Any]:
    """Lightning alone fails in its first micro-step, so the bytes are those of a graph that is not static."""
    import lightning_modules as m
    from lightning.pytorch.strategies import DDPStrategy

    plain = m.fit(m.Automatic, None, 8, accumulate_grad_batches=m.N)
    strategy: Any = DDPStrategy(static_graph=True)
    gated = m.fit(m.Automatic, m.SyncCallback(), 8, accumulate_grad_batches=m.N, strategy=strategy)
    return gated | {"same": plain["hash"] == gated["hash"]}


@row(world=1, group=False, same=True, windows=5, windows_full=5, micro_steps=20, skipped=1, told=[])
def one_device_without_a_group(rank: int, world: int) -> dict[str, Any]:
    """Lightning lets training_step return None there."""
    import lightning_modules as m

    class Skipping(m.Automatic):
        def training_step(self, x: torch.Tensor, number: int) -> Any:
            return None if number == 5 else self.loss(x)

    callback = m.SyncCallback()
    options: Any = {"accumulate_grad_batches": m.N, "strategy": "auto"}
    plain, gated = m.fit(Skipping, None, 10, **options), m.fit(Skipping, callback, 10, **options)
    return gated | {"same": plain["hash"] == gated["hash"], "skipped": callback.stats()["micro_steps_skipped"]}


@row(world=1, group=False, same=True, windows=5, steps=5, name="pytorch_lightning")
def by_the_other_import_name(rank: int, world: int) -> dict[str, Any]:
    import logging

    import lightning_modules as m
    import pytorch_lightning

    plain = m.fit(m.Manual, None, 10, strategy="auto")

    def module() -> Any:
        methods = {name: getattr(m.Manual, name) for name in ("training_step", "validation_step", "configure_optimizers", "loss")}
        kind: Any = type("Other", (pytorch_lightning.LightningModule,), methods)
        made = kind()
        made.net, made.automatic_optimization = m.Automatic().net, False
        return made

    callback, made = m.SyncCallback(), module()
    options: Any = m.QUIET | {"accelerator": "cpu", "devices": 1, "max_epochs": 1}
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    trainer = pytorch_lightning.Trainer(**options, callbacks=[callback])
    trainer.fit(made, m.loader(10), m.loader(1))
    return {
        "same": plain["hash"] == m.exact.parameter_hash(made.parameters()),
        "windows": callback.stats()["windows"],
        "steps": trainer.global_step,
        "name": type(trainer).__module__.partition(".")[0],
    }


@row(gradients=[13.75, 30.25], plain=[13.75, 15.125], scheduled=2)
def t22_t39_the_last_window_divided_by_its_own_size(rank: int, world: int) -> dict[str, Any]:
    import lightning_modules as m

    found: dict[str, Any] = {}
    for name, callback in (("plain", m.SyncCallback()), ("gradients", m.SyncCallback(rescale_partial=True))):
        seen: list[Any] = []

        class Fixture(m.Automatic):
            def __init__(self) -> None:
                super().__init__()
                self.net = t.Units()  # type: ignore[assignment]

            def loss(self, x: torch.Tensor) -> torch.Tensor:
                return torch.as_tensor(self.net(1.0))

            def training_step(self, x: torch.Tensor, number: int, seen: list[Any] = seen) -> Any:
                return self.net(float((number + 1) * 10**self.global_rank))

            def on_before_optimizer_step(self, optimizer: Any, seen: list[Any] = seen) -> None:
                seen.append(t.one(t.gradients(self)))

            def configure_optimizers(self) -> Any:
                optimizer = t.sgd(self)
                self.schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
                return [optimizer], [{"scheduler": self.schedule, "interval": "step"}]

            def on_train_end(self, found: dict[str, Any] = found) -> None:
                found["scheduled"] = self.schedule.last_epoch

        m.fit(Fixture, callback, 6, accumulate_grad_batches=m.N)
        found[name] = seen
    return found


@row(why="accumulates and reduces by itself", none=True, told=True)
def a_strategy_that_accumulates_by_itself_is_left_alone(rank: int, world: int) -> dict[str, Any]:
    import logging

    import lightning_modules as m
    from lightning.pytorch.strategies import DDPStrategy

    class Own(DDPStrategy):
        @property
        def handles_gradient_accumulation(self) -> bool:
            return True

    records: list[Any] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign,assignment]
    logging.getLogger("gradgate").addHandler(handler)
    callback = m.SyncCallback()
    trainer = m.trainer_of([callback], strategy=Own())
    trainer.fit(m.Automatic(), m.loader(4), m.loader(1))
    logging.getLogger("gradgate").removeHandler(handler)
    t.KEPT.append(trainer)
    told = [one.reason for one in records if one.levelno >= logging.WARNING] == (["lightning_left_alone"] if rank == 0 else [])
    return {"why": callback.left_alone.partition(" ")[2].partition(":")[0], "none": callback.stats() == {}, "told": told}


@row(text="SyncCallback(accumulate=4) is for manual optimization", lazy=True)
def a_window_declared_twice_is_refused(rank: int, world: int) -> dict[str, Any]:
    import lightning_modules as m

    trainer = m.trainer_of([m.SyncCallback(4)], accumulate_grad_batches=2)
    text = ""
    try:
        trainer.fit(m.Automatic(), m.loader(4), m.loader(1))
    except ValueError as error:
        text = str(error)
    return {"text": text.partition(":")[0], "lazy": gradgate.lightning.SyncCallback is m.SyncCallback}
