"""Lightning runs of the net in param_groups_dcp_rows: trained with a checkpoint after each epoch, and resumed from the first one's."""

from __future__ import annotations

import importlib
import logging
import pathlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import param_groups_dcp_rows as rows
import torch
from torch.optim.lr_scheduler import LRScheduler

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pl: Any = importlib.import_module("lightning.pytorch")

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)  # it advertises

EPOCHS = 4
RESUMED = 2  # after the epochs 0, 1 and 2: past the warm-up's milestone
Hook = Callable[[Any, dict[str, Any]], None]


class Module(pl.LightningModule):  # type: ignore[misc]
    """`hook` is what on_load_checkpoint does."""

    def __init__(
        self,
        count: int,
        schedule: Callable[[torch.optim.Optimizer], LRScheduler] = rows.by_lambdas,
        hook: Hook = lambda module, checkpoint: None,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.job = rows.Job.__new__(rows.Job)  # for what it shows
        self.job.model, self.count, self.schedule, self.hook = rows.Net(seed), count, schedule, hook
        self.net = self.job.model

    def training_step(self, batch: torch.Tensor) -> torch.Tensor:
        self.log("loss", 1.0, on_epoch=True)
        loss: torch.Tensor = self.net(batch).square().mean()
        return loss

    def configure_optimizers(self) -> dict[str, Any]:
        optimizer = torch.optim.AdamW(rows.groups_of(self.net, self.count))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": self.schedule(optimizer), "monitor": "loss"}}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.hook(self, checkpoint)

    def shown(self) -> dict[str, Any]:
        self.job.optimizer = self.trainer.optimizers[0]
        return self.job.shown()


def fit(module: Module, folder: pathlib.Path | None = None, resume: pathlib.Path | None = None, callbacks: Sequence[Any] = ()) -> Module:
    """Trained until EPOCHS, with checkpoints into `folder`, from `resume` on."""
    keep = [pl.callbacks.ModelCheckpoint(dirpath=folder, filename="{epoch}", save_top_k=-1)] if folder else []
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=bool(keep),
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[*keep, *callbacks],
    )
    data: Any = [torch.randn(6, generator=torch.Generator().manual_seed(place)) for place in range(15)]
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=5), ckpt_path=resume)
    return module


def checkpoint_of(module: Module, folder: pathlib.Path) -> pathlib.Path:
    """After it was trained to the end, that of RESUMED."""
    fit(module, folder)
    return folder / f"epoch={RESUMED}.ckpt"
