"""Trains a character-level transformer on a book, data-parallel, with one gradient reduction per optimizer step.

torchrun --nproc-per-node 2 examples/chars/train.py                       DDP
torchrun --nproc-per-node 4 examples/chars/train.py --wrapper hsdp        fully_shard: 2 replicas, each sharded over 2 ranks
python examples/chars/train.py                                            one process
"""

from __future__ import annotations

import argparse
import os
import pathlib
import time
from typing import Any

import gradgate
import grid
import report
import torch
import torch.distributed as dist
from model import Transformer
from plain import Plain
from text import Text
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

DATA = pathlib.Path(__file__).resolve().parent / "data/opticks.txt"
MODES = ("auto", "window", "window_replica", "every_micro_step")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=pathlib.Path, default=DATA, help="what to learn, UTF-8")
    parser.add_argument("--wrapper", choices=("ddp", "hsdp"), default="ddp", help="how the model is data-parallel (ddp)")
    parser.add_argument("--mode", choices=MODES, default="window", help="when gradients are reduced (window)")
    parser.add_argument("--plain", action="store_true", help="without gradgate: the wrapper reduces each micro-step")
    parser.add_argument("--accumulate", type=int, default=4, help="micro-steps per window (4)")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=16, help="pieces of text in a micro-batch (16)")
    parser.add_argument("--limit", type=int, help="end each epoch after so many micro-steps")
    parser.add_argument("--context", type=int, default=64, help="characters read to predict the next (64)")
    parser.add_argument("--width", type=int, default=64, help="of the model (64)")
    parser.add_argument("--blocks", type=int, default=2, help="of the model (2)")
    parser.add_argument("--exact", action="store_true", help="float64 and gradients on a grid: sums are exact in any order")
    parser.add_argument("--report", type=pathlib.Path, help="write counts and hashes of rank R to REPORT.R, as JSON")
    return parser.parse_args()


def build(args: argparse.Namespace, alphabet: int, world: int) -> nn.Module:
    torch.manual_seed(7)
    model = Transformer(alphabet, args.context, args.width, heads=4, blocks=args.blocks)
    return grid.round_gradients(model, grid.spacing(world, args.accumulate)) if args.exact else model


def wrap(model: nn.Module, wrapper: str, world: int) -> nn.Module:
    if world == 1:
        return model
    if wrapper == "ddp":
        return DistributedDataParallel(model)
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
    for block in model.get_submodule("blocks").children():
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def optimizer_of(args: argparse.Namespace, model: nn.Module) -> torch.optim.Optimizer:
    # In exact runs nothing but sums and products by powers of two: the same bytes however parameters are laid out.
    return torch.optim.SGD(model.parameters(), lr=0.125) if args.exact else torch.optim.AdamW(model.parameters(), lr=3e-3)


def mean_over_ranks(value: torch.Tensor, world: int) -> float:
    value = value.detach().clone()
    if world > 1:
        dist.all_reduce(value)
    return value.item() / world


def held_out_loss(model: nn.Module, text: Text, batch: int, rank: int, world: int) -> float:
    model.eval()
    with torch.no_grad():
        losses = [model(pieces) for pieces in text.held_out_batches(batch, rank, world)]
    model.train()
    return mean_over_ranks(torch.stack(losses).mean(), world)


def train(args: argparse.Namespace, rank: int, world: int) -> dict[str, Any]:
    text = Text(args.text, args.context)
    model = wrap(build(args, len(text.alphabet), world), args.wrapper, world)
    optimizer = optimizer_of(args, model)
    sync: Any = (
        Plain(model, args.accumulate) if args.plain else gradgate.attach(model, optimizer, accumulate=args.accumulate, mode=args.mode)
    )

    log = report.Log(sync, profiled=args.report is not None and not args.exact)
    begun = time.monotonic()
    for epoch in range(args.epochs):
        for pieces in text.micro_batches(epoch, args.batch, rank, world, args.limit):
            with sync.micro_step():
                loss = model(pieces)
                (loss / args.accumulate).backward()
            log.micro_step(mean_over_ranks(loss, world))
            if sync.boundary:
                optimizer.step()
                optimizer.zero_grad()
                log.step()
        while sync.flush(divisor=args.accumulate):
            optimizer.step()
            optimizer.zero_grad()
            log.step()
        log.epoch(held_out_loss(model, text, args.batch, rank, world))
    seconds = time.monotonic() - begun
    told = log.end()
    sync.close()
    return {**told, "rank": rank, "seconds": seconds, "parameter_hash": report.parameter_hash(model)}


def main() -> None:
    args = arguments()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    told = train(args, rank, world)
    if args.report:
        report.write(args.report, rank, told)
    if rank == 0:
        print(f"held-out loss {told['held_out_loss']:.3f} after {told['counted']['steps']} steps in {told['seconds']:.1f} s")
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
