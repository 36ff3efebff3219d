"""A job under torchrun: restarted_job.py FOLDER JOB. The first attempt trains until FOLDER/die is there, then its rank 1 dies; the second
trains thirty windows with a daemon and leaves in FOLDER what rank 0 saw of each."""

from __future__ import annotations

import json
import os
import pathlib
import sys

import gradgate
import torch
import torch.distributed as dist
from torch import nn

N = 4


def agreed(flag: bool) -> bool:
    """Of rank 0, on all."""
    word = torch.tensor([int(flag)])
    dist.broadcast(word, 0)
    return bool(word.item())


def main(folder: pathlib.Path, job: str) -> None:
    dist.init_process_group("gloo")
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    torch.manual_seed(5)
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    seen: list[tuple[int, int]] = []  # of windows since the daemon was there: policy in force, reductions
    with gradgate.attach(model, optimizer, accumulate=N, job=job) as sync:
        while agreed(attempt == 0 or len(seen) < 30):
            before = sync.stats()
            for _ in range(N):
                with sync.micro_step():
                    model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if before["linked"]:
                seen.append((before["policy"], sync.stats()["reductions"] - before["reductions"]))
            if attempt == 0 and agreed((folder / "die").exists()) and dist.get_rank() == 1:
                os._exit(3)
    if dist.get_rank() == 0:
        (folder / "seen").write_text(json.dumps(seen))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
