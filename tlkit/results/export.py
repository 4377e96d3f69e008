"""Datasets as flat tables: a pandas DataFrame, or a CSV file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import xarray as xr

from tlkit.errors import SpecError
from tlkit.results.disk import writing


def to_frame(ds: xr.Dataset, variables: Sequence[str] | None = None) -> pd.DataFrame:
    """One row a cell, with its coordinates and every variable that has those dimensions.

    Variables with fewer dimensions are repeated. Variables that share no common set of
    dimensions make no one table: name the ones to export.
    """
    names = [str(name) for name in (variables or ds.data_vars)]
    missing = [name for name in names if name not in ds.data_vars]
    if missing or not names:
        raise SpecError(
            f"The dataset has no variable {missing or names}: "
            f"it has {', '.join(map(str, ds.data_vars))}."
        )
    widest = max((set(ds[name].dims) for name in names), key=len)
    apart = [name for name in names if not set(ds[name].dims) <= widest]
    if apart:
        raise SpecError(
            f"{', '.join(apart)} has dimensions of its own, so one table cannot hold it beside "
            f"the others: export it alone, variables=['{apart[0]}']."
        )
    chosen = ds[names]
    order = [str(dim) for dim in ds.dims if dim in widest]
    if not order:
        return pd.DataFrame({name: [chosen[name].item()] for name in names})
    return chosen.to_dataframe(dim_order=order).reset_index()


def to_csv(
    ds: xr.Dataset,
    path: str | Path,
    variables: Sequence[str] | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Writes `to_frame` as a CSV file (UTF-8; an empty field is NaN)."""
    path = Path(path)
    if path.exists() and not overwrite:
        raise SpecError(f"{path} exists already: choose another name, or pass overwrite=True.")
    frame = to_frame(ds, variables)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with writing(path):
            frame.to_csv(temporary, index=False)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
