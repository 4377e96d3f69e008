"""Attention edges of one pathway, made stronger or weaker."""

from collections.abc import Sequence

from tlkit.engine.edits import Worked
from tlkit.spec.attention import ScaleEdges
from tlkit.studies.pathways.examples import Example, edges_from, edges_within, on_edges

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
        edges = [edges_from(one.question, length)]
    else:
        edges = edges_within(one.prompt, length)
    return on_edges(edges, layers, lambda keys: ScaleEdges(keys=keys, factor=factor))
