"""What a collective is for, whose ledger it belongs to, and when it is over; native and Python taps alike."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import launch
import pytest
from test_tap import environment

CLASSES = ("gradient", "ours", "other")
Cells = dict[tuple[str, str, str], int]


class Bench:
    """One rank's tap and ledger, and what was counted in a block, as {(role, operation, class): number}."""

    def __init__(self, rank: int, world: int) -> None:
        import torch.distributed as dist
        from gradgate import tap
        from gradgate.ledger import Ledger

        self.rank, self.world = rank, world
        self.dist: Any = dist
        self.tap = tap.load()
        self.ledger = Ledger(accumulate=0)
        self.group = self.dist.group.WORLD.group_name
        self.tap.bind(self.ledger)
        self.tap.role(self.ledger, self.group, 0)

    def cells(self, ledger: Any = None) -> Cells:
        from gradgate.ledger import OPERATIONS

        counts: Cells = {}
        for number, role in enumerate(("dp", "shard", "replicate", "other")):
            for operation in OPERATIONS:
                cell = (ledger or self.ledger).collective_stats(number, operation)
                for name in CLASSES:
                    counts[role, operation, name] = getattr(cell, f"{name}_issued")
        return counts

    @contextmanager
    def counted(self, ledger: Any = None) -> Iterator[Cells]:
        before = self.cells(ledger)
        found: Cells = {}
        yield found
        found.update({key: n - before[key] for key, n in self.cells(ledger).items() if n > before[key]})

    def over(self, role: int, operation: str) -> tuple[int, int, int]:
        cell = self.ledger.collective_stats(role, operation)
        return cell.completed, cell.failed, cell.unknown


def logged_and_used(bench: Bench) -> None:
    """Loss logging on DDP's group and the map of unused parameters are no gradients; the bucket is."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(4, 4), find_unused_parameters=True)
    begin, end = bench.tap.steps(bench.ledger)
    model(torch.ones(1, 4)).sum().backward()  # buckets are rebuilt after the first
    with bench.counted() as found:
        assert begin(2) == 1
        loss = model(torch.ones(1, 4)).sum()
        bench.dist.all_reduce(loss.detach().clone())
        loss.backward()
        end()
    assert found == {("dp", "all_reduce", "gradient"): 1, ("dp", "all_reduce", "other"): 2}, found
    bench.ledger.window_close(stepped=True)


def told_by_size(bench: Bench) -> None:
    """What a layer reduces in its backward, as SyncBatchNorm does, has another size than a bucket."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    model(torch.ones(1, 4)).sum().backward()
    for sizes, gradients in ((None, 2), (frozenset({20}), 1), (frozenset({6}), 1), (frozenset(), 0)):
        bench.tap.gradient_sizes(bench.ledger, sizes)
        with bench.counted() as found:
            output = model(torch.ones(1, 4))
            output.register_hook(lambda _gradient: bench.dist.all_reduce(torch.ones(6)))
            output.sum().backward()
        assert found.get(("dp", "all_reduce", "gradient"), 0) == gradients, (sizes, found)
        assert found.get(("dp", "all_reduce", "other"), 0) == 2 - gradients, (sizes, found)
    bench.tap.gradient_sizes(bench.ledger, None)


def sharded(bench: Bench) -> None:
    """In a shard group reduce-scatters carry gradients and all-gathers do not; the engine's last callbacks are in the backward."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (bench.world,), mesh_dim_names=("shard",))
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    for part in (model[0], model):
        fully_shard(part, mesh=mesh)
    bench.tap.role(bench.ledger, mesh.get_group().group_name, 1)
    model(torch.ones(1, 4)).sum().backward()
    with bench.counted() as found:
        model(torch.ones(1, 4)).sum().backward()
    # The world's group is both: what is reduce-scattered in it is for shards, and what carries no gradient goes by the first role.
    assert found.pop(("shard", "reduce_scatter", "gradient"), 0) == 2, found
    assert set(found) == {("dp", "all_gather", "other")}, found

    def last() -> None:
        bench.dist.all_reduce(torch.ones(3))

    value = torch.ones(2, requires_grad=True)
    value.register_hook(lambda _gradient: torch.autograd.Variable._execution_engine.queue_callback(last))
    with bench.counted() as found:
        (value * 2).sum().backward()
    assert found == {("dp", "all_reduce", "gradient"): 1}, found


def late(bench: Bench) -> None:
    """Late is a thread's, not the process's, and makes no gradient of integers or of other operations."""
    import torch

    bench.tap.late(True)
    other = threading.Thread(target=bench.dist.all_reduce, args=(torch.ones(2),))
    with bench.counted() as found:
        bench.dist.all_reduce(torch.ones(2))
        bench.dist.all_reduce(torch.ones(2, dtype=torch.int32))
        bench.dist.broadcast(torch.ones(2), 0)
        other.start()
        other.join()
    bench.tap.late(False)
    expected = {("dp", "all_reduce", "gradient"): 1, ("dp", "all_reduce", "other"): 2, ("dp", "broadcast", "other"): 1}
    assert found == expected, found


def groups(bench: Bench) -> None:
    """gradgate's own group, a group of another role, and one that nobody registered."""
    import torch

    own, replicate, unknown = (bench.dist.new_group(backend="gloo") for _ in range(3))
    bench.tap.ours(own.group_name)
    bench.tap.role(bench.ledger, replicate.group_name, 2)
    bench.tap.late(True)
    with bench.counted() as found:
        for group in (own, replicate, unknown):
            bench.dist.all_reduce(torch.ones(2), group=group)
    bench.tap.late(False)
    keys = {("other", "all_reduce", "ours"): 1, ("replicate", "all_reduce", "gradient"): 1, ("other", "all_reduce", "other"): 1}
    assert found == keys, found


