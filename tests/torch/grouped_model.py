"""A detector whose optimizer gets one group per tensor: 465 trainable tensors in 28 distinct settings, as published detectors have it.

    model = build()                  # 26 million elements; build(narrow=True): as many tensors and settings, 22 thousand elements
    optimizer = torch.optim.AdamW(groups(model))
    backward(model, step=0)          # gradients of all 465 from the data of that step

The learning rate decays over the levels (embedding, twelve blocks, what is behind them); norms, biases and embeddings have no weight
decay. So settings alternate in model order. Besides: three frozen tensors, and one that is registered under two names.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

TENSORS, SETTINGS, FROZEN = 465, 28, 3
BLOCKS, LAYERS, SCALES, PROPOSALS = 12, 6, 4, 8
LEVELS = BLOCKS + 2  # the embedding, the blocks, what is behind them
BASE_LR, LEVEL_DECAY, WEIGHT_DECAY = 1e-4, 0.8, 0.05
PATCH, SIDE = 8, 32  # pixels
TIED = ("class_heads.5.weight", "labels.weight")


def attend(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class Block(nn.Module):
    """A backbone block: 18 tensors."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.scale1 = nn.Parameter(torch.full((width,), 0.1))
        self.norm2 = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale2 = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.scale1 * self.out(attend(self.query(y), self.key(y), self.value(y), self.heads))
        return cast(Tensor, x + self.scale2 * self.down(functional.gelu(self.up(self.norm2(x)))))


class Layer(nn.Module):
    """A decoder layer: 22 tensors."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.mixed, self.mixed_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        q, k, v = self.mixed(self.norm1(x)).chunk(3, dim=-1)
        x = x + self.mixed_out(attend(q, k, v, self.heads))
        x = x + self.out(attend(self.query(self.norm2(x)), self.key(memory), self.value(memory), self.heads))
        return cast(Tensor, x + self.down(functional.relu(self.up(self.norm3(x)))))


class Detector(nn.Module):
    """forward(images, labels) is the loss: a number that depends on every trainable tensor."""

    def __init__(self, width: int, inner: int, heads: int, classes: int, queries: int) -> None:
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.GroupNorm(1, 3)
        self.stem.requires_grad_(False)
        self.stem_norm.requires_grad_(False)
        self.patch = nn.Conv2d(3, width, PATCH, stride=PATCH)
        self.position = nn.Parameter(torch.randn(1, (SIDE // PATCH) ** 2 + 1, width) * 0.02)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(width)
        self.projector = nn.ModuleList(
            nn.Sequential(
                nn.Linear(width, inner, bias=False),
                nn.LayerNorm(inner),
                nn.ReLU(),
                nn.Linear(inner, inner, bias=False),
                nn.LayerNorm(inner),
            )
            for _ in range(SCALES)
        )
        self.levels = nn.ParameterList(torch.randn(inner) * 0.02 for _ in range(SCALES))
        self.queries = nn.Parameter(torch.randn(queries, inner))
        self.proposals = nn.ModuleList(nn.Sequential(nn.Linear(inner, inner), nn.LayerNorm(inner)) for _ in range(PROPOSALS))
        self.layers = nn.ModuleList(Layer(inner, heads) for _ in range(LAYERS))
        self.layers_norm = nn.LayerNorm(inner)
        self.class_heads = nn.ModuleList(nn.Linear(inner, classes) for _ in range(LAYERS))
        self.box_heads = nn.ModuleList(
            nn.Sequential(nn.Linear(inner, inner), nn.ReLU(), nn.Linear(inner, inner), nn.ReLU(), nn.Linear(inner, 4))
            for _ in range(LAYERS)
        )
        self.labels = nn.Linear(inner, classes, bias=False)
        self.labels.weight = cast(nn.Linear, self.class_heads[-1]).weight  # one tensor with two names

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        memory = self.memory(images)
        guesses = torch.stack([proposal(memory) for proposal in self.proposals]).mean(dim=(0, 2))
        x = self.queries + guesses[:, None] + functional.embedding(labels, self.labels.weight)[:, None]
        loss = guesses.square().mean()
        for layer, classify, box in zip(self.layers, self.class_heads, self.box_heads, strict=True):
            x = layer(x, memory)
            y = self.layers_norm(x)
            loss = loss + functional.cross_entropy(classify(y).mean(dim=1), labels) + box(y).sigmoid().square().mean()
        return loss

    def memory(self, images: Tensor) -> Tensor:
        x = self.patch(self.stem_norm(self.stem(images))).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.position
        scales: list[Tensor] = []
        for index, block in enumerate(self.blocks):
            x = block(x)
            if (index + 1) % (BLOCKS // SCALES) == 0:
                scale = len(scales)
                scales.append(self.projector[scale](self.norm(x)) + self.levels[scale])
        return torch.cat(scales, dim=1)


def build(narrow: bool = False, seed: int = 7) -> Detector:
    """Weights depend on the seed alone; the generator of the caller is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Detector(8, 8, 2, 5, 3) if narrow else Detector(384, 192, 6, 91, 20)
        with torch.no_grad():
            model.token.normal_(std=0.02)
    return model


def batch(step: int, size: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 + step)
    return torch.randn(size, 3, SIDE, SIDE, generator=generator), torch.randint(0, 5, (size,), generator=generator)


def backward(model: nn.Module, step: int) -> float:
    """Fresh gradients from the data of that step; returns the loss."""
    model.zero_grad(set_to_none=True)
    loss = model(*batch(step))
    loss.backward()
    return float(loss.detach())


def setting(name: str, shape: torch.Size, base_lr: float = BASE_LR) -> tuple[float, float]:
    """(lr, weight_decay) by the tensor's name and shape alone."""
    bare = name.rpartition(".")[2]
    plain = len(shape) < 2 or bare in ("position", "token", "queries")
    return base_lr * LEVEL_DECAY ** (LEVELS - 1 - level(name)), 0.0 if plain else WEIGHT_DECAY


def level(name: str) -> int:
    """0: the embedding; 1 to 12: the blocks; 13: what is behind them."""
    first, _, rest = name.partition(".")
    if first in ("stem", "stem_norm", "patch", "position", "token"):
        return 0
    return int(rest.partition(".")[0]) + 1 if first == "blocks" else BLOCKS if first == "norm" else BLOCKS + 1


def groups(
    model: nn.Module, *, base_lr: float = BASE_LR, frozen: bool = False, repeated: bool = False, named: bool = False
) -> list[dict[str, Any]]:
    """One group per parameter in model order. `frozen`: those that do not require a gradient too; `repeated`: a tensor once per name,
    which torch's optimizers refuse; `named`: as (name, tensor) pairs."""
    found: list[dict[str, Any]] = []
    for name, parameter in model.named_parameters(remove_duplicate=not repeated):
        if parameter.requires_grad or frozen:
            lr, weight_decay = setting(name, parameter.shape, base_lr)
            found.append({"params": [(name, parameter) if named else parameter], "lr": lr, "weight_decay": weight_decay})
    return found


def elements(model: nn.Module) -> int:
    return sum(math.prod(p.shape) for p in model.parameters() if p.requires_grad)
