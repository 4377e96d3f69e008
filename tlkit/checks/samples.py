"""Random prompts and layers for checks: every model has them, whatever its tokenizer."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts

LENGTHS = ((12, 3), (9, 0), (14, 7))
"""Tokens of each pair, and the position of its first difference."""

_RELATIVE = {torch.float32: 1e-5, torch.float64: 1e-5, torch.float16: 5e-3, torch.bfloat16: 2e-2}


def tolerance(dtype: Any, scale: float) -> float:
    """How far two computations of logits whose largest size is ``scale`` may be apart."""
    return _RELATIVE.get(dtype, 2e-2) * max(1.0, scale)


def sample_layers(count: int) -> tuple[int, ...]:
    """All layers of a shallow model; the first, a middle and the last one of a deep one."""
    return tuple(range(count)) if count <= 3 else (0, count // 2, count - 1)


def sample_pairs(parts: Parts, seed: int, lengths: Sequence[tuple[int, int]] = LENGTHS) -> Prompts:
    """Pairs of random ids that differ at two tokens, with random answers of one token.

    Args:
        parts: The model; its special tokens are left out.
        seed: Of the ids.
        lengths: See `LENGTHS`.
    """
    generator = torch.Generator().manual_seed(seed)
    tokenizer = parts.bridge.tokenizer
    special = set(getattr(tokenizer, "all_special_ids", ()))
    usable = [i for i in range(min(int(parts.bridge.cfg.d_vocab), 4096)) if i not in special]

    def draw(count: int) -> list[int]:
        chosen = torch.randperm(len(usable), generator=generator)[:count]
        return [usable[i] for i in chosen.tolist()]

    clean, corrupted, right, wrong = [], [], [], []
    for length, first in lengths:
        row, other = draw(length), draw(2)
        twin = list(row)
        for position, token in zip((first, min(first + 2, length - 1)), other, strict=True):
            twin[position] = token if token != row[position] else usable[0]
        clean.append(row)
        corrupted.append(twin)
        answer, mistake = draw(2)
        right.append([answer])
        wrong.append([mistake])
    return Prompts.from_tokens(clean, corrupted, right, wrong)


class Projection:
    """A metric that every logit of the last position moves: their product with random weights.

    Args:
        vocabulary: How many logits there are.
        seed: Of the weights.
    """

    positions = -1
    __name__ = "projection"

    def __init__(self, vocabulary: int, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.seed, self.size = seed, vocabulary
        self.weights = torch.randn(vocabulary, generator=generator) / vocabulary**0.5

    def __call__(self, logits: Tensor) -> Tensor:
        """The product, from ``[1, 1, vocab]``."""
        return logits[0, -1] @ self.weights.to(logits)

    def __repr__(self) -> str:
        return f"Projection({self.size}, seed={self.seed})"
