"""The text as numbers: which characters fall to which rank in which micro-batch."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import torch

HELD_OUT = 0.05  # of the text, its end


class Text:
    """A text cut into pieces of `context` + 1 characters, each predicted from those before it."""

    def __init__(self, path: pathlib.Path, context: int) -> None:
        text = path.read_text(encoding="utf-8")
        self.alphabet = sorted(set(text))
        number = {character: index for index, character in enumerate(self.alphabet)}
        codes = torch.tensor([number[character] for character in text])
        pieces = codes[: len(codes) // (context + 1) * (context + 1)].view(-1, context + 1)
        kept = int(len(pieces) * (1 - HELD_OUT))
        self.train, self.held_out = pieces[:kept], pieces[kept:]

    def micro_batches(self, epoch: int, batch: int, rank: int, world: int, limit: int | None = None) -> Iterator[torch.Tensor]:
        """This rank's part of the shuffled text: the same number of micro-batches on every rank, at most `limit`."""
        order = torch.randperm(len(self.train), generator=torch.Generator().manual_seed(epoch))
        count = len(order) // (batch * world)
        for step in range(count if limit is None else min(count, limit)):
            first = (step * world + rank) * batch
            yield self.train[order[first : first + batch]]

    def held_out_batches(self, batch: int, rank: int, world: int) -> Iterator[torch.Tensor]:
        """As many on every rank."""
        count = len(self.held_out) // (batch * world)
        for step in range(count):
            first = (step * world + rank) * batch
            yield self.held_out[first : first + batch]
