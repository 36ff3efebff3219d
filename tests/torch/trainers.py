"""Small models whose gradients are known, and a watch over what training them issues."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import counting
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

F = ((1.0, 2.0, 3.0, 4.0), (10.0, 20.0, 30.0, 40.0))  # fixture F of CASES.md: what rank 0 and rank 1 multiply the weights with
KEPT: list[Any] = []  # wrappers must outlive their process group


def data(rank: int, upto: int = 4) -> list[float]:
    """Fixture F, going on as far as wanted."""
    return [float(c * 10 ** (rank % 2)) for c in range(1, upto + 1)]


class Unit(nn.Module):
    """`size` equal weights, at first 0; forward(c) is c times their sum, so each one's gradient is c."""

    def __init__(self, size: int = 4, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(size, dtype=dtype))

    def forward(self, c: float) -> torch.Tensor:
        return torch.mul(self.w.sum(), c)


class Units(nn.Module):
    """A sum of units, all of them or those in `use`."""

    def __init__(self, count: int = 1, size: int = 4, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.units = nn.ModuleList(Unit(size, dtype) for _ in range(count))

    def forward(self, c: float, use: Sequence[int] | None = None) -> torch.Tensor:
        chosen = [self.units[i] for i in (range(len(self.units)) if use is None else use)]
        return torch.as_tensor(sum(unit(c) for unit in chosen))


def ddp(model: nn.Module | None = None, *, buckets: bool = False, **options: Any) -> Any:
    """`buckets`: one bucket for each parameter, from the second window on."""
    if buckets:
        options["bucket_cap_mb"] = 1e-5
    wrapped = nn.parallel.DistributedDataParallel(Units() if model is None else model, **options)
    KEPT.append(wrapped)
    return wrapped


def mesh(*shape: int) -> Any:
    names = ("replicate", "shard")[-len(shape) :]
    return dist.device_mesh.init_device_mesh("cpu", shape, mesh_dim_names=names)


def fsdp(model: Any = None, shape: tuple[int, ...] | None = None, **options: Any) -> Any:
    """fully_shard on each unit and on the whole; the parameter groups are the units."""
    model = Units() if model is None else model
    options["mesh"] = mesh(*(shape or (dist.get_world_size(),)))
    for unit in model.units:
        fully_shard(unit, **options)
    KEPT.append(model)
    return fully_shard(model, **options)


def local(tensor: Any) -> Any:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def values(tensors: Iterable[torch.Tensor | None]) -> list[float | None]:
    """The value that all elements of each tensor have; None for None."""
    out: list[float | None] = []
    for tensor in tensors:
        flat = None if tensor is None else local(tensor.detach()).double().flatten()
        assert flat is None or bool((flat == flat[0]).all() | flat.isnan().all()), flat
        out.append(None if flat is None else float(flat[0]))
    return out


def gradients(model: nn.Module) -> list[float | None]:
    return values(p.grad for p in model.parameters())


def one(found: list[float | None]) -> float | None:
    """The value that all have."""
    assert all(v == found[0] for v in found), found
    return found[0]


def weights(model: nn.Module) -> list[float | None]:
    return values(model.parameters())


def sgd(model: nn.Module, lr: float = 0.0, **options: Any) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=lr, **options)


def less(after: Any, before: Any) -> Any:
    """What has been added to counts in dictionaries; zeros are left out there."""
    if isinstance(after, dict):
        apart = {key: less(value, before.get(key, {} if isinstance(value, dict) else 0)) for key, value in after.items()}
        return {key: value for key, value in apart.items() if value != 0 or isinstance(after[key], bool | str)}
    return after - before if isinstance(after, int | float) and not isinstance(after, bool) else after


class Watch:
    """Counts collectives while it is entered, by gradgate and by torch's profiler, and where they were issued.

    with Watch(sync) as watch:
        with watch.place(): ...     # one micro-step, step or flush: a number in `at`
    watch.seen()                    # {"profiler": {op: n}, "gradgate": {op: n}, "gradient": …, "ours": …, "at": [n, …], …}
    """

    def __init__(self, *syncs: Any) -> None:
        self._syncs = syncs
        self._profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
        self._places = 0

    def __enter__(self) -> Watch:
        self._before = [sync.stats() for sync in self._syncs]
        self._profile.__enter__()
        return self

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        self._places += 1
        with torch.profiler.record_function(f"place {self._places - 1}"):
            yield

    def __exit__(self, *error: Any) -> None:
        self._profile.__exit__(*error)
        results: Any = self._profile.profiler
        if error[0] is not None:
            return
        # Raw events: the parsed ones leave out an event inside another of the same name, as a ballot is that goes ahead of a reduction.
        events = [(e.name(), e.start_ns(), e.start_ns() + e.duration_ns()) for e in results.kineto_results.events()]
        issued = [(start, name.removeprefix("c10d::")) for name, start, _ in events if name.startswith("c10d::")]
        issued = [(start, counting.OPERATIONS.get(name, name)) for start, name in issued]
        ranges = {name: (start, end) for name, start, end in events if name.startswith("place ")}
        self.profiler = dict(Counter(op for _, op in issued))
        places = [ranges[f"place {i}"] for i in range(self._places)]
        self.by_place = [dict(Counter(op for time, op in issued if start <= time <= end)) for start, end in places]
        self.after = [sync.stats() for sync in self._syncs]
        self.changes = [less(after, before) for after, before in zip(self.after, self._before, strict=True)]

    def _sum(self, key: str) -> dict[str, int]:
        total: Counter[str] = Counter()
        for change in self.changes:
            total.update(change.get(key, {}))
        return dict(total)

    def seen(self, **more: Any) -> dict[str, Any]:
        numbers = {key: sum(c.get(key, 0) for c in self.changes) for key in NUMBERS}
        groups = {
            "profiler": self.profiler,
            "gradgate": self._sum("collectives"),
            "gradient": self._sum("gradient"),
            "ours": self._sum("ours"),
        }
        told = {reason: text for after in self.after for reason, text in after["told"].items()}
        return {
            **groups,
            **numbers,
            "at": [sum(place.values()) for place in self.by_place],
            "by_place": self.by_place,
            "told": sorted(told),
            "texts": sorted(told.values()),
            **more,
        }


NUMBERS = (
    "windows windows_full windows_partial windows_empty windows_late windows_unstepped windows_mismatched windows_disagreed "
    "micro_steps steps items reductions reductions_intended suppressed late"
).split()


def drive(
    sync: Any,
    watch: Watch,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    micro_batches: Sequence[float],
    *,
    divide: float = 1.0,
    forward: Callable[[int, float], torch.Tensor] | None = None,
    **given: Callable[[int], Any],
) -> list[list[float | None]]:
    """The usual loop. Gradients at each boundary, as gradients() has them; `given` are micro_step's arguments by micro-step."""
    at_boundaries = []
    for i, c in enumerate(micro_batches):
        with watch.place(), sync.micro_step(**{key: value(i) for key, value in given.items()}):
            loss = model(c) if forward is None else forward(i, c)
            (loss / divide).backward()
        if sync.boundary:
            at_boundaries.append(gradients(model))
            finish(optimizer, model)
    return at_boundaries


def finish(optimizer: torch.optim.Optimizer | None, model: nn.Module) -> None:
    if optimizer is not None:
        optimizer.step()
        optimizer.zero_grad()
    else:
        model.zero_grad()
