"""Attention weights of long sequences, a block of queries at a time.

Nothing of size length x length is ever held, in the forward pass neither: the model's own modules
make q, k and v, and leave to us what softmax(q k) does with v. Each block of weights is handed to a
reader, used, and dropped.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tlkit.engine.packed_values import DEFAULT_BUDGET
from tlkit.engine.record import padded
from tlkit.engine.reference import capture
from tlkit.engine.route import route_of
from tlkit.engine.seam import grouped_scores, mixed_values, seam
from tlkit.engine.together import Pass, together
from tlkit.errors import EngineError
from tlkit.models.bridge import Parts

BLOCK_WEIGHTS = 2**22
"""Most attention weights (examples x heads x queries x keys) at once: 16 MiB in float32."""
MOST_QUERIES = 256


class Reader:
    """Is shown the attention of a run, layer by layer; what it does not need it leaves out."""

    def enter(self, layer: int, v: Tensor) -> None:
        """A layer begins; its values ``[example, kv_head, pos, d_head]``."""

    def block(self, layer: int, first: int, low: int, weights: Tensor) -> None:
        """Some queries' weights, after the softmax.

        Args:
            layer: The layer.
            first: Position of the first query.
            low: Position of the first key: those before it are outside every query's window.
            weights: ``[example, head, query, key]``, float32, of keys up to the last query; 0
                where a query does not see a key.
        """

    def leave(self, layer: int, z: Tensor) -> None:
        """A layer ends; what its heads put out, ``[example, pos, head, d_head]``."""


class _Enough(Exception):
    """Every layer that was asked for has come by."""


class _Stream:
    """Computes attention block by block, and shows every block to a reader."""

    def __init__(self, parts: Parts, reader: Reader, last: int, most: int) -> None:
        self.parts, self.reader, self.last, self.most = parts, reader, last, most
        self.calls: list[int] = []

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float,
        softcap: float | None, window: int | None = None,
    ) -> Tensor:  # fmt: skip
        """Causal attention, within a sliding window where there is one."""
        if mask is not None:
            raise EngineError(f"{self.parts.name} brings an attention mask of its own.")
        self.calls.append(layer)
        self.reader.enter(layer, v)
        heads, length = q.shape[0] * q.shape[1], q.shape[2]
        z = torch.empty_like(q.transpose(1, 2), memory_format=torch.contiguous_format)
        z = z.to(v.dtype)
        first = 0
        while first < length:
            low = 0 if window is None else max(0, first - window + 1)
            size = min(self.most, length - first)
            size = max(1, min(size, BLOCK_WEIGHTS // (heads * (first + size - low))))
            last = first + size
            scores = grouped_scores(q[:, :, first:last], k[:, :, low:last], scale, softcap)
            weights = _hidden(scores, first, low, window).softmax(-1, dtype=torch.float32)
            self.reader.block(layer, first, low, weights)
            z[:, first:last] = mixed_values(weights.to(v.dtype), v[:, :, low:last])
            first = last
        self.reader.leave(layer, z)
        if layer == self.last:
            raise _Enough
        return z


def _hidden(scores: Tensor, first: int, low: int, window: int | None) -> Tensor:
    """Scores with minus infinity where a query may not look, in place."""
    queries, keys = scores.shape[-2:]
    if window is None:  # every query sees all keys before this block's own
        own = scores[..., keys - queries :]
        own.masked_fill_(torch.ones_like(own[0, 0], dtype=torch.bool).triu_(1), -torch.inf)
        return scores
    apart = torch.arange(first, first + queries, device=scores.device)[:, None]
    apart = apart - torch.arange(low, low + keys, device=scores.device)
    unseen = (apart < 0) | (apart >= window)
    return scores.masked_fill_(unseen, -torch.inf)


def stream(
    parts: Parts, ids: Sequence[Sequence[int]], reader: Reader, *, last: int | None = None,
    positions: Sequence[Sequence[int]] | None = None, most: int = MOST_QUERIES,
) -> None:  # fmt: skip
    """Run sequences, and show their attention weights to a reader.

    A model that lets nobody into its attention is run by the slow engine, whose patterns are
    whole; its reader is shown the same blocks.

    Args:
        parts: The model.
        ids: Token ids; padded on the right, which causal attention never sees.
        reader: Is shown every block, layer by layer.
        last: The last layer that is needed; the run ends there.
        positions: Position ids, where they are not 0, 1, 2, … (of models that take them).
        most: Most queries in a block.

    Raises:
        EngineError: Attention did not come by once a layer.
    """
    end = parts.n_layers - 1 if last is None else last
    if not route_of(parts).packed and positions is None:
        dense(parts, ids, reader, last=end, most=most)
        return
    handler = _Stream(parts, reader, end, most)
    tokens, _ = padded([list(row) for row in ids], parts.device)
    more: dict[str, Any] = {}
    if positions is not None:
        more["position_ids"] = padded([list(row) for row in positions], parts.device)[0]
    with torch.no_grad(), seam(parts, handler, masks=False) as hf, contextlib.suppress(_Enough):
        hf.base_model(tokens, use_cache=False, **more)
    if handler.calls != list(range(end + 1)):
        raise EngineError(
            f"{parts.name}: attention came by {len(handler.calls)} times for {end + 1} layers."
        )


def stream_each(
    parts: Parts, documents: Sequence[tuple[Sequence[int], Reader]],
    done: Callable[[int], None],
) -> None:  # fmt: skip
    """Show each document's attention to a reader of its own.

    Where blocks come from disk, documents go up in step, as many as half a budget holds, so that
    they share one pass over the weights.

    Args:
        parts: The model.
        documents: Token ids and the reader that is shown them.
        done: Called with a document's number when its reader has seen all.
    """
    outputs = route_of(parts).outputs
    if outputs is None:
        for number, (ids, reader) in enumerate(documents):
            stream(parts, [ids], reader)
            done(number)
        return
    end = parts.n_layers
    for some in _shares(parts, [len(ids) for ids, _ in documents]):
        handlers = [_Stream(parts, documents[i][1], end, MOST_QUERIES) for i in some]
        passes = [
            Pass(parts, [documents[i][0]], handler, outputs, {})
            for i, handler in zip(some, handlers, strict=True)
        ]
        together(parts, passes, masks=False)
        if any(handler.calls != list(range(end)) for handler in handlers):
            raise EngineError(f"{parts.name}: attention did not come by once a layer.")
        for number in some:
            done(number)


def _shares(parts: Parts, lengths: Sequence[int]) -> list[range]:
    """Neighbouring documents whose streams, and what readers sum up of them, fit half a budget."""
    per_token = 2 * parts.d_model * parts.dtype.itemsize + 4 * parts.n_layers * parts.n_heads
    groups, first, tokens = [], 0, 0
    for number, length in enumerate(lengths):
        if number > first and (tokens + length) * per_token > DEFAULT_BUDGET // 2:
            groups.append(range(first, number))
            first, tokens = number, 0
        tokens += length
    return [*groups, range(first, len(lengths))] if lengths else []


def dense(
    parts: Parts, ids: Sequence[Sequence[int]], reader: Reader, *, last: int | None = None,
    most: int = MOST_QUERIES,
) -> None:  # fmt: skip
    """The slow twin of `stream`: whole patterns, as TransformerLens's hooks give them."""
    end = parts.n_layers - 1 if last is None else last
    names = ("v", "pattern", "z")
    rows = [list(row) for row in ids]
    sites = capture(parts, rows, {(name, k) for name in names for k in range(end + 1)})
    for layer in range(end + 1):
        v, pattern, z = (_stacked(sites[name, layer]) for name in names)
        reader.enter(layer, v.transpose(1, 2))
        for first in range(0, pattern.shape[2], most):
            stop = min(first + most, pattern.shape[2])
            reader.block(layer, first, 0, pattern[:, :, first:stop, :stop].float())
        reader.leave(layer, z)


def _stacked(several: Sequence[Tensor]) -> Tensor:
    """Tensors of several examples as one, 0 behind the end of a shorter one."""
    shape = [max(sizes) for sizes in zip(*(one.shape for one in several), strict=True)]
    out = several[0].new_zeros(len(several), *shape)
    for to, one in zip(out, several, strict=True):
        to[tuple(slice(size) for size in one.shape)] = one
    return out
