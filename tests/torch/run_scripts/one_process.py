"""Trains in one process, with workers of all kinds beside it: one_process.py STATUS. Ends in the handler of a signal, with STATUS."""

import multiprocessing
import os
import signal
import sys
import types
from typing import Any

import torch
from torch.utils.data import DataLoader


def terminated(number: int, _frame: types.FrameType | None) -> None:
    print("handled", signal.Signals(number).name, flush=True)
    sys.exit(int(sys.argv[1]))


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def main() -> None:
    signal.signal(signal.SIGTERM, terminated)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data: Any = [torch.ones(2)] * 4
    for start in ("fork", "spawn"):
        for batch in DataLoader(data, batch_size=2, num_workers=1, multiprocessing_context=start):
            step(model, optimizer, batch)
    child = multiprocessing.get_context("fork").Process(target=step, args=(model, optimizer, torch.ones(1, 2)))
    child.start()
    child.join()
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    os.waitpid(pid, 0)
    print("trained", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()


if __name__ == "__main__":
    main()
