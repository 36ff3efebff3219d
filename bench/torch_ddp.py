"""A backward whose gradients are reduced by torch DDP, against one whose gradients gradgate reduces, over Gloo on loopback.

    python3 torch_ddp.py LIBGRADGATE ROUNDS MIB

Two processes, one model of 16 equal parameters, gradients in the parameters' own memory (copied to buckets and back, as DDP
does without gradient_as_bucket_view), average over ranks. Both launch buckets while the backward runs. torch brings a Gloo of
its own. Prints series as the other programs do. Needs torch.
"""

# mypy: disable-error-code="import-not-found,misc"

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 2
TENSORS = 16
SECONDS = 60


class StoreOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("serve", ctypes.c_uint32), ("url", ctypes.c_char_p), ("deadline_ns", ctypes.c_int64)]


class GlooOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("world_size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("store", ctypes.c_void_p),
        ("interface_name", ctypes.c_char_p),
        ("group_name", ctypes.c_char_p),
        ("deadline_ns", ctypes.c_int64),
    ]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("gradient", ctypes.c_void_p),
        ("element_count", ctypes.c_uint64),
        ("dtype", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class SessionOptions(ctypes.Structure):
    _fields_ = [
        *[(n, ctypes.c_uint32) for n in ("struct_size", "accumulate", "mode", "windows", "divide", "strict", "rank", "world_size")],
        ("local_rank", ctypes.c_int32),
        ("tensor_count", ctypes.c_uint32),
        ("tensors", ctypes.POINTER(Tensor)),
        ("store", ctypes.c_void_p),
        ("transport", ctypes.c_void_p),
        ("job_name", ctypes.c_char_p),
        ("daemon_dir", ctypes.c_char_p),
        ("bucket_bytes", ctypes.c_uint64),
        ("deadline_ns", ctypes.c_int64),
        ("handshake_deadline_ns", ctypes.c_int64),
        ("log", ctypes.c_void_p),
        ("log_user", ctypes.c_void_p),
    ]


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("reserved", ctypes.c_uint32), ("message", ctypes.c_char * 1016)]


class Gradgate:
    """A session over a Gloo transport of its own, by ctypes."""

    def __init__(self, library: str, directory: str, rank: int, gradients: list[torch.Tensor]) -> None:
        self.lib = ctypes.CDLL(library)
        self.error = Error()
        store, transport, self.session = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        options = StoreOptions(ctypes.sizeof(StoreOptions), 0, f"file://{directory}/gradgate".encode(), 0)
        self.call("gg_store_open", ctypes.byref(options), ctypes.byref(store))
        gloo = GlooOptions(ctypes.sizeof(GlooOptions), rank, WORLD, 0, store, b"lo", None, 0)
        self.call("gg_transport_open_gloo", ctypes.byref(gloo), ctypes.byref(transport))
        tensors = (Tensor * len(gradients))(*[Tensor(b"p", g.data_ptr(), g.numel(), 1, 0) for g in gradients])
        session = SessionOptions(struct_size=ctypes.sizeof(SessionOptions), accumulate=1, local_rank=-1, tensor_count=len(gradients))
        session.tensors, session.store, session.transport, session.daemon_dir = tensors, store, transport, b""
        self.call("gg_session_create", ctypes.byref(session), ctypes.byref(self.session))

    def call(self, name: str, *arguments: object) -> None:
        if getattr(self.lib, name)(*arguments, ctypes.byref(self.error)) != 0:
            raise RuntimeError(f"{name}: {self.error.message.decode()}")

    def begin(self) -> None:
        boundary = ctypes.c_uint32()
        self.call("gg_micro_step_begin", self.session, None, ctypes.byref(boundary))

    def ready(self, tensor: int) -> None:
        self.call("gg_gradient_ready", self.session, ctypes.c_uint32(tensor))

    def finish(self) -> None:
        self.call("gg_micro_step_end", self.session)
        self.call("gg_step_begin", self.session, None)


class Model(torch.nn.Module):
    def __init__(self, elements: int) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(elements)) for _ in range(TENSORS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = x + (weight * x).sum()
        return x


def run_rank(rank: int, library: str, directory: str, rounds: int, mib: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/torch", rank=rank, world_size=WORLD)
    elements = mib * 2**20 // 4 // TENSORS
    x = torch.ones(1)

    wrapped = torch.nn.parallel.DistributedDataParallel(Model(elements))
    plain = Model(elements)
    for p in [*wrapped.parameters(), *plain.parameters()]:
        p.grad = torch.zeros_like(p)
    gradgate = Gradgate(library, directory, rank, [p.grad for p in plain.parameters() if p.grad is not None])
    for i, p in enumerate(plain.parameters()):
        p.register_post_accumulate_grad_hook(lambda _, tensor=i: gradgate.ready(tensor))

    def by_ddp() -> float:
        loss = wrapped(x).sum()
        dist.barrier()
        begin = time.perf_counter()
        loss.backward()
        return 1000 * (time.perf_counter() - begin)

    def by_gradgate() -> float:
        gradgate.begin()
        loss = plain(x).sum()
        dist.barrier()
        begin = time.perf_counter()
        loss.backward()
        gradgate.finish()
        return 1000 * (time.perf_counter() - begin)

    series: dict[str, dict[str, list[float]]] = {name: {"samples": [], "again": []} for name in ("ddp", "gradgate")}
    for turn in range(rounds + 2):  # two warm up: DDP lays its buckets out anew after the first
        for key in ("samples", "again"):
            for name, measure in (("ddp", by_ddp), ("gradgate", by_gradgate)):
                took = measure()
                if turn >= 2:
                    series[name][key].append(took)
    for name, values in series.items():
        if rank == 0:
            print(json.dumps({"name": name, "unit": "ms", **values}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as where:
        mp.spawn(run_rank, args=(sys.argv[1], where, int(sys.argv[2]), int(sys.argv[3])), nprocs=WORLD)
