"""18 tensors in 6 settings, one parameter group for each tensor, and training that gives the same gradients to each run of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiplicativeLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
)
from torch.optim.swa_utils import SWALR

SHAPES = [(4, 4), (4,), (3, 4), (3,), (5,), (2, 2)] * 3
SETTINGS = 6
LR = 1e-2

Named = list[tuple[str, torch.nn.Parameter]]


def parameters() -> Named:
    source = torch.Generator().manual_seed(11)
    return [(f"layer{i // 6}.{i % 6}", torch.nn.Parameter(torch.randn(shape, generator=source))) for i, shape in enumerate(SHAPES)]


def groups(named: Named, names: bool = False, **more: Any) -> list[dict[str, Any]]:
    """Layer-wise learning rates, no weight decay for vectors; equal settings do not stand together."""
    return [
        {
            "params": [(name, tensor)] if names else tensor,
            "lr": LR * 0.5 ** int(name[5]),
            "weight_decay": 0.1 if tensor.ndim > 1 else 0.0,
            **more,
        }
        for name, tensor in named
    ]


class Ramp:
    """A callable object, whose state LambdaLR saves."""

    def __init__(self, slope: float) -> None:
        self.slope = slope

    def __call__(self, epoch: int) -> float:
        return 1.0 / (1.0 + self.slope * epoch)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ramp) and self.slope == other.slope

    def __hash__(self) -> int:
        return hash(self.slope)


def initial(optimizer: torch.optim.Optimizer) -> list[float]:
    return [group["lr"] for group in optimizer.param_groups]


def ramped(slope: float) -> Callable[[int], float]:
    return lambda epoch: 1.0 / (1.0 + slope * epoch)


def warmed(optimizer: torch.optim.Optimizer) -> SequentialLR:
    return SequentialLR(optimizer, [LinearLR(optimizer, 0.1, total_iters=3), CosineAnnealingLR(optimizer, T_max=9)], milestones=[3])


def chained(optimizer: torch.optim.Optimizer) -> ChainedScheduler:
    return ChainedScheduler([ConstantLR(optimizer, 0.5, total_iters=4), ExponentialLR(optimizer, 0.9)], optimizer)


def nested(optimizer: torch.optim.Optimizer) -> ChainedScheduler:
    lambdas = LambdaLR(optimizer, [ramped(lr * 100) for lr in initial(optimizer)])
    inner = SequentialLR(optimizer, [lambdas, ExponentialLR(optimizer, 0.9)], milestones=[4])
    return ChainedScheduler([inner, ConstantLR(optimizer, 0.5, total_iters=8)], optimizer)


SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], LRScheduler]] = {
    "lambda": lambda optimizer: LambdaLR(optimizer, lambda epoch: 0.9**epoch),
    "lambdas": lambda optimizer: LambdaLR(optimizer, [ramped(lr * 100) for lr in initial(optimizer)]),
    "lambda objects": lambda optimizer: LambdaLR(optimizer, [Ramp(lr * 100) for lr in initial(optimizer)]),
    "multiplicative": lambda optimizer: MultiplicativeLR(optimizer, [ramped(lr * 100) for lr in initial(optimizer)]),
    "exponential": lambda optimizer: ExponentialLR(optimizer, 0.8),
    "restarts": lambda optimizer: CosineAnnealingWarmRestarts(optimizer, T_0=4),
    "sequential": warmed,
    "chained": chained,
    "nested": nested,
    "plateau": lambda optimizer: ReduceLROnPlateau(optimizer, factor=0.5, patience=1, min_lr=[lr / 3 for lr in initial(optimizer)]),
    "cyclic": lambda optimizer: CyclicLR(optimizer, [lr / 4 for lr in initial(optimizer)], initial(optimizer), step_size_up=3),
    "one cycle": lambda optimizer: OneCycleLR(optimizer, [4 * lr for lr in initial(optimizer)], total_steps=20),
    "averaging": lambda optimizer: SWALR(optimizer, swa_lr=[lr / 2 for lr in initial(optimizer)], anneal_epochs=5),  # type: ignore[arg-type]
}


def train(named: Named, optimizer: torch.optim.Optimizer, schedulers: Sequence[LRScheduler], begin: int, end: int) -> None:
    """Steps `begin` to `end`; their gradients depend on the step and the parameter's place alone."""
    for step in range(begin, end):
        source = torch.Generator().manual_seed(step)
        for _, tensor in named:
            drawn = torch.randn(tensor.shape, generator=source)
            tensor.grad = drawn if tensor.requires_grad else None
        optimizer.step()
        for scheduler in schedulers:
            if isinstance(scheduler, ReduceLROnPlateau):
                scheduler.step(1.0)
            else:
                scheduler.step()


def settings_of(named: Named, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Any]]:
    """Each parameter's settings, by its name."""
    names = {id(tensor): name for name, tensor in named}
    return {
        names[id(tensor)]: {key: value for key, value in group.items() if key not in ("params", "param_names")}
        for group in optimizer.param_groups
        for tensor in group["params"]
    }


def everything(named: Named, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Bytes of each parameter and of its state, and its settings, by its name."""
    settings = settings_of(named, optimizer)
    held: dict[str, Any] = {}
    for name, tensor in named:
        state = {
            key: value.numpy().tobytes() if isinstance(value, torch.Tensor) else value for key, value in optimizer.state[tensor].items()
        }
        held[name] = (tensor.detach().numpy().tobytes(), state, settings.get(name))
    return held
