"""Attention of prompts under one condition, on the original prompts' positions."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from tlkit.engine.edits import Compiler
from tlkit.engine.reference import Reference, capture
from tlkit.engine.route import route_of
from tlkit.engine.sequences import Sequences
from tlkit.engine.sources import Place, Sources
from tlkit.engine.streaming import Reader, stream
from tlkit.engine.tallies import Several, Tallies
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts
from tlkit.studies.conditions.affine import Affine, Kept
from tlkit.studies.conditions.transform import Changed

ROWS = ("entropy", "entropy_rest", "distance", "distance_rest", "sink")
GROUP_TOKENS = 1024
"""Tokens of prompts that run together."""


@dataclass
class Measured:
    """One condition's numbers.

    Attributes:
        weight: ``[layer, head, pos, example]`` of the layers read: each original key's mean
            weight.
        rows: ``[layer, head, example]`` each.
    """

    weight: np.ndarray
    rows: dict[str, np.ndarray] = field(default_factory=dict)


def measure(
    model: Any, prompts: Prompts, change: Changed, layers: Sequence[int], queries: str,
    base: Changed | None, weight: np.ndarray,
) -> Measured:  # fmt: skip
    """Run prompts under a condition.

    Args:
        model: The model.
        prompts: The original prompts.
        change: What the condition made of them.
        layers: Which layers are read.
        queries: ``"all"`` later tokens count, or ``"original"`` ones only.
        base: The original prompts, unchanged: what the affine claim starts from; None leaves it
            out.
        weight: Full of NaN; weights are put here, for they are the largest part of a result.
    """
    parts, found = Parts(model), Measured(weight)
    alone = [[i] for i in range(len(prompts))]
    for some in alone if change.condition is not None else _groups(change.ids):
        ids = [change.ids[i] for i in some]
        own = [[p for p in change.maps[i] if p >= 0] for i in some]
        tallies = Tallies(
            [len(row) for row in ids], parts.n_layers, ("columns", *ROWS),
            queries=own if queries == "original" else None, layers=layers,
        )  # fmt: skip
        readers: list[Reader] = [tallies]
        affine = None
        if base is not None and change.inserted is not None and change.condition is None:
            affine = _affine(parts, change, base, some, layers)
            readers.append(affine)
        if change.condition is None:
            stream(parts, ids, Several(*readers), last=max(layers))
        else:
            _intervened(parts, prompts, change, some[0], tallies, max(layers))
        _keep(found, tallies, affine, change, some, list(layers))
    return found


def _keep(
    found: Measured, tallies: Tallies, affine: Affine | None, change: Changed,
    some: Sequence[int], read: list[int],
) -> None:  # fmt: skip
    """Put a group's numbers on the original positions."""
    columns = tallies.found("columns")[read]
    for j, example in enumerate(some):
        for old, new in enumerate(change.maps[example]):
            if new >= 0:
                found.weight[:, :, old, example] = columns[:, j, :, new]
    values = {name: tallies.found(name) for name in ROWS}
    if affine is not None:
        values["lambda_q"] = affine.share
        names = ("affine_residual", "affine_residual_in_place")
        values |= dict(zip(names, affine.residuals, strict=False))
    for name, array in values.items():
        shape = (len(read), array.shape[2], found.weight.shape[3])
        kept = found.rows.setdefault(name, np.full(shape, np.nan, np.float32))
        kept[:, :, list(some)] = array[read].transpose(0, 2, 1)


def _groups(ids: Sequence[Sequence[int]]) -> list[list[int]]:
    """Prompts of like length run together, so that little is padded."""
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    groups: list[list[int]] = []
    for i in order:
        if groups and (len(groups[-1]) + 1) * len(ids[i]) <= GROUP_TOKENS:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def _affine(
    parts: Parts, change: Changed, base: Changed, some: Sequence[int], layers: Sequence[int]
) -> Affine:
    """A reader that holds z' against λ z + Σ.

    z is that of the plain run and, as a second base, of one whose tokens already stand where the
    insertion will move them, so that rotary embeddings see no shift.
    """
    ids = [base.ids[i] for i in some]
    maps = [change.maps[i] for i in some]
    bases = [Kept(set(layers))]
    stream(parts, ids, bases[0], last=max(layers))
    if route_of(parts).packed:
        bases.append(Kept(set(layers)))
        stream(parts, ids, bases[1], last=max(layers), positions=maps)
    spans = [change.inserted[i] for i in some] if change.inserted is not None else []
    return Affine(parts.n_layers, parts.n_heads, maps, spans, bases)


def _intervened(
    parts: Parts, prompts: Prompts, change: Changed, example: int, tallies: Tallies, last: int
) -> None:
    """One prompt under an intervention, by the slow engine, whose patterns are whole."""
    assert change.condition is not None
    sequences = Sequences(prompts, "clean")
    compiler = Compiler(sequences, parts.n_layers, parts.n_heads, parts.n_kv_heads)
    worked = compiler.work_out(change.condition, example)
    if worked.status == "missing":
        raise SpecError(f"{change.condition.name} does not apply to prompt {example}.")
    ids = sequences.runs["clean"][example]
    sources = Sources(partial(capture, parts), sequences, worked.edits, range(example, example + 1))
    places: list[Place] = [("pattern", layer) for layer in range(last + 1)]
    with torch.no_grad():
        sites = Reference(parts, sources).sites(ids, worked.edits, example, places)
    for layer in range(last + 1):
        tallies.block(layer, 0, 0, sites["pattern", layer][None].float())
