"""The affine claim: inserted tokens turn a head's output z into λ z + Σ.

Shi et al. 2025 (arXiv:2510.01032, equations 1 and 2): as far as the scores among original tokens
stay what they were, the inserted ones take a share of the attention, λ = 1 - that share, and add
their own values, Σ = Σ_i A'[q, i] v_i. In the first layer the claim would be exact, but for rotary
embeddings, which see that tokens have moved; above it the inputs have changed as well.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tlkit.engine.streaming import Reader
from tlkit.prompts.spans import Span


class Kept(Reader):
    """Keeps z of a run, ``[layer][example, pos, head, d_head]``."""

    def __init__(self, layers: set[int]) -> None:
        self.layers = layers
        self.z: dict[int, Tensor] = {}

    def leave(self, layer: int, z: Tensor) -> None:
        """Keep what a layer's heads put out."""
        if layer in self.layers:
            self.z[layer] = z.float()


class Affine(Reader):
    """λ, and how far z' is from λ z + Σ.

    Args:
        maps: For each original position of each prompt its new one.
        inserted: Where the new tokens stand.
        bases: Runs of the original prompts to compare with.

    Attributes:
        share: ``[layer, example, head]``: λ, averaged over the original queries behind what was
            inserted.
        residuals: For each base ``[layer, example, head]``: ‖z' - λ z - Σ‖ / ‖z'‖, averaged alike.
    """

    def __init__(
        self, n_layers: int, n_heads: int, maps: Sequence[Sequence[int]],
        inserted: Sequence[Span], bases: Sequence[Kept],
    ) -> None:  # fmt: skip
        self.inserted, self.bases = inserted, bases
        self.pairs = [
            [(old, new) for old, new in enumerate(row) if new >= span.stop]
            for row, span in zip(maps, inserted, strict=True)
        ]
        shape = (n_layers, len(maps), n_heads)
        self.share = np.full(shape, np.nan, np.float32)
        self.residuals = [np.full(shape, np.nan, np.float32) for _ in bases]

    def enter(self, layer: int, v: Tensor) -> None:
        """A layer begins."""
        self.v = v
        self.mass: list[list[Tensor]] = [[] for _ in self.inserted]
        self.added: list[list[Tensor]] = [[] for _ in self.inserted]

    def block(self, layer: int, first: int, low: int, weights: Tensor) -> None:
        """Take the inserted tokens' part of some queries' rows."""
        if layer not in self.bases[0].layers:
            return
        groups = weights.shape[1] // self.v.shape[1]
        for example, span in enumerate(self.inserted):
            start, stop = max(span.start, low), min(span.stop, low + weights.shape[3])
            rows = weights[example, :, :, max(0, start - low) : max(0, stop - low)]
            self.mass[example].append(rows.sum(-1))
            values = self.v[example, :, start : max(start, stop)].float()
            values = values.repeat_interleave(groups, dim=0)
            self.added[example].append(torch.matmul(rows, values))

    def leave(self, layer: int, z: Tensor) -> None:
        """Compare z with what the claim says."""
        if layer not in self.bases[0].layers:
            return
        for example, pairs in enumerate(self.pairs):
            if not pairs:
                continue
            old, new = (list(side) for side in zip(*pairs, strict=True))
            share = 1.0 - torch.cat(self.mass[example], 1)[:, new]
            added = torch.cat(self.added[example], 1)[:, new]
            own = z[example, new].float().transpose(0, 1)
            self.share[layer, example] = share.mean(1).cpu()
            for base, residual in zip(self.bases, self.residuals, strict=True):
                claimed = share[..., None] * base.z[layer][example, old].transpose(0, 1) + added
                gap = (own - claimed).norm(dim=-1) / own.norm(dim=-1).clamp(min=1e-12)
                residual[layer, example] = gap.mean(1).cpu()