def first_gradient(bench: Bench) -> None:
    """Called back once, before the bucket is counted or sent, where it may issue; what it raises is kept."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    model(torch.ones(1, 4)).sum().backward()
    own = bench.dist.new_group(backend="gloo")
    bench.tap.ours(own.group_name)
    seen: list[Any] = []

    def callback() -> None:
        cell = bench.ledger.collective_stats(0, "all_reduce")
        seen.append((threading.get_ident(), cell.gradient_issued))
        seen.append(bench.dist.all_reduce(torch.ones(1), group=own, async_op=True))

    before = bench.ledger.collective_stats(0, "all_reduce").gradient_issued
    with bench.counted() as found:
        bench.tap.on_first_gradient(bench.ledger, callback)
        bench.dist.all_reduce(torch.ones(1))
        assert not seen
        for _ in range(2):
            model(torch.ones(1, 4)).sum().backward()
    assert len(seen) == 2 and seen[0] == (threading.get_ident(), before), seen
    seen[1].wait()
    keys = {("other", "all_reduce", "ours"): 1, ("dp", "all_reduce", "gradient"): 2, ("dp", "all_reduce", "other"): 1}
    assert found == {**keys, ("dp", "broadcast", "other"): 2}, found  # buckets are rebuilt once
    assert bench.tap.error(bench.ledger) is None

    def failing() -> None:
        raise KeyError("its own")

    bench.tap.on_first_gradient(bench.ledger, failing)
    model(torch.ones(1, 4)).sum().backward()
    with pytest.raises(KeyError, match="its own"):
        bench.tap.raise_error(bench.ledger)
    bench.tap.raise_error(bench.ledger)
    bench.tap.on_first_gradient(bench.ledger, callback)
    bench.tap.on_first_gradient(bench.ledger, None)
    model(torch.ones(1, 4)).sum().backward()
    assert len(seen) == 2


def two_ledgers(bench: Bench) -> None:
    """A group that both know belongs to the active one; one that only one knows to that; one that none knows to the first."""
    import torch
    from gradgate.errors import Refused
    from gradgate.ledger import Ledger

    second = Ledger(accumulate=0, scope="#2")
    bench.tap.bind(second)
    bench.tap.role(second, bench.group, 2)
    only = bench.dist.new_group(backend="gloo")
    bench.tap.role(second, only.group_name, 1)
    begin, end = bench.tap.steps(second)
    with bench.counted() as one, bench.counted(second) as two:
        bench.dist.all_reduce(torch.ones(1))
        begin(1)
        bench.dist.all_reduce(torch.ones(1))
        end()
        bench.dist.all_reduce(torch.ones(1))
        bench.tap.active(second)
        bench.dist.broadcast(torch.ones(1), 0)
        bench.tap.active(None)
        bench.dist.barrier(group=only)
        bench.dist.barrier(group=bench.dist.new_group(backend="gloo"))
    assert one[("dp", "all_reduce", "other")] == 2 and one[("other", "barrier", "other")] == 1, one
    assert two[("replicate", "all_reduce", "other")] == 1 and two[("shard", "barrier", "other")] == 1, two
    assert two[("replicate", "broadcast", "other")] == 1, two
    with pytest.raises(Refused, match="no micro-step"):
        end()
    begin(1)
    with pytest.raises(Refused):
        begin(1)
    end()
    bench.tap.unbind(second)
    bench.tap.unbind(second)
    bench.dist.all_reduce(torch.ones(1))
    second.close()
    second.destroy()


def threads(bench: Bench) -> None:
    """Several threads issue at once, each on its own group; nothing is lost."""
    import torch

    count, lanes = 200, [bench.dist.new_group(backend="gloo") for _ in range(4)]
    for lane in lanes:
        bench.tap.role(bench.ledger, lane.group_name, 2)

    def issue(lane: Any) -> None:
        bench.tap.late(True)
        for _ in range(count):
            bench.dist.all_reduce(torch.ones(2), group=lane)

    before = bench.over(2, "all_reduce")
    workers = [threading.Thread(target=issue, args=(lane,)) for lane in lanes]
    with bench.counted() as found:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert found == {("replicate", "all_reduce", "gradient"): 4 * count}, found
    settle(lambda: bench.over(2, "all_reduce")[0] - before[0] == 4 * count)
    assert bench.over(2, "all_reduce") == (before[0] + 4 * count, 0, 0)


def settle(done: Callable[[], bool]) -> None:
    """Gloo wakes the waiter before it runs callbacks: what has been waited for is counted a moment later, asked for or not."""
    import time

    end = time.monotonic() + 20
    while not done() and time.monotonic() < end:
        time.sleep(0.001)


def completion(bench: Bench) -> None:
    """Gloo's futures tell; reduce-scatter, send and recv have none and are unknown; what raises has failed."""
    import torch

    lane = bench.dist.new_group(backend="gloo")
    bench.tap.role(bench.ledger, lane.group_name, 1)
    before = {name: bench.over(1, name) for name in ("all_reduce", "all_gather", "barrier", "reduce_scatter", "send", "recv")}
    both, large = torch.ones(2 * bench.world), torch.ones(1 << 18)
    for _ in range(3):
        bench.dist.all_reduce(large, group=lane)
        bench.dist.all_gather_into_tensor(both, torch.ones(2), group=lane)
        bench.dist.barrier(group=lane)
        bench.dist.reduce_scatter_tensor(torch.ones(2), both, group=lane)
        peer = (bench.rank + 1) % bench.world
        works = [bench.dist.isend(large, peer, group=lane), bench.dist.irecv(large.clone(), peer, group=lane)]
        for work in works:
            work.wait()
    with pytest.raises((RuntimeError, ValueError)) as caught:
        lane.allreduce([])
    assert "non-empty" in str(caught.value)
    expected = {"all_reduce": (3, 1, 0), "all_gather": (3, 0, 0), "barrier": (3, 0, 0)}
    expected |= {"reduce_scatter": (0, 0, 3), "send": (0, 0, 3), "recv": (0, 0, 3)}

    def grown() -> dict[str, tuple[int, ...]]:
        return {name: tuple(a - b for a, b in zip(bench.over(1, name), before[name], strict=True)) for name in before}

    settle(lambda: grown() == expected)
    assert grown() == expected, grown()
    assert bench.tap.outstanding() == 0


