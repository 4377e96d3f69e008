"""Attention edges of one pathway, made stronger or weaker."""

from collections.abc import Sequence

from tlkit.engine.edits import EDGE, Edit, Worked
from tlkit.spec.attention import ScaleEdges
from tlkit.studies.pathways.examples import Example

SIDES = ("question", "answer")
"""Edges from the exact question to all later tokens, and edges among the answer's tokens."""


def scaled(one: Example, side: str, factor: float, layers: Sequence[int]) -> Worked:
    """Scale one pathway's attention weights, after the softmax, without renormalising.

    Args:
        one: The example.
        side: One of `SIDES`.
        factor: What weights are multiplied by.
        layers: In which blocks.

    Returns:
        The edits; "free" where there are no such edges, as in an answer of one token.
    """
    length = len(one.ids)
    if side == "question":
        inside = set(one.question)
        queries = tuple(p for p in range(min(inside) + 1, length) if p not in inside)
        pairs = [(queries, one.question)]
    else:
        pairs = [(tuple(range(key + 1, length)), (key,)) for key in range(one.prompt, length - 1)]
    edits = tuple(
        Edit(ScaleEdges(keys=keys, factor=factor), EDGE, layer, queries, keys)
        for layer in layers
        for queries, keys in pairs
        if queries
    )
    return Worked(edits, "run" if edits else "free")
