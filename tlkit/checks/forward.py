"""Plain forward passes: through TransformerLens's hooks, and through Hugging Face's own modules."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tlkit.models.bridge import Parts, unbridged

Rows = Sequence[Sequence[int]]


def bridge_logits(parts: Parts, rows: Rows) -> list[Tensor]:
    """Logits ``[pos, vocab]``, float32, of each row run alone through the hooked model."""
    with torch.no_grad():
        return [parts.bridge(_batch(parts, row))[0].float() for row in rows]


def own_logits(parts: Parts, rows: Rows) -> list[Tensor]:
    """The same, of the model's own modules put back in place of the hooked ones."""
    with torch.no_grad(), unbridged(parts.bridge) as hf:
        return [hf(_batch(parts, row), use_cache=False).logits[0].float() for row in rows]


def largest_gap(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> tuple[float, float]:
    """The largest difference, and the largest size of theirs."""
    gaps = [float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)]
    return max(gaps), max(float(b.abs().max()) for b in theirs)


def _batch(parts: Parts, row: Sequence[int]) -> Tensor:
    return torch.tensor(list(row), device=parts.device)[None]
