"""Fits a small module with Lightning's trainer, four micro-steps to a step: lightning_fit.py FOLDER LOOP

FOLDER/RANK.json is {parameters: hash, collectives: {operation: count} in the windows from COUNTED on, steps: of these}. Sums are exact:
small whole numbers in float64, and a step size that is a power of two.
"""

from __future__ import annotations

import contextlib
import json
import logging
import pathlib
import sys
import warnings
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE.parent), str(HERE.parents[2] / "examples/demo")]

import exact  # noqa: E402
import lightning.pytorch as lightning  # noqa: E402
import profiler  # noqa: E402
import torch  # noqa: E402

ACCUMULATE, WINDOWS, COUNTED = 4, 5, 2


class Module(lightning.LightningModule):
    """`loop`: automatic; manual, as Lightning's pages have it; or toggled, with its own way to reduce in the last micro-step alone."""

    def __init__(self, loop: str) -> None:
        super().__init__()
        self.loop = loop
        self.automatic_optimization = loop == "automatic"
        self.weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.0, 3.0], dtype=torch.float64))

    def _loss(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.weight).sum()

    def training_step(self, x: torch.Tensor, number: int) -> torch.Tensor:
        loss = self._loss(x)
        if self.automatic_optimization:
            return loss
        optimizer: Any = self.optimizers()
        last = (number + 1) % ACCUMULATE == 0
        with optimizer.toggle_model(sync_grad=last) if self.loop == "toggled" else contextlib.nullcontext():
            self.manual_backward(loss / ACCUMULATE)
        if last:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    def validation_step(self, x: torch.Tensor) -> torch.Tensor:
        return self._loss(x)

    def configure_optimizers(self) -> torch.optim.SGD:
        return torch.optim.SGD(self.parameters(), lr=2.0**-8)


class Count(lightning.Callback):
    """By then torch has built its buckets, and gradgate has found what it drives."""

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, number: int) -> None:
        if number == ACCUMULATE * COUNTED:
            self.first = trainer.global_step
            self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            self.profile.start()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == WINDOWS and not hasattr(self, "steps"):
            self.profile.stop()
            self.steps = trainer.global_step - self.first


def loader(batches: int) -> Any:
    generator = torch.Generator().manual_seed(5)
    rows = torch.randint(-3, 4, (2 * batches, 4), generator=generator).to(torch.float64)  # for two ranks, of which each has the half
    data: Any = rows
    return torch.utils.data.DataLoader(data, batch_size=1)


def main(folder: str, loop: str) -> None:
    warnings.filterwarnings("ignore")  # it advises: more workers, loggers
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    module, count = Module(loop), Count()
    quiet: dict[str, Any] = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = lightning.Trainer(
        **quiet,
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=1,
        num_sanity_val_steps=1,  # leaves the wrapper in evaluation
        accumulate_grad_batches=ACCUMULATE if module.automatic_optimization else 1,
        callbacks=[count],
    )
    trainer.fit(module, loader(ACCUMULATE * WINDOWS), loader(1))
    told = {
        "parameters": exact.parameter_hash(module.parameters()),
        "collectives": profiler.collectives(count.profile),
        "steps": count.steps,
    }
    (pathlib.Path(folder) / f"{trainer.global_rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
