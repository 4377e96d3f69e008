"""`tk.conditions.run`: what a condition of the prompt does to heads' attention."""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tlkit.engine.refusals import check_prompts
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts
from tlkit.results.provenance import provenance
from tlkit.results.schema import build, token_coords
from tlkit.studies.conditions.compare import tests
from tlkit.studies.conditions.measure import Measured, measure
from tlkit.studies.conditions.transform import Changed, changed, named

Progress = Callable[[int, int], None]
UNITS = {
    "entropy": "fraction", "entropy_rest": "fraction", "distance": "fraction",
    "distance_rest": "fraction", "sink": "fraction", "affine_residual_in_place": "fraction",
}  # fmt: skip


def run(
    model: Any,
    prompts: Any,
    conditions: Any,
    *,
    layers: Iterable[int] | None = None,
    queries: str = "all", first_token: bool = True, affine: bool = True,
    seed: int = 0, permutations: int | None = None,
    progress: Progress | None = None,
) -> Any:  # fmt: skip
    """Compare heads' attention under several conditions (Shi et al. 2025, arXiv:2510.01032).

    Args:
        model: A loaded model.
        prompts: `tk.Prompts`; their clean side is read.
        conditions: Labels to conditions: None (the plain prompts, added as ``"None"`` if missing),
            `tk.Insert`, `Replace`, `System`, prompts of one's own, or an intervention.
        layers: Which layers are read; all if None.
        queries: Whose attention counts: ``"all"`` later tokens', or the ``"original"`` tokens'.
        first_token: Whether the first token, often a sink, counts in tests.
        affine: Whether λ, Σ and their residuals are measured: two more runs an insertion.
        seed: Draws the tests' sign flips.
        permutations: How many; if None, enough for the correction over all heads.
        progress: Called with (conditions done, conditions in all).

    Returns:
        An xarray Dataset. ``attention_weight`` (condition, layer, head, pos, example): the mean
        weight that later tokens give a token of the original prompt, inserted ones dropped; NaN
        for the last token. ``entropy``, ``distance`` (of all keys, and ``_rest``: without the
        first token) and ``sink_share`` (condition, layer, head, example). ``lambda_q``,
        ``affine_residual`` and ``affine_residual_in_place``, where text was inserted.
        ``effect_size``, ``p_value``, ``p_adjusted`` (condition, layer, head): the mean weight
        per prompt against the plain prompts, paired (see `changed_heads`).

    Raises:
        SpecError: A condition cannot be carried out, or what is asked for does not exist.
    """
    started = time.perf_counter()
    check_prompts(model, prompts)
    labelled, read = named(conditions), _layers(layers, Parts(model), queries)
    base, changes = _changes(model, prompts, labelled)
    shape = (len(read), Parts(model).n_heads, max(map(len, prompts.clean)), len(prompts))
    weight = np.full((len(changes), *shape), np.nan, np.float32)
    found: dict[str, Measured] = {}
    for to, (label, change) in zip(weight, changes.items(), strict=True):
        plain = changes[base] if affine else None
        found[label] = measure(model, prompts, change, read, queries, plain, to)
        if progress:
            progress(len(found), len(changes))
    attrs = provenance(
        model, prompts, study="conditions", engine="streaming", seed=seed, queries=queries,
        first_token=first_token, baseline=base, conditions=_described(labelled),
        merged_seams=sum(change.merged_seams for change in changes.values()),
        inserted_tokens=_put_in(changes),
        seconds=round(time.perf_counter() - started, 3),
    )  # fmt: skip
    whole = _dataset(found, weight, prompts, read, attrs)
    return tests(whole, base, first_token=first_token, seed=seed, permutations=permutations)


def _changes(
    model: Any, prompts: Prompts, labelled: Mapping[str, Any]
) -> tuple[str, dict[str, Changed]]:
    """The plain prompts' label, and what each condition makes of the prompts."""
    changes = {
        label: changed(model, prompts, label, condition) for label, condition in labelled.items()
    }
    _check_lengths(Parts(model), prompts, changes)
    return next(label for label, one in labelled.items() if one is None), changes


def _put_in(changes: Mapping[str, Changed]) -> str:
    """How many tokens each condition puts into a prompt, on average; as JSON."""
    put = {
        label: [span.stop - span.start for span in change.inserted or ()]
        for label, change in changes.items()
    }
    return json.dumps({label: float(np.mean(some)) if some else 0.0 for label, some in put.items()})


def _described(labelled: Mapping[str, Any]) -> str:
    shown = {
        label: one if one is None or not isinstance(one, Prompts) else "prompts"
        for label, one in labelled.items()
    }
    return "; ".join(f"{label}: {one}" for label, one in shown.items())


def _layers(layers: Iterable[int] | None, parts: Parts, queries: str) -> list[int]:
    if queries not in ("all", "original"):
        raise SpecError(f"queries={queries!r} is not known; use 'all' or 'original'.")
    read = sorted(set(range(parts.n_layers) if layers is None else layers))
    wrong = [layer for layer in read if not 0 <= layer < parts.n_layers]
    if wrong or not read:
        raise SpecError(f"layers {wrong}: this model has layers 0 to {parts.n_layers - 1}.")
    return read


def _check_lengths(parts: Parts, prompts: Prompts, changes: Mapping[str, Changed]) -> None:
    longest = parts.context
    for label, change in changes.items():
        for example, ids in enumerate(change.ids):
            if len(ids) > longest:
                raise SpecError(
                    f"Condition {label!r} makes prompt {example} {len(ids)} tokens long; the model "
                    f"was made for {longest}."
                )
    short = [i for i, ids in enumerate(prompts.clean) if len(ids) < 2]
    if short:
        raise SpecError(f"Prompt {short[0]} has one token: no later one attends to anything.")


def _dataset(
    found: Mapping[str, Measured], weight: np.ndarray, prompts: Prompts, read: list[int],
    attrs: dict[str, Any],
) -> Any:  # fmt: skip
    dims = ("condition", "layer", "head", "example")
    variables: dict[str, tuple] = {
        "attention_weight": (("condition", "layer", "head", "pos", "example"), weight)
    }
    for name in dict.fromkeys(name for one in found.values() for name in one.rows):
        empty = np.full_like(weight[0, :, :, 0], np.nan)
        rows = [one.rows.get(name, empty) for one in found.values()]
        called = "sink_share" if name == "sink" else name
        unit = UNITS.get(name)
        variables[called] = (dims, np.stack(rows), *([unit] if unit else []))
    labels: dict[str, Any] = {"condition": list(found), "layer": read}
    if prompts.clean_tokens:
        labels |= token_coords(prompts.clean_tokens)
    return build(variables, labels, attrs)
