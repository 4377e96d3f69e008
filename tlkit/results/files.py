"""Saving and opening datasets; a damaged store is refused, never read."""

from __future__ import annotations

import glob
import hashlib
import json
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import xarray as xr

from tlkit.errors import SpecError
from tlkit.results.blocks import BLOCKS, OPENED, Sound, block_sums, encoding, sound
from tlkit.results.disk import writing
from tlkit.results.locking import held
from tlkit.results.schema import SCHEMA_VERSION

CHECKSUMS = "checksums"
"""The attribute of a store with one SHA-256 a variable, and one for the attributes."""


class DamagedError(SpecError):
    """A store that is not what was saved."""


def save(ds: xr.Dataset, path: str | Path, *, overwrite: bool = False) -> Path:
    """Saves a dataset as a `.zarr` folder (zarr format 3), whole or not at all.

    Args:
        ds: numbers, true/false and text only.
        path: a name that ends in `.zarr`; its parent folder must exist.
        overwrite: replace a store that is already there.

    Raises:
        SpecError: another ending, something in the way, values of another type, or another
            process that works on the store.
        EngineError: the disk did not take it; what was there before still is.
    """
    if not isinstance(ds, xr.Dataset):
        raise SpecError(f"save keeps a Dataset, such as tk.run gives; got a {type(ds).__name__}.")
    path = Path(path)
    _check_target(path, overwrite)
    with held(path):
        settle(path)
        _check_target(path, overwrite)
        attrs = {**ds.attrs, "schema_version": ds.attrs.get("schema_version", SCHEMA_VERSION)}
        stored = _encoded(ds.assign_attrs(attrs))
        sums, blocks = json.dumps(_checksums(stored)), json.dumps(block_sums(stored))
        stored.attrs |= {CHECKSUMS: sums, BLOCKS: blocks}
        with writing(path):
            _replace(stored, path)
    return path


def _replace(stored: xr.Dataset, path: Path) -> None:
    """Write a store beside its place, then move it there."""
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}-", suffix=".tmp", dir=path.parent))
    try:
        stored.to_zarr(
            temporary / "new", mode="w-", zarr_format=3, consolidated=False,
            encoding=encoding(stored),
        )  # fmt: skip
        if path.exists():
            path.rename(temporary / "old")
        (temporary / "new").rename(path)
    finally:
        if (temporary / "old").exists() and not path.exists():
            (temporary / "old").rename(path)
        shutil.rmtree(temporary, ignore_errors=True)


def _left(path: Path) -> list[Path]:
    """What saves of this path that were killed left beside it."""
    return sorted(path.parent.glob(f".{glob.escape(path.name)}-{'?' * 8}.tmp"))


def settle(path: Path) -> None:
    """Finish or undo what a killed save left; for one who holds the store.

    A save that was killed between its two renames has moved the old store away and not yet the new
    one there: the new one is whole then, and goes there.
    """
    for temporary in _left(path):
        for part in ("new", "old"):
            if (temporary / "old").is_dir() and (temporary / part).is_dir() and not path.exists():
                (temporary / part).rename(path)
        shutil.rmtree(temporary, ignore_errors=True)


def salvage(path: Path, wanted: tuple[str, ...]) -> Sound | None:
    """What is sound in a damaged store (see `tlkit.results.blocks.sound`)."""
    return sound(path, _checksums, wanted)


def open(path: str | Path) -> xr.Dataset:
    """Opens a dataset that `save` wrote, into memory, and checks every value of it.

    Raises:
        SpecError: nothing there, not one of ours, a newer format, or damage.
    """
    path = Path(path)
    _wait_for(path)
    if not path.exists():
        raise SpecError(f"There are no results at {path}: check the path.")
    if not (path / "zarr.json").is_file():
        raise SpecError(f"{path} is no saved result: it has no zarr.json file.")
    try:
        with xr.open_zarr(path, **OPENED) as store:
            ds = store.load()
    except Exception as error:  # zarr raises whatever the damaged part runs into
        raise DamagedError(
            f"{path} is damaged and cannot be read ({type(error).__name__}): run it again, "
            f"or restore a copy."
        ) from error
    return _decoded(_verified(ds, path))