def payload(bench: Bench) -> None:
    """Bytes that this rank hands in, and the tensors of a coalesced call."""
    import torch

    lane = bench.dist.new_group(backend="gloo")
    bench.tap.role(bench.ledger, lane.group_name, 3)
    before = {name: bench.ledger.collective_stats(3, name) for name in ("all_reduce", "all_gather", "scatter", "barrier", "reduce_scatter")}
    lane.allreduce_coalesced([torch.ones(3), torch.ones(5)]).wait()
    bench.dist.all_gather_into_tensor(torch.ones(4 * bench.world), torch.ones(4), group=lane)
    parts = [torch.ones(4, dtype=torch.float64) for _ in range(bench.world)]
    bench.dist.scatter(torch.ones(4, dtype=torch.float64), parts if bench.rank == 0 else None, 0, group=lane)
    bench.dist.reduce_scatter(torch.ones(4, dtype=torch.float64), parts, group=lane)
    bench.dist.all_reduce(torch.eye(3).to_sparse(), group=lane)  # 3 values, 2 × 3 indices
    bench.dist.barrier(group=lane)
    after = {name: bench.ledger.collective_stats(3, name) for name in before}
    grown = {n: (after[n].other_bytes - before[n].other_bytes, after[n].tensors - before[n].tensors) for n in before}
    root = bench.rank == 0
    assert grown == {
        "all_reduce": (32 + 12 + 48, 3),
        "all_gather": (16, 1),
        "scatter": (32 * bench.world, bench.world) if root else (0, 0),
        "reduce_scatter": (32 * bench.world, bench.world),
        "barrier": (0, 0),
    }, grown


ROWS = (
    *(logged_and_used, told_by_size, sharded, late, groups, first_gradient),
    *(two_ledgers, threads, completion, payload),
)


def classifying(rank: int, world: int) -> list[str]:
    bench = Bench(rank, world)
    for row in ROWS:
        row(bench)
    bench.tap.unbind(bench.ledger)
    bench.ledger.close()
    bench.ledger.destroy()
    return [row.__name__ for row in ROWS]


@pytest.mark.parametrize("kind", ["native", "python"])
def test_classes_and_completion(kind: str) -> None:
    for names in launch.run(classifying, 2, env=environment(kind), timeout=240):
        assert len(names) == len(ROWS)
