"""Attention patterns of one prompt."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from tlkit.engine.record import record
from tlkit.engine.reference import capture
from tlkit.engine.route import route_of
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts


def patterns(model: Any, ids: Iterable[int], layers: Iterable[int]) -> dict[int, np.ndarray]:
    """Attention weights after the softmax, per layer ``[head, query, key]``, of one sequence.

    Args:
        model: A loaded model.
        ids: Token ids.
        layers: Which layers.

    Raises:
        SpecError: The model has no such layer, or there are no ids.
    """
    parts = Parts(model)
    layers, rows = list(layers), [list(ids)]
    wrong = [layer for layer in layers if not 0 <= layer < parts.n_layers]
    if wrong:
        raise SpecError(f"There is no layer {wrong[0]}; this model has 0 to {parts.n_layers - 1}.")
    if not rows[0]:
        raise SpecError("Patterns need at least one token id.")
    places = {("pattern", layer) for layer in layers}
    if route_of(parts).packed:
        sites = record(parts, rows, places, full=False).sites
    else:
        sites = capture(parts, rows, places)
    return {layer: sites[name, layer][0].float().cpu().numpy() for name, layer in places}
