"""Trains a small model by the named loop, and writes what became of it: torchrun … loops.py FOLDER LOOP

FOLDER/RANK.json is {parameters: hash, collectives: {operation: {elements: count}} from the first step on}.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE.parent), str(HERE.parents[2] / "examples/demo")]

import exact  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from profiler import OPERATIONS  # noqa: E402
from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: E402

Loop = Callable[["Run"], Iterable[torch.Tensor]]  # returns the parameters at its end
COUNTED = "counted"


class Run:
    """What a loop is given."""

    def __init__(self) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def sgd(self, parameters: Any, **options: Any) -> torch.optim.SGD:
        return torch.optim.SGD(parameters, **{"lr": 1e-7, "momentum": 0.5, **options})

    def windows(self, *sizes: int) -> Iterator[list[torch.Tensor]]:
        """The batches of each window."""
        generator = torch.Generator().manual_seed(100 + self.rank)
        for size in sizes:
            yield [torch.randn(5, 6, generator=generator, dtype=torch.float64) for _ in range(size)]


class Counted(torch.profiler.record_function):
    """What is counted, from the first step on."""

    def __init__(self) -> None:
        super().__init__(COUNTED)
        self._first = register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, *_: Any) -> None:
        self._first.remove()
        self.__enter__()  # type: ignore[no-untyped-call]


def counts(profile: Any) -> dict[str, dict[int, int]]:
    """By operation and the elements of its first argument."""
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace.json"
        profile.export_chrome_trace(str(trace))
        events = [e for e in json.loads(trace.read_text(errors="replace"))["traceEvents"] if e.get("ph") == "X"]
    [(begin, end)] = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["name"] == COUNTED and e["cat"] == "user_annotation"]
    seen: dict[str, Counter[int]] = {}
    for event in events:
        if event["name"].startswith("c10d::") and begin <= event["ts"] <= end:
            operation = event["name"].removeprefix("c10d::")
            seen.setdefault(OPERATIONS.get(operation, operation), Counter())[elements(event["args"].get("Input Dims", []))] += 1
    return {operation: dict(sizes) for operation, sizes in seen.items()}


def elements(dims: Any) -> int:
    """Of the first argument: one tensor, a list of tensors, or a list of such lists."""
    shapes = re.findall(r"\[([\d, ]*)\]", json.dumps(dims[0])) if dims else []
    total = 0
    for shape in shapes:
        count = 1
        for size in shape.split(","):
            count *= int(size or 1)
        total += count
    return total


def main(folder: str, name: str) -> None:
    import ddp_loops
    import model_loops
    import odd_loops
    import predicted_loops
    import sharded_loops
    import step_loops
    import touched_loops

    loops = (ddp_loops, sharded_loops, step_loops, model_loops, odd_loops, predicted_loops, touched_loops)
    loop: Loop = {name: loop for module in loops for name, loop in module.LOOPS.items()}[name]
    dist.init_process_group("gloo")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        counted = Counted()
        parameters = exact.parameter_hash(loop(Run()))
        dist.barrier()
        counted.__exit__(None, None, None)
    told = {"parameters": parameters, "collectives": counts(profile)}
    (pathlib.Path(folder) / f"{dist.get_rank()}.json").write_text(json.dumps(told))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