def _wait_for(path: Path) -> None:
    """A store that is being replaced is away for a moment; one whose save was killed comes back."""
    for _ in range(20):
        if path.exists() or not _left(path):
            return
        try:
            with held(path):
                settle(path)
        except SpecError:  # its writer is alive
            time.sleep(0.02)


def _check_target(path: Path, overwrite: bool) -> None:
    if path.suffix != ".zarr":
        raise SpecError(f"Results are saved as .zarr: name it {path.with_suffix('.zarr')}.")
    if not path.parent.is_dir():
        raise SpecError(f"The folder {path.parent} does not exist: make it first.")
    if not path.exists():
        return
    if not overwrite:
        raise SpecError(f"{path} exists already: choose another name, or pass overwrite=True.")
    if not (path / "zarr.json").is_file():
        raise SpecError(f"{path} is no saved result, so it is not replaced: choose another name.")


def _encoded(ds: xr.Dataset) -> xr.Dataset:
    """Text as zarr's own string type, which has a settled specification."""
    variables = {}
    for name, variable in ds.variables.items():
        kind = variable.dtype.kind
        if kind not in "biufUT":
            raise SpecError(
                f"'{name}' holds {variable.dtype} values: results hold numbers, true/false "
                f"and text."
            )
        values = variable.values
        if kind == "U":
            values = values.astype(np.dtypes.StringDType())
        variables[name] = xr.Variable(variable.dims, values, dict(variable.attrs))
    names = list(ds.data_vars)
    return xr.Dataset(
        {name: variables[name] for name in names},
        {name: variables[name] for name in ds.coords},
        dict(ds.attrs),
    )


def _decoded(ds: xr.Dataset) -> xr.Dataset:
    def plain(variable: xr.Variable) -> xr.Variable:
        values = variable.values
        if variable.dtype.kind in "TO":
            values = _text(values)
        return xr.Variable(variable.dims, values, variable.attrs)

    return xr.Dataset(
        {name: plain(ds.variables[name]) for name in ds.data_vars},
        {name: plain(ds.variables[name]) for name in ds.coords},
        ds.attrs,
    )


def _verified(ds: xr.Dataset, path: Path) -> xr.Dataset:
    version = ds.attrs.get("schema_version")
    if not isinstance(version, int) or CHECKSUMS not in ds.attrs:
        raise SpecError(f"{path} was not saved by tlkit: it says no schema version.")
    if version > SCHEMA_VERSION:
        raise SpecError(
            f"{path} has schema version {version} and this tlkit reads up to "
            f"{SCHEMA_VERSION}: update tlkit."
        )
    ds.attrs.pop(BLOCKS, None)
    try:
        expected = dict(json.loads(ds.attrs.pop(CHECKSUMS)))
    except (TypeError, ValueError):
        expected = {CHECKSUMS: ""}
    for variable in ds.variables.values():
        variable.attrs.pop("_FillValue", None)
    found = _checksums(ds)
    wrong = sorted(n for n in expected.keys() | found.keys() if expected.get(n) != found.get(n))
    if wrong:
        raise DamagedError(
            f"{path} is damaged: {', '.join(wrong)} is not what was saved; run it again, "
            f"or restore a copy."
        )
    return ds


def _checksums(ds: xr.Dataset) -> dict[str, str]:
    sums = {str(name): _digest(variable) for name, variable in ds.variables.items()}
    attrs = json.dumps(ds.attrs, sort_keys=True).encode()
    return {**sums, "attributes": hashlib.sha256(attrs).hexdigest()}


def _digest(variable: xr.Variable) -> str:
    values = variable.values
    if values.dtype.kind in "TOU":
        kind, body = "text", json.dumps(_text(values).ravel().tolist()).encode()
    else:
        if values.dtype.kind == "f":  # one NaN is as good as another
            values = np.where(np.isnan(values), np.array(np.nan, values.dtype), values)
        values = values.astype(values.dtype.newbyteorder("<"), copy=False)
        kind, body = values.dtype.str, np.ascontiguousarray(values).tobytes()
    header = json.dumps([kind, variable.dims, variable.shape, variable.attrs], sort_keys=True)
    return hashlib.sha256(header.encode() + b"\n" + body).hexdigest()


def _text(values: np.ndarray) -> np.ndarray:
    return np.array(values.ravel().tolist(), dtype=str).reshape(values.shape)
