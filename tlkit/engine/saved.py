"""Runs that are kept on disk while they go on, and can be gone on with."""

import hashlib
import json
from pathlib import Path
from typing import Any

from tlkit.engine.journal import Journal
from tlkit.errors import SpecError

KEY = "run_key"


def content_key(attrs: dict[str, Any], metrics: Any) -> str:
    """What identifies a run: weights, tokens, spec, metrics, dtype, and versions."""
    parts = [
        str(attrs.get(name))
        for name in (
            "weight_hash", "prompt_hash", "spec", "dtype", "on", "engine", "tlkit_version",
            "packages",
        )
    ]  # fmt: skip
    named = [f"{type(metric).__qualname__} {metric!r}" for metric in metrics]
    return hashlib.sha256(json.dumps([parts, named]).encode()).hexdigest()


def journal_of(store: Path, key: str, metrics: int) -> tuple[Journal | None, Any]:
    """The journal to go on with; or None and the dataset, where the run is already whole.

    Raises:
        SpecError: The store belongs to another run, or is none.
    """
    path = store.with_name(store.name + ".journal")
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
