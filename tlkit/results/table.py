"""The cells with the largest values, as rows to read or print."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import xarray as xr

from tlkit.errors import SpecError
from tlkit.results.units import units_of

OVER = ("example", "fold", "document")


def top(
    ds: xr.Dataset,
    n: int = 10,
    variable: str = "effect",
    metric: str | None = None,
    *,
    by: Literal["size", "value"] = "size",
    shared: float = 0.5,
) -> list[dict[str, Any]]:
    """The n cells that lie furthest from 0 (or highest), averaged over examples.

    Args:
        ds: a dataset with `variable`.
        n: how many cells, at most; cells that are NaN are left out.
        variable: what to rank.
        metric: which metric; the first one when not said.
        by: "size" ranks by distance from 0, "value" from the highest down.
        shared: leave out cells that fewer than this share of the examples have; prompts of
            unequal length make such cells, and one prompt's value is no mean.

    Returns:
        One dict a cell: its coordinates, `value` (the mean), `units`, `metric` where
        there is one, and `n`, the number of values averaged.
    """
    data = choose(ds, variable, metric)
    over = [dim for dim in OVER if dim in data.dims]
    data = data.astype(float)
    mean, count = data.mean(over), data.notnull().sum(over)
    flat = mean.values.ravel()
    key = np.abs(flat) if by == "size" else flat
    few = count.values.ravel() < shared * math.prod(data.sizes[dim] for dim in over)
    order = [i for i in np.argsort(-key, kind="stable") if not (np.isnan(flat[i]) or few[i])][:n]
    same = {"units": units_of(data)}
    if "metric" in data.coords and data.coords["metric"].ndim == 0:
        same["metric"] = data.coords["metric"].item()
    rows = []
    for place in order:
        index = np.unravel_index(place, mean.shape)
        cell = {str(d): mean[d].values[i].item() for d, i in zip(mean.dims, index, strict=True)}
        rows.append(
            {**cell, "value": float(flat[place]), "n": int(count.values.ravel()[place]), **same}
        )
    return rows


def choose(ds: xr.Dataset, variable: str, metric: str | None = None) -> xr.DataArray:
    """One variable of a dataset, for one metric (the first when not said)."""
    if variable not in ds.data_vars:
        raise SpecError(
            f"The dataset has no variable '{variable}': it has {', '.join(map(str, ds.data_vars))}."
        )
    data = ds[variable]
    if "metric" not in data.dims:
        return data
    names = [str(name) for name in data["metric"].values]
    if metric is None:
        return data.isel(metric=0)
    if metric not in names:
        raise SpecError(f"The dataset has no metric '{metric}': it has {', '.join(names)}.")
    return data.sel(metric=metric)
