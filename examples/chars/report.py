"""What the loop saw by itself, what torch's profiler saw, and what gradgate says: beside one another, as JSON."""

from __future__ import annotations

import hashlib
import json
import pathlib
import sys
from collections import Counter
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "demo"))
from profiler import collectives  # noqa: E402


class Log:
    """Counts the loop's own doings and, where a report is wanted, profiles its collectives."""

    def __init__(self, sync: Any, profiled: bool) -> None:
        self.sync = sync
        self.losses: list[float] = []
        self.held_out: list[float] = []
        self.window: list[int] = [0]  # micro-steps of each window; the last one is open
        self.before = sync.stats()  # what attaching itself needed
        self.profile = profile(activities=[ProfilerActivity.CPU]) if profiled else None
        if self.profile:
            self.profile.start()

    def micro_step(self, loss: float) -> None:
        self.losses.append(loss)
        self.window[-1] += 1

    def step(self) -> None:
        self.window.append(0)

    def epoch(self, held_out_loss: float) -> None:
        self.held_out.append(held_out_loss)

    def end(self) -> dict[str, Any]:
        if self.profile:
            self.profile.stop()
        sizes = Counter(self.window[:-1])
        full = max(sizes)
        return {
            "counted": {
                "windows_full": sizes[full],
                "windows_partial": sum(sizes.values()) - sizes[full],
                "micro_steps": len(self.losses),
                "steps": sum(sizes.values()),
                "logged": len(self.losses) + len(self.held_out),  # each by an all-reduce of the loop's own
            },
            "profiled": dict(collectives(self.profile)) if self.profile else {},
            "before": self.before,
            "stats": self.sync.stats(),
            "losses": self.losses,
            "held_out_losses": self.held_out,
            "held_out_loss": self.held_out[-1],
        }


def parameter_hash(model: torch.nn.Module) -> str:
    """Of all bytes, whole parameters gathered from their shards: a collective where there are any."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        data: Any = parameter.detach()
        whole: torch.Tensor = data.full_tensor() if hasattr(data, "full_tensor") else data
        digest.update(whole.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def write(path: pathlib.Path, rank: int, told: dict[str, Any]) -> None:
    path.with_name(f"{path.name}.{rank}").write_text(json.dumps(told) + "\n", encoding="utf-8")
