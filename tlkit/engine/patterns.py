"""Attention patterns of one prompt."""

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from tlkit.engine.edits import Compiler
from tlkit.engine.record import record
from tlkit.engine.reference import Reference, capture
from tlkit.engine.refusals import check_prompts
from tlkit.engine.route import route_of
from tlkit.engine.sequences import Sequences
from tlkit.engine.sources import Sources
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.spec.sweeps import Condition


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


def patterns_under(
    model: Any,
    prompts: Any,
    condition: Condition,
    layers: Iterable[int],
    *,
    on: Literal["clean", "corrupted"] = "clean",
    example: int = 0,
) -> dict[int, np.ndarray]:
    """Attention weights under a condition, per layer ``[head, query, key]``, of one example.

    They come from one hooked forward pass.

    Args:
        model: A loaded model.
        prompts: `tk.Prompts`.
        condition: What is changed.
        layers: Which layers.
        on: The run that is changed.
        example: Which prompt.

    Raises:
        SpecError: The condition cannot be carried out on this example.
    """
    check_prompts(model, prompts)
    parts, sequences = Parts(model), Sequences(prompts, on)
    sequences.require(on)
    compiler = Compiler(sequences, parts.n_layers, parts.n_heads, parts.n_kv_heads)
    worked = compiler.work_out(condition, example)
    if worked.status == "missing":
        raise SpecError(f"Prompt {example} has no such position or span for {condition.name!r}.")
    sources = Sources(lambda ids, places: capture(parts, ids, places), sequences, worked.edits)
    ids = sequences.runs[on][example]
    found = Reference(parts, sources).patterns(ids, worked.edits, example, layers)
    return {layer: value.float().cpu().numpy() for layer, value in found.items()}
