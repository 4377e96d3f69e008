"""Digests of parts of a variable, so that of a damaged store the sound parts can be used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

BLOCKED = "value"
"""The variable that is digested in blocks along its second axis: each cell cost a run."""
BLOCKS = "block_checksums"
"""The attribute of a store with one digest a block."""
MOST = 64
"""Blocks of a variable; each is a chunk, and so a file, of its own."""

OPENED = {
    "consolidated": False, "chunks": None, "mask_and_scale": False, "decode_times": False,
    "decode_timedelta": False,
}  # fmt: skip
"""How stores are opened: values as they were written."""


class Sound(NamedTuple):
    """What is sound in a damaged store.

    Attributes:
        attrs: The store's attributes.
        values: The blocked variable; zeros where it is damaged.
        there: Which entries along its second axis are sound.
        others: Further variables that are sound as a whole.
    """

    attrs: dict[str, Any]
    values: np.ndarray
    there: np.ndarray
    others: dict[str, np.ndarray]


def block_length(shape: tuple[int, ...]) -> int:
    """How many entries along the second axis make a block."""
    return max(1, -(-shape[1] // MOST))


def block_sums(ds: xr.Dataset) -> list[str]:
    """One digest for each block of the blocked variable, empty if there is none."""
    if not _cut(ds):
        return []
    values = ds[BLOCKED].values
    step = block_length(values.shape)
    return [_digest(values[:, at : at + step]) for at in range(0, values.shape[1], step)]


def encoding(ds: xr.Dataset) -> dict[str, dict[str, Any]]:
    """How the blocked variable is cut into chunks: as it is digested."""
    if not _cut(ds):
        return {}
    shape = ds[BLOCKED].shape
    return {BLOCKED: {"chunks": (shape[0], block_length(shape), *shape[2:])}}


def sound(
    path: Path, expected: Callable[[xr.Dataset], Mapping[str, str]], wanted: tuple[str, ...]
) -> Sound | None:
    """Read what is sound in a store; None where not even its attributes are.

    Args:
        path: The damaged store.
        expected: Gives the digests of a dataset's attributes and variables.
        wanted: Further variables to read.
    """
    import zarr

    try:
        names = list(zarr.open_group(path, mode="r").array_keys())
        attrs = _one(path, names, ()).attrs
        sums, digests = json.loads(attrs.pop("checksums")), json.loads(attrs.pop(BLOCKS))
        if expected(xr.Dataset(attrs=attrs))["attributes"] != sums["attributes"]:
            return None
        values, there = _blocks(path, names, digests)
    except Exception:  # zarr raises whatever the damaged part runs into
        return None
    others = {}
    for name in wanted:
        try:
            ds = _one(path, names, (name,)).load()
            ds[name].attrs.pop("_FillValue", None)
            if expected(ds)[name] == sums[name]:
                others[name] = ds[name].values
        except Exception:  # nosec B112: damage, too; it is not among the sound ones
            continue
    return Sound(dict(attrs), values, there, others)


def _cut(ds: xr.Dataset) -> bool:
    """Whether there is such a variable, and something in it."""
    if BLOCKED not in ds.data_vars:
        return False
    return ds[BLOCKED].ndim > 1 and ds[BLOCKED].size > 0 and ds[BLOCKED].dtype.kind == "f"


def _one(path: Path, names: list[str], kept: tuple[str, ...]) -> xr.Dataset:
    """A store with some of its variables alone, not yet read."""
    left_out = [name for name in names if name not in kept]
    return xr.open_zarr(path, drop_variables=left_out, **OPENED)


def _blocks(path: Path, names: list[str], digests: list[str]) -> tuple[np.ndarray, np.ndarray]:
    lazy = _one(path, names, (BLOCKED,))[BLOCKED]
    values, there = np.zeros(lazy.shape, lazy.dtype), np.zeros(lazy.shape[1], bool)
    step = block_length(lazy.shape)
    for number, digest in enumerate(digests):
        part = slice(number * step, number * step + step)
        try:
            block = lazy.isel({lazy.dims[1]: part}).values
        except Exception:  # nosec B112: a chunk that cannot be unpacked is run again
            continue
        if _digest(block) == digest:
            values[:, part], there[part] = block, True
    return values, there


def _digest(values: np.ndarray) -> str:
    values = np.where(np.isnan(values), np.array(np.nan, values.dtype), values)
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]
