"""A small character-level transformer: reads a piece of text, returns the mean loss of each next character."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        query, key, value = self.project(x).view(batch, length, 3 * self.heads, width // self.heads).transpose(1, 2).chunk(3, dim=1)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        whole: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return whole


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before_attention, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.before_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before_attention(x))
        step: torch.Tensor = self.mlp(self.before_mlp(x))
        return x + step


class Transformer(nn.Module):
    def __init__(self, alphabet: int, context: int, width: int, heads: int, blocks: int) -> None:
        super().__init__()
        self.characters, self.positions = nn.Embedding(alphabet, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, alphabet)

    def forward(self, pieces: torch.Tensor) -> torch.Tensor:
        """pieces: (batch, context + 1) characters."""
        read, following = pieces[:, :-1], pieces[:, 1:]
        x = self.characters(read) + self.positions(torch.arange(read.shape[1]))
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), following.flatten())
