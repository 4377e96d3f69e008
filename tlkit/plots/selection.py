"""From a dataset to the one array that a figure draws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import xarray as xr

from tlkit.errors import SpecError
from tlkit.results.table import choose

REPEATS = ("example", "document", "fold", "seed")
"""Dimensions of repeated measurement: figures average over them."""


def pick(
    data: xr.DataArray | xr.Dataset,
    variable: str | None = None,
    metric: str | None = None,
    select: Mapping[str, Any] | None = None,
) -> xr.DataArray:
    """One variable, for one metric, at the selected labels; true/false as 1/0."""
    if isinstance(data, xr.Dataset):
        data = choose(data, variable or default_variable(data), metric)
    elif "metric" in data.dims:
        name = str(data.name or "value")
        data = choose(data.to_dataset(name=name), name, metric)
    for dim, label in (select or {}).items():
        data = at(data, dim, label)
    return data.astype(float)


def default_variable(ds: xr.Dataset) -> str:
    """`effect` where there is one, else the variable with the most dimensions."""
    if "effect" in ds.data_vars:
        return "effect"
    if not ds.data_vars:
        raise SpecError("The dataset has no variable: there is nothing to draw.")
    return str(max(ds.data_vars, key=lambda name: ds[name].ndim))


def at(data: xr.DataArray, dim: str, label: Any) -> xr.DataArray:
    """The part of an array at a label, or at several labels given as a list."""
    if dim not in data.dims:
        raise SpecError(f"'{data.name}' has no dimension '{dim}': it has {_have(data)}.")
    try:
        return data.sel({dim: label})
    except (KeyError, TypeError, ValueError) as error:
        labels = [str(found) for found in data[dim].values.tolist()]
        shown = ", ".join(labels if len(labels) <= 12 else [*labels[:6], "…", *labels[-3:]])
        raise SpecError(f"'{dim}' has no {label!r}: it has {shown}.") from error


def example_of(data: xr.DataArray, example: int | None) -> xr.DataArray:
    """One example without the positions past its end, or all of them."""
    if example is None:
        return data
    data = at(data, "example", example)
    token = data.coords.get("token")
    if token is None or token.dims != ("pos",):
        return data
    return data.isel(pos=(token != "").values)  # nosec B105: a word of a prompt, no secret


def narrowed(data: xr.DataArray, keep: Iterable[str]) -> xr.DataArray:
    """Without dimensions of one place; refused if others are left than `keep`."""
    keep = set(keep)
    missing = [dim for dim in keep if dim not in data.dims]
    if missing:
        raise SpecError(f"'{data.name}' has no dimension '{missing[0]}': it has {_have(data)}.")
    data = data.squeeze([d for d in data.dims if data.sizes[d] == 1 and d not in keep])
    left = [str(dim) for dim in data.dims if dim not in keep]
    if left:
        place = data[left[0]].values[0].item()
        raise SpecError(
            f"'{data.name}' varies along {_have(data)}: choose one place along "
            f"{' and '.join(left)}, e.g. select={{'{left[0]}': {place!r}}}."
        )
    return data


def fixed(data: xr.DataArray) -> str:
    """The single places that a figure is about, e.g. `layer 3, head 5`."""
    skip = {"metric", "metric_units", "token", "source_token", *REPEATS}
    found = {
        str(name): coordinate.item()
        for name, coordinate in data.coords.items()
        if coordinate.ndim == 0 and name not in skip
    }
    return ", ".join(f"{name} {value}" for name, value in found.items())


def _have(data: xr.DataArray) -> str:
    return ", ".join(f"{dim} ({size})" for dim, size in data.sizes.items()) or "none"
