"""A variance study's curves, and the paired difference of two models."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from tlkit.errors import SpecError
from tlkit.results.schema import build
from tlkit.results.statistics import benjamini_hochberg, mean_interval, paired_permutation

KIND_UNITS = {"temporal": "attention²", "column": "fraction", "rank": "share of the keys²"}


def by_layer(ds: Any, kind: str = "temporal") -> Any:
    """One curve per model, ready to be drawn.

    Args:
        ds: What `run` gave; or a mapping of families to what `run` gave for each, such as
            ``{"Llama 2": a, "Mistral": b}`` with models called alike ("original", "fine-tuned"),
            for a panel each.
        kind: ``"temporal"``, ``"column"`` or ``"rank"``.

    Returns:
        A Dataset: ``layer_variance`` (model, layer, document), with families (group, …).

    Raises:
        SpecError: There is no such kind, or no family.
    """
    if isinstance(ds, Mapping) and not isinstance(ds, xr.Dataset):
        return _families(ds, kind)
    one = _one(ds, kind)[["layer_variance"]]
    one["layer_variance"].attrs["units"] = KIND_UNITS[kind]
    return one.assign_attrs(study="variance by layer", kind=kind)


def _families(several: Mapping[str, Any], kind: str) -> Any:
    if not several:
        raise SpecError("There is no family to draw: give names and what run gave for each.")
    each = [by_layer(ds, kind) for ds in several.values()]
    joined = xr.concat(each, "group", join="outer", combine_attrs="drop_conflicts")
    # Joining sorts labels; models are to stay in the order in which they were given.
    order = list(dict.fromkeys(name for one in each for name in one["model"].values.tolist()))
    return joined.assign_coords(group=list(several)).sel(model=order)


def compare(
    ds: Any, first: str, second: str, kind: str = "temporal", *, seed: int = 0,
    permutations: int = 10_000,
) -> Any:  # fmt: skip
    """The difference of two models on the same documents, second minus first.

    Args:
        ds: What `run` gave.
        first: A model's name.
        second: Another's.
        kind: Which variance.
        seed: Draws the sign flips.
        permutations: How many.

    Returns:
        A Dataset (layer): ``difference`` with ``low`` and ``high`` (95 %, Student's t over
        documents), ``p_value`` (paired sign-flip test) and ``p_adjusted`` (Benjamini-Hochberg over
        layers).

    Raises:
        SpecError: There is no such kind or model, or fewer than two documents.
    """
    names = ds["model"].values.tolist()
    for name in (first, second):
        if name not in names:
            raise SpecError(f"There is no model {name!r}; there are {', '.join(names)}.")
    if ds.sizes["document"] < 2:
        raise SpecError("Two models are compared over at least two documents; there is one.")
    values = _one(ds, kind)["layer_variance"]
    one, two = (values.sel(model=name).values.astype(float) for name in (first, second))
    interval = mean_interval(two - one)
    test = paired_permutation(two, one, seed=seed, permutations=permutations)
    units = KIND_UNITS[kind]
    return build(
        {
            "difference": (("layer",), interval.mean, units),
            "low": (("layer",), interval.low, units),
            "high": (("layer",), interval.high, units),
            "p_value": (("layer",), test.p_value),
            "p_adjusted": (("layer",), benjamini_hochberg(test.p_value)),
        },
        {"layer": ds["layer"].values.tolist()},
        {**ds.attrs, "study": "variance difference", "kind": kind, "first": first,
         "second": second, "documents_compared": int(np.max(test.n))},
    )  # fmt: skip


def _one(ds: Any, kind: str) -> Any:
    kinds = ds["kind"].values.tolist()
    if kind not in kinds:
        raise SpecError(f"There is no kind {kind!r} of variance; there are {', '.join(kinds)}.")
    return ds.sel(kind=kind)
