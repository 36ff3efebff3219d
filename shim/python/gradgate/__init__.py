"""gradgate: one gradient reduction per optimizer step, at the right micro-step, counted.

sync = gradgate.attach(model, optimizer, accumulate=4)
for batch in loader:
    with sync.micro_step():
        (loss_fn(model(batch)) / 4).backward()
    if sync.boundary:
        optimizer.step(); optimizer.zero_grad()
while sync.flush(divisor=4):
    optimizer.step(); optimizer.zero_grad()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .ledger import DeadlineExceeded, Disagreement, GradgateError, InvalidArgument, Refused

if TYPE_CHECKING:
    from . import accelerate, checkpoint, lightning, param_groups, transformers
    from .attachment import attach
    from .sync import Sync

__all__ = [
    "DeadlineExceeded",
    "Disagreement",
    "GradgateError",
    "InvalidArgument",
    "Refused",
    "Sync",
    "Unreduced",
    "accelerate",
    "attach",
    "checkpoint",
    "lightning",
    "param_groups",
    "transformers",
]

_MODULES = ("accelerate", "checkpoint", "lightning", "param_groups", "transformers")
_LAZY = {"attach": "attachment", "Sync": "sync", "Unreduced": "adapters.base"} | {name: name for name in _MODULES}


def __getattr__(name: str) -> Any:
    """torch is imported with the first use of what needs it."""
    if name not in _LAZY:
        raise AttributeError(f"module 'gradgate' has no attribute {name!r}")
    import importlib

    try:
        import torch  # noqa: F401
    except ImportError as missing:
        raise ImportError(f"gradgate.{name} needs PyTorch: pip install torch") from missing
    module = importlib.import_module(f".{_LAZY[name]}", __name__)
    return module if name in _MODULES else getattr(module, name)
