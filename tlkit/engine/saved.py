"""Runs that are kept on disk while they go on, and can be gone on with."""

import hashlib
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tlkit.engine.identity import identified, known
from tlkit.engine.journal import Journal
from tlkit.errors import SpecError

KEY = "run_key"


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
        SpecError: It has another ending than ``.zarr``, or its folder does not exist.
    """
    if path.suffix != ".zarr":
        raise SpecError(f"store={str(path)!r} must end in .zarr.")
    if not path.parent.is_dir():
        raise SpecError(f"store={str(path)!r}: the folder {path.parent} does not exist.")
    return path


def _journal_path(store: Path) -> Path:
    """Where an unfinished run keeps what it has done."""
    return store.with_name(store.name + ".journal")


def remove(store: Path) -> None:
    """Delete a run that is to be replaced: its store and its journal."""
    _journal_path(store).unlink(missing_ok=True)
    if (store / "zarr.json").exists():
        shutil.rmtree(store)


def journal_of(store: Path, key: str, metrics: int) -> tuple[Journal | None, Any]:
    """The journal to go on with; or None and the dataset, where the run is already whole.

    Raises:
        SpecError: The store belongs to another run, or is none.
    """
    path = _journal_path(store)
    if store.exists():
        from tlkit.results.files import open as open_store

        dataset = open_store(store)
        if dataset.attrs.get(KEY) != key:
            raise SpecError(
                f"{store} holds another run (other weights, prompts, cells or versions); "
                f"choose another name, or delete it."
            )
        if dataset.attrs.get("complete", True):
            return None, dataset
    return Journal(path, key, metrics), None
