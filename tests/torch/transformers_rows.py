"""Transformers' Trainer with gradgate's callback, on DDP over Gloo."""

from __future__ import annotations

import tempfile
import warnings
from typing import Any

import counting
import exact
import torch
import trainers as t
from rows import row

AR = "all_reduce"
N, BATCHES = 4, 6


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 1, bias=False, dtype=torch.float64)
        torch.nn.init.zeros_(self.net.weight)

    def forward(self, x: Any = None, labels: Any = None) -> Any:
        return {"loss": self.net(x).sum(), "logits": self.net(x)}


class Data(torch.utils.data.Dataset[Any]):
    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randint(-3, 4, (2 * BATCHES, 4), generator=generator).to(torch.float64)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        return {"x": self.x[i], "labels": torch.tensor([i])}


def arguments(**options: Any) -> Any:
    import transformers

    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    given: dict[str, Any] = {"output_dir": tempfile.mkdtemp(), "use_cpu": True, "ddp_backend": "gloo", "report_to": [], "seed": 1}
    given |= {"save_strategy": "no", "disable_tqdm": True, "logging_strategy": "no", "optim": "sgd", "learning_rate": 2.0**-8}
    given |= {"per_device_train_batch_size": 1, "gradient_accumulation_steps": N, "num_train_epochs": 2, "max_grad_norm": 2.0**20}
    given |= {"lr_scheduler_type": "constant", "ddp_find_unused_parameters": False, "log_level": "error"}
    return transformers.TrainingArguments(**given | options)


def train(gate: bool, **options: Any) -> dict[str, Any]:
    import transformers
    from gradgate.transformers import SyncCallback

    net, callback = Net(), SyncCallback()
    norms: list[Any] = []

    class Look(transformers.TrainerCallback):  # type: ignore[misc]
        """Behind gradgate's."""

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.before = callback.stats()

        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            assert net.net.weight.grad is not None
            norms.append(float(net.net.weight.grad.norm()))

    look = Look()
    trainer: Any = transformers.Trainer(net, arguments(**options), train_dataset=Data(), eval_dataset=Data())
    for one in [callback, look] if gate else [look]:
        trainer.add_callback(one)
    t.KEPT.append(trainer)
    with counting.profiled() as counts:
        trainer.train()
    out = {"hash": exact.parameter_hash(net.parameters()), "norms": norms, "all_reduce": counts[AR]}
    if gate:
        stats = callback.stats()
        out |= {
            key: stats[key] for key in ("windows", "windows_full", "windows_partial", "micro_steps", "reductions", "late", "suppressed")
        }
        out |= {"gradient": stats["gradient"], "told": sorted(stats["told"]), "counted": stats["collectives"][AR]}
        assert callback.sync is None and trainer.model_wrapped.require_backward_grad_sync
        assert "no_sync" not in vars(trainer.accelerator)
    return out


def both(**options: Any) -> dict[str, Any]:
    plain, gated = train(False, **options), train(True, **options)
    same = plain["hash"] == gated["hash"] and plain["norms"] == gated["norms"]
    equal = gated["counted"] == gated["all_reduce"]
    return gated | {"same": same, "before": plain["all_reduce"], "equal": equal}


@row(same=True, equal=True, before=4, gradient={AR: 4}, windows_full=2, windows_partial=2, micro_steps=12, late=0, suppressed=8, told=[])
def accumulates_and_clips(rank: int, world: int) -> dict[str, Any]:
    return both()


@row(same=True, equal=True, before=4, gradient={AR: 4}, windows=4, late=0, told=[])
def without_clipping_and_with_evaluation(rank: int, world: int) -> dict[str, Any]:
    return both(max_grad_norm=0.0, eval_strategy="steps", eval_steps=1)


@row(gradients=[3.2], gradient={AR: 1}, windows=1)
def t26_normalised_by_the_tokens_of_all_ranks(rank: int, world: int) -> dict[str, Any]:
    """Sums of 1 over one token, 9 over three, 2 over two, 20 over four: which rank gets which is the sampler's choice."""
    import transformers
    from gradgate.transformers import SyncCallback

    class Scalar(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))

        def forward(self, x: Any = None, labels: Any = None) -> Any:
            return {"logits": self.w * x.sum()}

    gradients: list[float] = []

    class Look(transformers.TrainerCallback):  # type: ignore[misc]
        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            assert net.w.grad is not None
            gradients.append(round(float(net.w.grad), 12))

    net, callback = Scalar(), SyncCallback()
    data: Any = [
        {"x": torch.tensor([total]), "labels": torch.ones(n, dtype=torch.long)} for n, total in ((1, 1.0), (3, 9.0), (2, 2.0), (4, 20.0))
    ]
    options = arguments(gradient_accumulation_steps=2, num_train_epochs=1, max_grad_norm=1e9)
    trainer: Any = transformers.Trainer(
        net,
        options,
        train_dataset=data,
        compute_loss_func=lambda outputs, labels, num_items_in_batch: outputs["logits"] / num_items_in_batch,
    )
    for one in (callback, Look()):
        trainer.add_callback(one)
    t.KEPT.append(trainer)
    trainer.train()
    stats = callback.stats()
    return {"gradients": gradients, "gradient": stats["gradient"], "windows": stats["windows"]}


@row(windows=12, micro_steps=12, late=0, gradient={AR: 12}, same=True, before=12, told=[])
def windows_of_one(rank: int, world: int) -> dict[str, Any]:
    return both(gradient_accumulation_steps=1)
