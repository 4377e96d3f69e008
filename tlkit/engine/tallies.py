"""What attention weights come to, summed over queries while they stream by."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from tlkit.engine.streaming import Reader

ROWS = ("entropy", "entropy_rest", "distance", "distance_rest", "sink")
KEYS = ("columns", "totals")


class Tallies(Reader):
    """Means over queries, per layer, example and head.

    ``columns``
        A key's mean weight over the chosen queries strictly behind it (Shi et al. 2025,
        arXiv:2510.01032, section 2); NaN where there is none.
    ``totals``
        A key's weight summed over all chosen queries, its own included.
    ``entropy``
        Of a row, over the logarithm of how many tokens there are up to the query: 1 for a uniform
        row, 0 for one on a single key.
    ``distance``
        Mean distance of a row to its keys, over the largest there is: 0 for a row on the query
        itself, 1 for one on the first token.
    ``sink``
        A row's weight on the first token.
    ``entropy_rest``, ``distance_rest``
        The same of a row without its first token, renormalised: a sink hides what else a row does.

    Rows with one key alone say nothing, and are left out of these.

    Args:
        lengths: Tokens of each example.
        n_layers: Layers of the model.
        names: Which of these are wanted.
        queries: Positions of each example whose rows count; all if None.
        layers: Which layers are read; all if None.
    """

    def __init__(
        self, lengths: Sequence[int], n_layers: int, names: Iterable[str], *,
        queries: Sequence[Iterable[int]] | None = None, layers: Iterable[int] | None = None,
    ) -> None:  # fmt: skip
        self.names, self.n_layers = tuple(names), n_layers
        self.layers = set(range(n_layers) if layers is None else layers)
        self.chosen = torch.zeros(len(lengths), max(lengths))
        for i, length in enumerate(lengths):
            where = range(length) if queries is None else queries[i]
            self.chosen[i, [p for p in where if p < length]] = 1.0
        self.sums: dict[str, Tensor] = {}

    def block(self, layer: int, first: int, low: int, weights: Tensor) -> None:
        """Add some queries' rows."""
        if layer not in self.layers:
            return
        queries = weights.shape[2]
        chosen = self.chosen[:, first : first + queries].to(weights.device)
        if set(self.names) & set(KEYS):
            totals = torch.matmul(chosen[:, None, None], weights)[:, :, 0]
            self._add("totals", layer, totals, low)
            if "columns" in self.names:
                own = weights.diagonal(offset=first - low, dim1=-2, dim2=-1) * chosen[:, None]
                totals[..., first - low : first - low + queries] -= own
                self._add("columns", layer, totals, low)
        if set(self.names) & set(ROWS):
            self._add_rows(layer, first, low, weights, chosen)

    def _add_rows(self, layer: int, first: int, low: int, weights: Tensor, chosen: Tensor) -> None:
        at = torch.arange(first, first + weights.shape[2], device=weights.device).float()
        one = weights[..., 0] if low == 0 else torch.zeros_like(weights[..., 0])
        rest = (1.0 - one).clamp(min=1e-12)
        counted, more = (chosen * (at > 0))[:, None], (chosen * (at > 1))[:, None]

        def add(name: str, rows: Tensor, counted: Tensor) -> None:
            self._add(name, layer, torch.where(counted > 0, rows, 0.0).sum(-1))

        add("sink", one, counted)
        if {"entropy", "entropy_rest"} & set(self.names):
            entropy = torch.special.entr(weights).sum(-1)
            without = (entropy - torch.special.entr(one)) / rest + rest.log()
            add("entropy", entropy / (at + 1).log(), counted)
            add("entropy_rest", without / at.log(), more)
        if {"distance", "distance_rest"} & set(self.names):
            keys = torch.arange(low, low + weights.shape[3], device=weights.device).float()
            distance = at * weights.sum(-1) - weights @ keys
            add("distance", distance / at, counted)
            add("distance_rest", (distance - one * at) / rest / (at - 1), more)

    def _add(self, name: str, layer: int, value: Tensor, low: int = 0) -> None:
        if name not in self.names:
            return
        if name not in self.sums:
            shape = (*value.shape[:2], *(self.chosen.shape[1:] if value.ndim == 3 else ()))
            self.sums[name] = torch.zeros(self.n_layers, *shape)
        held = self.sums[name][layer]
        if value.ndim == 3:
            held = held[..., low : low + value.shape[2]]
        held += value.float().cpu()

    def found(self, name: str) -> np.ndarray:
        """Means ``[layer, example, head]``, or ``[layer, example, head, key]`` of a key's.

        NaN for layers that were not read, and where no query counts.
        """
        values = self.sums[name].numpy().copy()
        values[[layer for layer in range(self.n_layers) if layer not in self.layers]] = np.nan
        if name == "totals":
            return values
        at = np.arange(self.chosen.shape[1])
        chosen = self.chosen.numpy()
        if name == "columns":
            behind = chosen[:, ::-1].cumsum(1)[:, ::-1] - chosen
            counts = behind[:, None, :]
        else:
            least = 1 if name.endswith("_rest") else 0
            counts = (chosen * (at > least)).sum(1)[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(counts > 0, values / counts, np.nan)


class Window(Reader):
    """The rows of a sequence's last queries, handed on layer by layer.

    Args:
        length: Tokens of the sequence.
        size: How many queries.
        done: Called with (layer, weights ``[head, query, key]``) when a layer ends.
    """

    def __init__(self, length: int, size: int, done: Callable[[int, Tensor], None]) -> None:
        self.length, self.start, self.done = length, max(0, length - size), done
        self.rows: Tensor | None = None

    def block(self, layer: int, first: int, low: int, weights: Tensor) -> None:
        """Keep the rows of the last queries."""
        stop = first + weights.shape[2]
        if stop <= self.start:
            return
        if self.rows is None:
            shape = (weights.shape[1], self.length - self.start, self.length)
            self.rows = weights.new_zeros(shape)
        begin = max(first, self.start)
        to = self.rows[:, begin - self.start : stop - self.start]
        to[..., low : low + weights.shape[3]] = weights[0, :, begin - first :]

    def leave(self, layer: int, z: Tensor) -> None:
        """Hand the rows on."""
        if self.rows is not None:
            self.done(layer, self.rows)
        self.rows = None


class Several(Reader):
    """Shows the same attention to several readers."""

    def __init__(self, *readers: Reader) -> None:
        self.readers = readers

    def enter(self, layer: int, v: Tensor) -> None:
        """A layer begins."""
        for reader in self.readers:
            reader.enter(layer, v)

    def block(self, layer: int, first: int, low: int, weights: Tensor) -> None:
        """Some queries' weights."""
        for reader in self.readers:
            reader.block(layer, first, low, weights)

    def leave(self, layer: int, z: Tensor) -> None:
        """A layer ends."""
        for reader in self.readers:
            reader.leave(layer, z)
