"""Runs that are kept on disk while they go on, and can be gone on with."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tlkit.engine.identity import identified, known
from tlkit.engine.journal import Journal
from tlkit.errors import SpecError, warn

KEY = "run_key"
EXACT = ("packed", "reference")
"""Engines all of whose values are exact."""


def content_key(attrs: dict[str, Any], metrics: Any, interventions: Iterable[Any] = ()) -> str:
    """What identifies a run: weights, tokens, spec, metrics, dtype, versions, a user's own code."""
    parts = [
        str(attrs.get(name))
        for name in (
            "weight_hash", "prompt_hash", "spec", "dtype", "on", "engine", "tlkit_version",
            "packages", "verify",
        )
    ]  # fmt: skip
    named = [f"{metric.name} {identified(metric)}" for metric in metrics]
    own = sorted({identified(one) for one in interventions if not known(type(one))})
    return hashlib.sha256(json.dumps([parts, named, own]).encode()).hexdigest()


def checked_store(path: Path) -> Path:
    """The path, if a result can be saved there.

    Raises:
        SpecError: It has another ending than ``.zarr``, or its folder does not exist or may not
            be written to.
    """
    if path.suffix != ".zarr":
        raise SpecError(f"store={str(path)!r} must end in .zarr.")
    if not path.parent.is_dir():
        raise SpecError(f"store={str(path)!r}: the folder {path.parent} does not exist.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise SpecError(f"store={str(path)!r}: the folder {path.parent} cannot be written to.")
    return path


def _journal_path(store: Path) -> Path:
    """Where an unfinished run keeps what it has done."""
    return store.with_name(store.name + ".journal")


def remove(store: Path) -> None:
    """Delete a run that is to be replaced: its store and its journal."""
    _journal_path(store).unlink(missing_ok=True)
    if (store / "zarr.json").exists():
        # Away at once: half a store, after a kill, could be neither read nor recognised.
        folder = tempfile.mkdtemp(prefix=f".{store.name}-", suffix=".tmp", dir=store.parent)
        store.rename(Path(folder) / "gone")
        shutil.rmtree(folder)


def journal_of(store: Path, key: str, metrics: int) -> tuple[Journal | None, Any]:
    """The journal to go on with; or None and the dataset, where the run is already whole.

    Of a damaged store of this run, what is sound is put into the journal.

    Raises:
        SpecError: The store belongs to another run, or is none, or nothing of it is sound.
    """
    from tlkit.results.files import DamagedError, settle
    from tlkit.results.files import open as open_store

    path = _journal_path(store)
    settle(store)
    if not store.exists():
        return Journal(path, key, metrics), None
    try:
        dataset = open_store(store)
    except DamagedError as error:
        return _saved_from(store, key, metrics, error), None
    if dataset.attrs.get(KEY) != key:
        raise SpecError(_another(store))
    if dataset.attrs.get("complete", True):
        path.unlink(missing_ok=True)  # left by a run that was killed between its last two steps
        return None, dataset
    return Journal(path, key, metrics), None


def _another(store: Path) -> str:
    return (
        f"{store} holds another run (other weights, prompts, cells or versions); "
        f"choose another name, or delete it."
    )


def _saved_from(store: Path, key: str, metrics: int, error: SpecError) -> Journal:
    """A journal of what is sound in a damaged store.

    Raises:
        SpecError: It is another run's, or does not even say whose it is.
    """
    from tlkit.results.files import salvage

    found = salvage(store, ("exact", "base"))
    if found is None:
        raise error
    if found.attrs.get(KEY) != key:
        raise SpecError(_another(store))
    journal = Journal(_journal_path(store), key, metrics)
    if not found.attrs.get("complete", True):
        return journal  # which has all that was finished
    there = np.broadcast_to(
        found.there.reshape(1, -1, *[1] * (found.values.ndim - 2)), found.values.shape
    )[0].reshape(-1, found.values.shape[-1])
    values = found.values.reshape(metrics, *there.shape)
    # Estimates are no results of a cell; where they may be among them, they are made again.
    exact = found.others.get("exact", np.full(len(there), found.attrs["engine"] in EXACT))
    sound = there & exact.reshape(-1, 1)
    jobs = [(int(cell), int(example)) for cell, example in np.argwhere(sound)]
    if jobs:
        journal.add(jobs, values[:, sound])
    if "base" in found.others:  # the given interventions alone are the last cell
        examples = range(found.others["base"].shape[-1])
        journal.add([(len(there), example) for example in examples], found.others["base"])
    share = f"{int(there.sum())} of its {there.size} values are sound and used"
    warn(f"{store} was damaged: {share}, the others are run again.")
    return journal
