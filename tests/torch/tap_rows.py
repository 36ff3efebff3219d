"""Ways to issue collectives, each a row of test_tap: what each row issues is checked against torch's profiler."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

functional: Any = importlib.import_module("torch.distributed._functional_collectives")
Row = Callable[[int, int], None]
ROWS: dict[str, Row] = {}


def row(function: Row) -> Row:
    ROWS[function.__name__] = function
    return function


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


@row
def ddp_windows(rank: int, world: int) -> None:
    model = DistributedDataParallel(net())
    for _ in range(2):
        with model.no_sync():
            model(torch.ones(2, 8)).sum().backward()
        model(torch.ones(2, 8)).sum().backward()


@row
def ddp_with_hook(rank: int, world: int) -> None:
    inner = net()
    model = DistributedDataParallel(inner)
    called = []

    def hook(_state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        called.append(1)
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        averaged: torch.futures.Future[torch.Tensor] = future.then(lambda f: f.value()[0] / world)
        return averaged

    hook.__annotations__ = {"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]}  # which DDP looks at
    model.register_comm_hook(None, hook)
    model(torch.full((2, 8), float(rank))).sum().backward()
    assert called
    gathered = [torch.zeros(8) for _ in range(world)]
    dist.all_gather(gathered, inner[2].bias.grad)
    assert torch.equal(gathered[0], gathered[1])


@row
def fsdp2(rank: int, world: int) -> None:
    from torch.distributed.fsdp import fully_shard

    model = net()
    fully_shard(model[0])
    fully_shard(model)
    for _ in range(2):
        model(torch.ones(2, 8)).sum().backward()


@row
def synchronous(rank: int, world: int) -> None:
    one, both, parts = torch.ones(4), torch.ones(4 * world), [torch.ones(4) for _ in range(world)]
    dist.all_reduce(one)
    dist.broadcast(one, 0)
    dist.reduce(one, 0)
    dist.all_gather(parts, one)
    dist.all_gather_into_tensor(both, one)
    dist.gather(one, parts if rank == 0 else None, 0)
    dist.scatter(one, parts if rank == 0 else None, 0)
    dist.reduce_scatter(one, parts)
    dist.reduce_scatter_tensor(one, both)
    dist.all_to_all(parts, [torch.ones(4) for _ in range(world)])
    dist.all_to_all_single(both, torch.ones(4 * world))
    dist.barrier()
    dist.monitored_barrier()
    objects: list[Any] = [None] * world
    dist.all_gather_object(objects, rank)
    assert objects == list(range(world))


@row
def asynchronous(rank: int, world: int) -> None:
    works = [dist.all_reduce(torch.ones(4), async_op=True) for _ in range(3)]
    works.append(dist.broadcast(torch.ones(2), 0, async_op=True))
    works.append(dist.barrier(async_op=True))
    for work in works:
        work.wait()


@row
def without_grad(rank: int, world: int) -> None:
    value = torch.ones(4, requires_grad=True)
    with torch.no_grad():
        dist.all_reduce(value)
    with torch.inference_mode():
        dist.all_reduce(torch.ones(4))
        functional.all_reduce(torch.ones(4), "sum", dist.group.WORLD).wait()


@row
def coalesced(rank: int, world: int) -> None:
    from torch.distributed.distributed_c10d import _coalescing_manager

    tensors = [torch.ones(4), torch.ones(6)]
    with _coalescing_manager() as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    if manager is not None and getattr(manager, "works", None):
        manager.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.all_reduce_coalesced(tensors)


@row
def point_to_point(rank: int, world: int) -> None:
    peer = (rank + 1) % world
    operations = [dist.P2POp(dist.isend, torch.ones(4), peer), dist.P2POp(dist.irecv, torch.ones(4), peer)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    if rank == 0:
        dist.send(torch.ones(2), 1)
    elif rank == 1:
        dist.recv(torch.ones(2))  # from anybody


@row
def functional_without_autograd(rank: int, world: int) -> None:
    group: Any = dist.group.WORLD
    functional.all_reduce(torch.ones(4), "sum", group).wait()
    functional.all_gather_tensor(torch.ones(4), 0, group).wait()
    functional.reduce_scatter_tensor(torch.ones(4), "sum", 0, group).wait()
    for tensor in functional.all_reduce_coalesced([torch.ones(4), torch.ones(2)], "sum", group):
        tensor.wait()


@row
def functional_with_autograd(rank: int, world: int) -> None:
    group: Any = dist.group.WORLD
    value = torch.ones(4, requires_grad=True)
    functional.all_gather_tensor_autograd(value, 0, group).sum().backward()
    functional.reduce_scatter_tensor_autograd(value * 2, "sum", 0, group).sum().backward()
    functional.all_to_all_single_autograd(value * 3, None, None, group).sum().backward()


@row
def dtensor(rank: int, world: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor as Distributed
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (world,))
    sharded = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])
    assert torch.equal(sharded.redistribute(placements=[Replicate()]).to_local(), torch.arange(8.0))
    partial = Distributed.from_local(torch.ones(4), mesh, [Partial()])
    assert partial.redistribute(placements=[Replicate()]).to_local()[0] == world
    partial.redistribute(placements=[Shard(0)])
    sharded.full_tensor()


@row
def compiled_eager(rank: int, world: int) -> None:
    compiled("eager")


@row
def compiled_aot_eager(rank: int, world: int) -> None:
    compiled("aot_eager")


def compiled(backend: str) -> None:
    group: Any = dist.group.WORLD

    @torch.compile(backend=backend)
    def step(value: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = functional.all_reduce(value * 2, "sum", group)
        return total + 1

    for _ in range(2):
        step(torch.ones(4)).sum().item()


@row
def compiled_ddp(rank: int, world: int) -> None:
    model = DistributedDataParallel(net())
    step = torch.compile(model, backend="aot_eager")
    for _ in range(2):
        step(torch.ones(2, 8)).sum().backward()


@row
def recomputed(rank: int, world: int) -> None:
    from torch.utils.checkpoint import checkpoint

    def block(value: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            total: torch.Tensor = functional.all_reduce(value.detach(), "sum", dist.group.WORLD)
        return value.sin() * total

    for reentrant in (False, True):
        value = torch.ones(4, requires_grad=True)
        checkpoint(block, value, use_reentrant=reentrant).sum().backward()


# Not rows: the profiler does not tell what these issue.


def under_comm_debug_mode(rank: int, world: int) -> None:
    """Each is dispatched twice, to the mode and by it, and the profiler counts both: 2 all-reduces and a barrier."""
    from torch.distributed.tensor.debug import CommDebugMode

    with CommDebugMode():
        dist.all_reduce(torch.ones(4))
        functional.all_reduce(torch.ones(4), "sum", dist.group.WORLD).wait()
        dist.barrier()


def on_meta(rank: int, world: int) -> None:
    """Shapes alone; nothing is sent."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    dist.all_reduce(torch.empty(4, device="meta"))
    with FakeTensorMode():
        dist.all_reduce(torch.empty(4))
        functional.all_reduce(torch.ones(4), "sum", dist.group.WORLD)
