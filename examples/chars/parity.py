"""Exact runs of all kinds in one launch: the parameters must be the same bytes with and without gradgate, on all ranks and on one.

torchrun --nproc-per-node 2 examples/chars/parity.py --report FILE [options of train.py]
"""

from __future__ import annotations

import argparse
import os
import sys

import report
import torch.distributed as dist
import train
from plain import Plain
from text import Text

MODES = {"ddp": ("every_micro_step", "window"), "hsdp": ("every_micro_step", "window_replica", "window")}


def one_process(args: argparse.Namespace, world: int) -> str:
    """The micro-batches of all ranks without a wrapper, a group, or gradgate; returns the parameters' hash."""
    text = Text(args.text, args.context)
    model = train.build(args, len(text.alphabet), world)
    optimizer = train.optimizer_of(args, model)
    loop = Plain(model, args.accumulate, divide_by=world)
    for epoch in range(args.epochs):
        ranks = [text.micro_batches(epoch, args.batch, rank, world, args.limit) for rank in range(world)]
        for pieces_of_ranks in zip(*ranks, strict=True):
            with loop.micro_step():
                for pieces in pieces_of_ranks:
                    (model(pieces) / args.accumulate).backward()
            if loop.boundary:
                optimizer.step()
                optimizer.zero_grad()
        if loop.flush(divisor=args.accumulate):
            optimizer.step()
            optimizer.zero_grad()
    return report.parameter_hash(model)


def main() -> None:
    # Enough micro-batches for full windows and a partial one.
    sys.argv[1:1] = ["--exact", "--limit", "11", "--batch", "4", "--width", "16", "--context", "32"]
    args = train.arguments()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    hashes = {"one process, no gradgate": one_process(args, world)} if rank == 0 else {}
    for mode in ("without gradgate", *MODES[args.wrapper]):
        args.plain, args.mode = mode == "without gradgate", mode
        hashes[mode] = train.train(args, rank, world)["parameter_hash"]
    report.write(args.report, rank, {"rank": rank, "hashes": hashes})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
