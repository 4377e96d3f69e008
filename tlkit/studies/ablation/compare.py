"""An ablation study's curves, and the paired difference of two models."""

from typing import Any

import numpy as np

from tlkit.errors import SpecError
from tlkit.results.schema import build
from tlkit.results.statistics import benjamini_hochberg, mean_interval, paired_permutation

AXES = ("layer", "relative")
ROUNDED = 4
"""Decimals of a place on the relative axis, which is a label."""


def by_layer(
    ds: Any, effect: str = "kl", *, axis: str = "layer", raw: bool = False
) -> Any:  # fmt: skip
    """One curve per model and component, ready to be drawn.

    Args:
        ds: What `run` gave.
        effect: ``"kl"``, ``"loss"``, ``"answer_prob"`` or ``"behaviour"``; of single heads
            ``"head_kl"`` and its like.
        axis: ``"layer"``: by number, NaN where a model has no such layer; ``"relative"``: from 0
            (first layer) to 1 (last), between layers by straight lines, on as many places as the
            deepest model has layers.
        raw: The measured values, instead of their change from the unchanged run.

    Returns:
        A Dataset: ``effect`` (model, site, layer, example), or (model, layer, head, example) of
        heads; of behaviours with ``detector``.

    Raises:
        SpecError: There is no such effect or axis.
    """
    if axis not in AXES:
        raise SpecError(f"There is no axis {axis!r}; there are {', '.join(AXES)}.")
    values = _effect(ds, effect, raw=raw)
    labels = {str(dim): ds[dim].values.tolist() for dim in values.dims}
    array, units = values.values.astype(float), str(ds[effect].attrs["units"])
    if axis == "relative":
        array, labels["layer"] = _relative(array, values.dims, ds["depth"].values, labels["layer"])
    attrs = {**ds.attrs, "study": "ablation by layer", "effect": effect, "axis": axis, "raw": raw}
    return build({"effect": (values.dims, array, units)}, labels, attrs)


def compare(
    ds: Any, first: str, second: str, effect: str = "kl", *, axis: str = "layer", seed: int = 0,
    permutations: int = 10_000,
) -> Any:  # fmt: skip
    """The difference of two models' effects on the same prompts, second minus first.

    Args:
        ds: What `run` gave.
        first: A model's name.
        second: Another's.
        effect: As for `by_layer`; losses, probabilities and behaviours are compared as changes from
            each model's own unchanged run.
        axis: As for `by_layer`.
        seed: Draws the sign flips.
        permutations: How many.

    Returns:
        A Dataset (site, layer), or (layer, head) of heads: ``difference`` with ``low`` and ``high``
        (95 %, Student's t over examples), ``p_value`` (paired sign-flip test) and ``p_adjusted``
        (Benjamini-Hochberg over the layers of a site, or over all heads). NaN where a model has no
        such layer.

    Raises:
        SpecError: There is no such effect, axis or model, or fewer than two examples.
    """
    names = ds["model"].values.tolist()
    for name in (first, second):
        if name not in names:
            raise SpecError(f"There is no model {name!r}; there are {', '.join(names)}.")
    if ds.sizes["example"] < 2:
        raise SpecError("Two models are compared over at least two prompts; there is one.")
    drawn = by_layer(ds, effect, axis=axis)
    values, units = drawn["effect"], str(drawn["effect"].attrs["units"])
    one, two = (values.sel(model=name).values for name in (first, second))
    interval = mean_interval(two - one)
    test = paired_permutation(two, one, seed=seed, permutations=permutations)
    dims = tuple(str(dim) for dim in values.dims if dim not in ("model", "example"))
    return build(
        {
            "difference": (dims, interval.mean, units),
            "low": (dims, interval.low, units),
            "high": (dims, interval.high, units),
            "p_value": (dims, test.p_value),
            "p_adjusted": (dims, _adjusted(test.p_value, dims)),
        },
        {dim: drawn[dim].values.tolist() for dim in dims},
        {**drawn.attrs, "study": "ablation difference", "first": first, "second": second,
         "examples_compared": int(np.max(test.n))},
    )  # fmt: skip


def _adjusted(p_values: np.ndarray, dims: tuple[str, ...]) -> np.ndarray:
    """Corrected over layers, each site (and behaviour) by itself; over all heads together."""
    if "head" in dims:
        return benjamini_hochberg(p_values)
    layer = dims.index("layer")
    return np.apply_along_axis(benjamini_hochberg, layer, p_values)


def _effect(ds: Any, effect: str, *, raw: bool) -> Any:
    """An effect's values, less those of the unchanged run."""
    there = [str(name) for name in ds.data_vars if "layer" in ds[name].dims]
    if effect not in there:
        raise SpecError(f"There is no effect {effect!r} in this study; it has {', '.join(there)}.")
    base = f"{effect.removeprefix('head_')}_base"
    if raw or base not in ds:
        return ds[effect]
    return (ds[effect] - ds[base]).transpose(*ds[effect].dims)


def _relative(
    array: np.ndarray, dims: tuple[Any, ...], depths: np.ndarray, layers: list[Any]
) -> tuple[np.ndarray, list[float]]:
    """Every model's layers from 0 to 1, on the places of the deepest one.

    A model has NaN behind its own last layer (or window), and those are left out.
    """
    at = dims.index("layer")
    moved = np.moveaxis(array, at, -1)
    places = np.linspace(0, 1, len(layers))
    out = np.full(moved.shape, np.nan)
    for i, depth in enumerate(depths):
        own = len(layers) - int(max(depths) - depth)
        known = np.linspace(0, 1, own)
        out[i] = np.apply_along_axis(
            lambda row, own=own, known=known: np.interp(places, known, row[:own]), -1, moved[i]
        )
    return np.moveaxis(out, -1, at), [round(float(place), ROUNDED) for place in places]
