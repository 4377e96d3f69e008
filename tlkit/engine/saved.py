"""Runs that are kept on disk while they go on, and can be gone on with."""

import hashlib
import json
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from tlkit.engine.journal import Journal
from tlkit.errors import SpecError
from tlkit.spec.callables import CallableMetric

KEY = "run_key"


def content_key(attrs: dict[str, Any], metrics: Any) -> str:
    """What identifies a run: weights, tokens, spec, metrics, dtype, and versions."""
    parts = [
        str(attrs.get(name))
        for name in (
            "weight_hash", "prompt_hash", "spec", "dtype", "on", "engine", "tlkit_version",
            "packages", "verify",
        )
    ]  # fmt: skip
    named = [f"{type(metric).__qualname__} {_identified(metric)}" for metric in metrics]
    return hashlib.sha256(json.dumps([parts, named]).encode()).hexdigest()


def _identified(thing: Any) -> str:
    """A text that two processes share only if they mean the same metric.

    A function is its code, and the values that it reads from around it: constants, defaults,
    closures and globals.
    """
    if isinstance(thing, CallableMetric):
        declared = (getattr(thing.function, one, None) for one in ("positions", "vocabulary"))
        parts = [thing.name, thing.unit, *map(_identified, declared), _identified(thing.function)]
        return json.dumps(parts)
    if hasattr(thing, "detach"):
        data = thing.detach().cpu().contiguous().float().numpy().tobytes()
        return f"tensor {tuple(thing.shape)} {hashlib.sha256(data).hexdigest()}"
    if isinstance(thing, CodeType):
        parts = [thing.co_code.hex(), *thing.co_names, *map(_identified, thing.co_consts)]
        return json.dumps(parts)
    if isinstance(thing, FunctionType):
        code, around = thing.__code__, thing.__globals__
        read = [cell.cell_contents for cell in thing.__closure__ or ()]
        read += [around[name] for name in code.co_names if name in around]
        read = [getattr(one, "__code__", one) for one in read]  # no deeper: it may read itself
        return json.dumps([_identified(one) for one in (code, thing.__defaults__, *read)])
    return repr(thing)


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
