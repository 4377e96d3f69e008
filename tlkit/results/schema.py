"""What a results dataset may be called, measured in, and made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from tlkit.errors import SpecError
from tlkit.results.units import METRIC_UNITS, UNITS
from tlkit.shapes import DIMENSIONS

SCHEMA_VERSION = 1


def build(
    variables: Mapping[str, tuple],
    coords: Mapping[str, Any] | None = None,
    attrs: Mapping[str, Any] | None = None,
    *,
    axes: Iterable[str] = (),
) -> xr.Dataset:
    """A checked dataset: known dimensions, matching sizes, a unit on every variable.

    Args:
        variables: name to `(dims, array)`, or `(dims, array, units)` for a name that
            has no unit of its own in `UNITS`.
        coords: dimension to its labels, or another name to `(dims, labels)`. A
            dimension without labels is counted from 0.
        attrs: flat provenance: strings, numbers and booleans.
        axes: swept fields that are dimensions here besides those of `DIMENSIONS`.

    Raises:
        SpecError: an unknown dimension, a size that does not fit, repeated labels, a
            missing unit, or an attribute that is no plain value.
    """
    known = {*DIMENSIONS, *axes}
    data = {name: _variable(name, spec, known) for name, spec in variables.items()}
    sizes = _sizes(data)
    labels = {name: _coordinate(name, spec, known) for name, spec in (coords or {}).items()}
    for name, coordinate in labels.items():
        _check_coordinate(name, coordinate, sizes)
    for dim, size in sizes.items():
        labels.setdefault(dim, xr.Variable((dim,), np.arange(size)))
    _check_metric_units(data, labels)
    plain = {name: _plain(name, value) for name, value in (attrs or {}).items()}
    return xr.Dataset(data, labels, {"schema_version": SCHEMA_VERSION, **plain})


def token_coords(
    tokens: Sequence[Sequence[str]],
    source_tokens: Sequence[Sequence[str]] | None = None,
    *,
    positions: Sequence[int] | None = None,
) -> dict[str, tuple[tuple[str, str], np.ndarray]]:
    """The token labels of every example, as coordinates over (example, pos).

    Args:
        tokens: the base run's labels, one sequence an example; lengths may differ, and
            positions past an example's end are labelled "".
        source_tokens: for each of those positions the label of the source run's token
            that is aligned with it, "" where there is none.
        positions: the dataset's positions, where they are not 0, 1, 2, …
    """
    if positions is None:
        positions = range(max((len(row) for row in tokens), default=0))
    named = {"token": tokens}
    if source_tokens is not None:
        named["source_token"] = source_tokens
    return {
        name: (
            ("example", "pos"),
            np.array(
                [[row[p] if 0 <= p < len(row) else "" for p in positions] for row in rows],
                dtype=str,
            ).reshape(len(rows), len(positions)),
        )
        for name, rows in named.items()
    }


def _variable(name: str, spec: tuple, known: set[str]) -> xr.Variable:
    dims, values, *unit = spec
    units = unit[0] if unit else UNITS.get(name)
    if units is None:
        raise SpecError(
            f"Variable '{name}' has no known unit: give it as (dims, array, units), "
            f"with a word such as 'nats', 'probability' or 'fraction'."
        )
    return _checked(name, dims, values, known, {"units": units})


def _coordinate(name: str, spec: Any, known: set[str]) -> xr.Variable:
    if isinstance(spec, tuple) and len(spec) == 2 and _is_dims(spec[0], known):
        return _checked(name, spec[0], spec[1], known, {})
    return _checked(name, (name,), list(spec), known, {})


def _is_dims(value: Any, known: set[str]) -> bool:
    if isinstance(value, str):
        return value in known
    return isinstance(value, (tuple, list)) and all(isinstance(dim, str) for dim in value)


def _checked(name: str, dims: Any, values: Any, known: set[str], attrs: dict) -> xr.Variable:
    dims = (dims,) if isinstance(dims, str) else tuple(dims)
    for dim in dims:
        if dim not in known:
            raise SpecError(
                f"'{name}' asks for the dimension '{dim}', which results do not have: "
                f"use one of {', '.join(sorted(known))}."
            )
    array = np.asarray(values)
    if array.dtype.kind not in "biufU":
        raise SpecError(
            f"'{name}' holds {array.dtype} values: results hold numbers, true/false and text."
        )
    if array.ndim != len(dims):
        raise SpecError(
            f"'{name}' has {array.ndim} axes of sizes {array.shape} but names {len(dims)} "
            f"dimensions ({', '.join(dims) or 'none'}): name each axis once."
        )
    return xr.Variable(dims, array, attrs)


def _sizes(data: Mapping[str, xr.Variable]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name, variable in data.items():
        for dim, size in variable.sizes.items():
            if sizes.setdefault(str(dim), size) != size:
                raise SpecError(
                    f"'{name}' has {size} along '{dim}' where another variable has "
                    f"{sizes[str(dim)]}: give every variable the same length there."
                )
    return sizes


def _check_coordinate(name: str, coordinate: xr.Variable, sizes: Mapping[str, int]) -> None:
    for dim, size in coordinate.sizes.items():
        if sizes.get(str(dim)) != size:
            raise SpecError(
                f"The labels '{name}' have {size} along '{dim}' where the variables have "
                f"{sizes.get(str(dim), 'no such dimension')}: give one label a place."
            )
    if coordinate.dims == (name,) and len(np.unique(coordinate.values)) != coordinate.size:
        raise SpecError(f"The labels along '{name}' repeat: give every place its own label.")


def _check_metric_units(data: Mapping[str, xr.Variable], labels: Mapping[str, Any]) -> None:
    for name, variable in data.items():
        if variable.attrs["units"] != METRIC_UNITS:
            continue
        if "metric" not in variable.dims or METRIC_UNITS not in labels:
            raise SpecError(
                f"'{name}' is measured in its metric's unit: give it the dimension 'metric' "
                f"and the coordinate '{METRIC_UNITS}' with one unit a metric."
            )


def _plain(name: str, value: Any) -> str | int | float | bool:
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, (str, int, float, bool)):
        raise SpecError(
            f"Attribute '{name}' is a {type(value).__name__}: attributes are text, numbers "
            f"and true/false; pass a structure as JSON text."
        )
    return value
