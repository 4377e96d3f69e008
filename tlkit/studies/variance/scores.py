"""Three kinds of variance of attention, of one document, while its weights stream by.

None of them is known to be the one behind published curves of a "variance score on LongBench";
the sources below define them, and docs/studies/variance.md says which resembles those curves.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tlkit.engine.tallies import Several, Tallies, Window
from tlkit.models.bridge import Parts

KINDS = ("temporal", "column", "rank")
ROWS = ("entropy", "entropy_rest", "distance", "sink")
DEPTH = 9
"""Layers whose ranks are compared: a layer and the eight before it."""


class Scores:
    """The variances of one document, once ``reader`` has been shown its attention.

    Attributes:
        reader: What is to be shown it, up to `finish`.
        heads: Kind to ``[layer, head]``.
        layers: Kind to ``[layer]``: of all heads of a layer together.
        rows: Means over queries, ``[layer, head]`` (see `Tallies`): those that were asked for.
    """

    def __init__(
        self, parts: Parts, ids: list[int], window: int, pool: int, top: int,
        rows: Sequence[str] = ROWS,
    ) -> None:  # fmt: skip
        shape = (parts.n_layers, parts.n_heads)
        self.heads: dict[str, np.ndarray] = {kind: np.full(shape, np.nan) for kind in KINDS}
        self.layers: dict[str, np.ndarray] = {kind: np.full(shape[0], np.nan) for kind in KINDS}
        self.window, self.pool, self.top = window, pool, top
        self._ranks: deque[tuple[Tensor, Tensor]] = deque(maxlen=DEPTH)
        self._tallies = Tallies([len(ids)], parts.n_layers, (*rows, "totals"))
        self.reader = Several(Window(len(ids), window, self._layer), self._tallies)
        self._names = rows

    def finish(self) -> None:
        """Work out what the reader has seen, and forget it."""
        tallies = self._tallies
        self.rows = {name: tallies.found(name)[:, 0] for name in self._names}
        self._columns(tallies.found("totals")[:, 0])
        del self._tallies, self.reader

    def _layer(self, layer: int, rows: Tensor) -> None:
        """Take the last queries' weights ``[head, query, key]``."""
        past = rows[..., : rows.shape[2] - rows.shape[1]]
        if past.shape[1] > 1 and past.shape[2]:
            # Temporal: CAKE's V (Qin et al. 2025, arXiv:2503.12491), sum over keys, unbiased.
            self.heads["temporal"][layer] = past.var(1).sum(-1).cpu()
            self.layers["temporal"][layer] = self.heads["temporal"][layer].sum()
        if past.shape[2] > 1:
            self._rank(layer, past.mean(1))

    def _rank(self, layer: int, mean: Tensor) -> None:
        """Rank: how far tokens move in the order of attention from layer to layer.

        As adaptive layer selection has it (arXiv:2601.07667): of the tokens that were among the
        top in any of the last layers, the variance of their rank over these layers, averaged.
        Ranks count as shares of the keys, 0 the first and 1 the last. The last row is of all
        heads together.
        """
        pooled = torch.cat([mean, mean.mean(0, keepdim=True)])
        padding = self.pool // 2
        pooled = torch.nn.functional.avg_pool1d(
            pooled, self.pool, 1, padding, count_include_pad=False
        )[:, : mean.shape[1]]
        order = pooled.argsort(dim=-1, descending=True, stable=True)
        ranks = torch.empty_like(order)
        places = torch.arange(order.shape[1], device=order.device)
        ranks.scatter_(1, order, places.expand_as(order))
        among = torch.zeros_like(order, dtype=torch.bool)
        among.scatter_(1, order[:, : self.top], value=True)
        self._ranks.append((ranks.float() / (ranks.shape[1] - 1), among))
        if len(self._ranks) < 2:
            return
        spread = torch.stack([ranks for ranks, _ in self._ranks]).var(0)
        union = torch.stack([among for _, among in self._ranks]).any(0)
        found = ((spread * union).sum(-1) / union.sum(-1)).cpu()
        self.heads["rank"][layer], self.layers["rank"][layer] = found[:-1], found[-1]

    def _columns(self, totals: np.ndarray) -> None:
        """Column: how unevenly keys are attended to over the whole document.

        As D2O has it (Wan et al. 2024, arXiv:2406.13035): the variance over keys of what all
        queries give them; of a layer, the mean over heads after scaling them to 0 … 1.
        """
        variance = totals.var(-1, ddof=1) if totals.shape[-1] > 1 else np.full(totals.shape[:2], 0)
        self.heads["column"] = variance
        low, high = variance.min(1, keepdims=True), variance.max(1, keepdims=True)
        scaled = np.where(high > low, (variance - low) / np.where(high > low, high - low, 1), 0.0)
        self.layers["column"] = scaled.mean(1)
