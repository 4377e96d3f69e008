"""What two kinds of prompt look like inside: norms of hidden states, attention, points of a plane.

Prompts of unequal length are aligned at their ends: position -1 is the last token.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tlkit.engine.reference import capture
from tlkit.engine.route import route_of
from tlkit.engine.sequences import Sequences
from tlkit.engine.states import states
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts
from tlkit.results.provenance import provenance
from tlkit.results.schema import build
from tlkit.studies.layer_probes.activations import BATCH
from tlkit.studies.layer_probes.rows import Labelled, labelled

LEAST_SHARE = 0.5
"""Positions that a smaller share of either class's prompts has are left out."""
FLOOR = -10.0
"""Log attention below this counts as this (the paper's colour bar ends there)."""


def norms(
    model: Any, rows: Iterable[Any], *, positive: str, site: str = "resid_post",
    last_tokens: int = 64, chat: bool = False,
) -> Any:  # fmt: skip
    """Mean norm of the hidden states, layer by position, of both classes and their difference.

    Args:
        model: A loaded model.
        rows: Mappings with ``prompt`` and ``label``.
        positive: The label of the positive class.
        site: What is read.
        last_tokens: Most positions, counted from the end.
        chat: Put the chat template around the prompts.

    Returns:
        An xarray Dataset: ``norm`` (group, layer, pos), in the activation's unit, averaged over
        prompts; ``difference`` (layer, pos), positive class less the other.

    Raises:
        SpecError: Rows cannot be used, or the model has no such site.
    """
    given = _given(rows, positive, last_tokens)
    prompts, parts = Prompts.from_texts(model, given.texts, chat=chat), Parts(model)
    if reason := parts.unsupported(site):
        raise SpecError(f"{parts.name} has no site {site!r}: {reason}.")
    places = [(site, layer) for layer in range(parts.n_layers)]
    sums, counts = np.zeros((2, 2, parts.n_layers, last_tokens))
    for first in range(0, len(prompts), BATCH):
        some = prompts[first : first + BATCH]
        spans = [tuple(range(max(0, len(ids) - last_tokens), len(ids))) for ids in some.clean]
        found = states(
            parts, Sequences(some, "clean"), spans, places, {}, packed=route_of(parts).packed
        )["base"]
        for (_, layer), several in found.items():
            for i, row in enumerate(several):
                at = int(given.truth[first + i])
                sums[at, layer, last_tokens - len(row) :] += row.float().norm(dim=-1).cpu().numpy()
                counts[at, layer, last_tokens - len(row) :] += 1
    kept = _kept(counts[:, 0], given)
    mean = sums[:, :, kept] / counts[:, :, kept]
    variables = {
        "norm": (("group", "layer", "pos"), mean[::-1], "activation"),
        "difference": (("layer", "pos"), mean[1] - mean[0], "activation"),
    }
    labels = {"group": _groups(given), "pos": (np.flatnonzero(kept) - last_tokens).tolist()}
    attrs = provenance(model, prompts, study="hidden norms", site=site, positive=positive)
    return build(variables, labels, attrs)


def attention_maps(
    model: Any, rows: Iterable[Any], layer: int, *, positive: str, last_tokens: int = 64,
    chat: bool = False,
) -> Any:  # fmt: skip
    """Mean log attention of one layer, query by key, of both classes and their difference.

    Args:
        model: A loaded model.
        rows: Mappings with ``prompt`` and ``label``.
        layer: Which layer, counted from 0.
        positive: The label of the positive class.
        last_tokens: Most positions, counted from the end.
        chat: Put the chat template around the prompts.

    Returns:
        An xarray Dataset: ``log_attention`` (group, query, key), the natural logarithm of the
        weight after the softmax (not below -10), averaged over heads and prompts, NaN where a key
        comes after its query; ``difference`` (query, key), positive class less the other.

    Raises:
        SpecError: Rows cannot be used, or there is no such layer.
    """
    given = _given(rows, positive, last_tokens)
    parts = Parts(model)
    if not 0 <= layer < parts.n_layers:
        raise SpecError(f"There is no layer {layer}; there are 0 to {parts.n_layers - 1}.")
    prompts, size = Prompts.from_texts(model, given.texts, chat=chat), last_tokens
    sums, counts = np.zeros((2, 2, size, size))
    for ids, truth in zip(prompts.clean, given.truth, strict=True):
        place = ("pattern", layer)
        weights = capture(parts, [list(ids)], {place})[place][0].float().cpu().numpy()
        there = np.tril(np.ones(weights.shape[1:], bool))
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log(weights), FLOOR).mean(0)
        n = min(size, len(ids))
        sums[int(truth), size - n :, size - n :] += np.where(there, logs, 0)[-n:, -n:]
        counts[int(truth), size - n :, size - n :] += there[-n:, -n:]
    kept = _kept(counts.diagonal(axis1=1, axis2=2), given)
    with np.errstate(invalid="ignore"):
        mean = (sums / counts)[:, kept][:, :, kept]
    variables = {
        "log_attention": (("group", "query", "key"), mean[::-1], "log probability"),
        "difference": (("query", "key"), mean[1] - mean[0], "log probability"),
    }
    where = (np.flatnonzero(kept) - size).tolist()
    labels: Mapping[str, Any] = {"group": _groups(given), "query": where, "key": where}
    attrs = provenance(model, prompts, study="attention maps", layer=layer, positive=positive)
    return build(variables, labels, attrs)


def _given(rows: Iterable[Any], positive: str, last_tokens: int) -> Labelled:
    if last_tokens < 1:
        raise SpecError(f"last_tokens is {last_tokens}; it must be at least 1.")
    return labelled(rows, positive)


def _kept(counts: np.ndarray, given: Labelled) -> np.ndarray:
    """Which positions enough prompts of each class have, from counts ``[class, position]``."""
    of = np.array([(~given.truth).sum(), given.truth.sum()])
    return np.all(counts >= LEAST_SHARE * of[:, None], axis=0)


def _groups(given: Labelled) -> list[str]:
    return [given.positive, given.negative]
