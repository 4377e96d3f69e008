"""Long attention patterns by groups of neighbouring positions."""

from __future__ import annotations

import numpy as np


def reduced(
    weights: np.ndarray, tokens: list[str], most_tokens: int
) -> tuple[np.ndarray, list[str], str]:
    """Patterns of at most `most_tokens` places, their labels, and what was done, if anything.

    Keys are summed and queries averaged inside each group, which keeps the sum of a row.

    Args:
        weights: head, query, key.
        tokens: one label a position.
        most_tokens: how many places may be left.
    """
    length = len(tokens)
    if length <= most_tokens:
        return weights, tokens, ""
    size = -(-length // most_tokens)
    starts = np.arange(0, length, size)
    ends = np.minimum(starts + size, length)
    summed = np.add.reduceat(weights, starts, axis=2)
    mean = np.add.reduceat(summed, starts, axis=1) / (ends - starts)[None, :, None]
    labels = [
        f"{start}–{end - 1}: {tokens[start]}"  # noqa: RUF001
        for start, end in zip(starts, ends, strict=True)
    ]
    note = (
        f"{length} tokens are shown as {len(labels)} groups of {size}: a square is the weight "
        f"that a group's tokens give, on average, to all tokens of another group."
    )
    return mean, labels, note
