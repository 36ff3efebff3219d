"""Optimizers to audit, and everything of one that an audit must leave as it is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

SEED = 7
MATRICES: list[tuple[int, ...]] = [(6, 4), (3, 5)]
SHAPES: list[tuple[int, ...]] = [*MATRICES, (7,), (2, 3, 2, 2)]

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9},
    "Adam": {},
    "AdamW": {"amsgrad": True},
    "Adagrad": {},
    "RMSprop": {"centered": True, "momentum": 0.5},
    "NAdam": {},
    "RAdam": {},
    "Adamax": {},
    "Adadelta": {},
    "Rprop": {},
    "ASGD": {},
    "Adafactor": {},
    "Muon": {},
    "SparseAdam": {},
}
PRESENT = [name for name in OPTIMIZERS if hasattr(torch.optim, name)]


def groups(count: int = 8, needed: int = 2, shapes: list[tuple[int, ...]] = SHAPES) -> list[dict[str, Any]]:
    """One tensor each; `needed` learning rates in turn."""
    source = torch.Generator().manual_seed(SEED)
    return [
        {"params": [torch.nn.Parameter(torch.randn(shapes[i % len(shapes)], generator=source))], "lr": 1e-3 * (1 + i % needed)}
        for i in range(count)
    ]


def optimizer(name: str, count: int = 8, **more: Any) -> torch.optim.Optimizer:
    kind: Callable[..., torch.optim.Optimizer] = getattr(torch.optim, name)
    return kind(groups(count, shapes=MATRICES if name == "Muon" else SHAPES), **{**OPTIMIZERS[name], **more})


def parameters(held: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in held.param_groups for parameter in group["params"]]


def backward(held: torch.optim.Optimizer, seed: int = SEED) -> None:
    source = torch.Generator().manual_seed(seed)
    for parameter in parameters(held):
        gradient = torch.randn(parameter.shape, generator=source)
        parameter.grad = gradient.to_sparse(1) if isinstance(held, torch.optim.SparseAdam) else gradient


def _bytes(value: torch.Tensor) -> bytes:
    dense = value.detach().to_dense() if value.is_sparse else value.detach()
    return bytes(dense.contiguous().reshape(-1).view(torch.uint8).tolist())


def _seen(value: Any) -> Any:
    """The object itself, its bytes, and how often it was written to."""
    if isinstance(value, torch.Tensor):
        return (id(value), 0 if value.is_sparse else value.data_ptr(), value._version, _bytes(value), value.requires_grad, value.grad_fn)
    if isinstance(value, dict):
        return (id(value), [(id(key), _seen(held)) for key, held in value.items()])
    if isinstance(value, list | tuple):
        return (id(value), [_seen(held) for held in value])
    return (id(value), repr(value))


def everything(held: torch.optim.Optimizer) -> Any:
    """Equal where nothing was touched: tensors, gradients, state, groups, attributes, random numbers."""
    attributes = {key: _seen(value) for key, value in vars(held).items()}
    gradients = [None if parameter.grad is None else _seen(parameter.grad) for parameter in parameters(held)]
    return attributes, gradients, bytes(torch.get_rng_state().tolist()), random.getstate()


class Recorded(TorchDispatchMode):
    """Which implementation ran, by the operations it called."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))

    @property
    def implementation(self) -> str:
        for kind in ("fused", "foreach"):
            if any(f"_{kind}_" in name for name in self.names):
                return kind
        return "for-loop"


class Ticking(torch.optim.Optimizer):
    """On a clock of its own, each step takes a millisecond for each group, and what `noise` gives."""

    now: ClassVar[float] = 0.0
    noise: ClassVar[Iterator[float]] = iter(())

    def __init__(self, held: Any, **defaults: Any) -> None:
        super().__init__(held, {"lr": 1.0, **defaults})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        Ticking.now += 1e-3 * (len(self.param_groups) + next(Ticking.noise, 0.0))

    @classmethod
    def clock(cls) -> float:
        return cls.now


class Attributes(torch.optim.Optimizer):
    """Someone's own: momentum and counts in attributes, a number in the groups, a key of its own in the state."""

    def __init__(self, held: Any) -> None:
        super().__init__(held, {"lr": 0.1, "k": 0})
        self.momenta = {parameter: torch.zeros_like(parameter) for group in self.param_groups for parameter in group["params"]}
        self.counts = {"steps": [0]}
        self.all: Any = "all"
        self.state[self.all] = {"norms": [torch.zeros(())]}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.counts["steps"][0] += 1
        self.state[self.all]["norms"][0] += 1
        for group in self.param_groups:
            group["k"] += 1
            for parameter in group["params"]:
                assert parameter.grad is not None
                self.momenta[parameter].mul_(0.9).add_(parameter.grad)
                parameter.sub_(self.momenta[parameter] * group["lr"] * torch.rand(()))
