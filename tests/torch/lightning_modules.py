"""Lightning modules whose sums are exact, and fits of them with and without gradgate's callback."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Callable
from typing import Any

import counting
import exact
import lightning.pytorch as pl
import torch
import trainers as t
from gradgate.lightning import SyncCallback

__all__ = [
    "N",
    "QUIET",
    "Adversarial",
    "Automatic",
    "Manual",
    "Normalised",
    "SyncCallback",
    "agreed",
    "both",
    "exact",
    "fit",
    "loader",
    "pl",
    "trainer_of",
]

N = 4
ENVIRONMENT = {name: os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR") if name in os.environ}
QUIET: Any = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
warnings.filterwarnings("ignore")  # it advises: more workers, loggers
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
logging.getLogger("lightning.fabric").setLevel(logging.ERROR)


class Automatic(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 2, dtype=torch.float64)
        with torch.no_grad():
            for parameter in self.net.parameters():
                parameter.copy_(torch.arange(parameter.numel(), dtype=torch.float64).reshape(parameter.shape) - 2)

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor((self.net(x) * torch.tensor([1.0, -3.0], dtype=torch.float64)).sum())

    def training_step(self, x: torch.Tensor, number: int) -> Any:
        return self.loss(x)

    def validation_step(self, x: torch.Tensor) -> Any:
        return self.loss(x)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=2.0**-8)


class Manual(Automatic):
    """As Lightning's pages have it, and the last batch of an epoch closes its window."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, x: torch.Tensor, number: int) -> Any:
        optimizer: Any = self.optimizers()
        self.manual_backward(self.loss(x) / N)
        if (number + 1) % N == 0 or self.trainer.is_last_batch:
            optimizer.step()
            optimizer.zero_grad()


class Normalised(Automatic):
    """Manual optimization; each loss is a sum over boxes, and the window's gradient is divided by its boxes on all ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.boxes = 0

    def training_step(self, x: torch.Tensor, number: int) -> Any:
        optimizer: Any = self.optimizers()
        self.manual_backward(self.loss(x))
        self.boxes += boxes_of(self.global_rank, number)
        if (number + 1) % N and not self.trainer.is_last_batch:
            return
        total = torch.tensor(float(self.boxes))
        torch.distributed.all_reduce(total)
        for parameter in self.parameters():
            assert parameter.grad is not None
            parameter.grad *= torch.distributed.get_world_size() / total
        optimizer.step()
        optimizer.zero_grad()
        self.boxes = 0


def boxes_of(rank: int, number: int) -> int:
    """Windows of 4 and of 2 batches have powers of two on two ranks, so that the division is exact: 16 and 8."""
    return 1 + (rank + number) % 2 * 2


class Adversarial(Automatic):
    """Two optimizers that take turns in each batch, each with four batches to a step."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.other = torch.nn.Linear(4, 2, bias=False, dtype=torch.float64)
        torch.nn.init.ones_(self.other.weight)

    def training_step(self, x: torch.Tensor, number: int) -> Any:
        optimizers: Any = self.optimizers()
        for optimizer, loss in zip(optimizers, (self.loss, self.other_loss), strict=True):
            self.toggle_optimizer(optimizer)
            self.manual_backward(loss(x) / N)
            if (number + 1) % N == 0:
                optimizer.step()
                optimizer.zero_grad()
            self.untoggle_optimizer(optimizer)

    def other_loss(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.other(x).sum())

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(one.parameters(), lr=2.0**-8) for one in (self.net, self.other)]


class Watch(pl.Callback):
    """Behind SyncCallback: what is counted while it is attached."""

    def __init__(self, callback: SyncCallback | None) -> None:
        super().__init__()
        self.callback = callback
        self.at: list[int] = []  # batches after which a gradient collective had been issued
        self._profiling = contextlib.ExitStack()

    def _stats(self) -> dict[str, Any]:
        return {} if self.callback is None else self.callback.stats()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.before = self._stats()
        self.issued = self.before.get("gradient_collectives", 0)
        self.collectives = self._profiling.enter_context(counting.profiled())

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        issued = self._stats().get("gradient_collectives", 0)
        if issued != self.issued:
            self.at.append(batch_idx)
        self.issued = issued

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._profiling.close()


def loader(batches: int, seed: int = 5, ranks: int = 2) -> Any:
    """Each rank gets its share."""
    generator = torch.Generator().manual_seed(seed)
    data: Any = torch.randint(-3, 4, (ranks * batches, 4), generator=generator).to(torch.float64)
    return torch.utils.data.DataLoader(data, batch_size=1)


def trainer_of(callbacks: list[Any], **options: Any) -> Any:
    os.environ.update(ENVIRONMENT)  # the end of a fit takes it away
    given = QUIET | {"accelerator": "cpu", "devices": int(os.environ["WORLD_SIZE"]), "strategy": "ddp", "max_epochs": 1}
    return pl.Trainer(**given | {"num_sanity_val_steps": 1, "callbacks": callbacks} | options)


def fit(
    make: Callable[[], Any], callback: SyncCallback | None, batches: int, more: list[Any] | None = None, **options: Any
) -> dict[str, Any]:
    module, watch = make(), Watch(callback)
    trainer = trainer_of([*([callback] if callback else []), watch, *(more or [])], **options)
    trainer.fit(module, loader(batches), loader(1))
    t.KEPT.append(trainer)
    out = {
        "hash": exact.parameter_hash(module.parameters()),
        "steps": trainer.global_step,
        "profiler": dict(watch.collectives),
        "at": watch.at,
    }
    if callback is not None:
        stats = callback.stats()
        out |= {key: stats[key] for key in ("reductions", "late", "suppressed", "micro_steps", "windows", "windows_full")}
        change = t.less(stats, watch.before)
        out |= {"gradgate": change["collectives"], "gradient": change["gradient"], "told": sorted(stats["told"])}
        assert callback.sync is None
    return out


def both(make: Callable[[], Any], batches: int, declared: int | None = None, **options: Any) -> dict[str, Any]:
    """A fit without and one with; the latter's counts, and whether the bytes are the same."""
    more = options.pop("more", list)
    plain = fit(make, None, batches, more(), **options)
    gated = fit(make, SyncCallback(declared), batches, more(), **options)
    steps = plain["steps"] == gated["steps"]
    return gated | {"same": plain["hash"] == gated["hash"] and steps, "plain": plain["profiler"], "ranks": agreed(gated["hash"])}


def agreed(text: str) -> bool:
    """Whether all ranks have it."""
    if not torch.distributed.is_initialized():
        return True
    texts: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(texts, text)
    return set(texts) == {text}
