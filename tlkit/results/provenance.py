"""How a dataset was made: enough to run it again, as flat plain values."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = (
    "torch",
    "transformers",
    "transformer-lens",
    "tokenizers",
    "numpy",
    "scipy",
    "scikit-learn",
    "tensorly",
    "xarray",
    "zarr",
)


def provenance(
    model: Any,
    prompts: Any = None,
    *,
    spec: Mapping[str, Any] | None = None,
    seed: int | None = None,
    engine: str = "",
    **more: str | int | float | bool,
) -> dict[str, str | int | float | bool]:
    """The attributes that tell how a result was made.

    Args:
        model: a loaded model, or None for a result that read none.
        prompts: what was run; its hash and length are kept.
        spec: what was asked, as a structure that JSON can hold.
        seed: the seed of everything random, if anything was.
        engine: which engine ran it.
        more: further plain values, such as `study` and `seconds`.
    """
    attrs: dict[str, str | int | float | bool] = {}
    if model is not None:
        attrs |= _model(model)
    if prompts is not None:
        attrs |= {"prompt_hash": prompts.hash(), "prompts": len(prompts)}
    if spec is not None:
        attrs["spec"] = json.dumps(spec, sort_keys=True)
    if seed is not None:
        attrs["seed"] = int(seed)
    if engine:
        attrs["engine"] = engine
    attrs |= {
        "tlkit_version": _version("tlkit") or "0+unknown",
        "packages": json.dumps({name: found for name in PACKAGES if (found := _version(name))}),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return {**attrs, **more}


def _model(model: Any) -> dict[str, str | bool]:
    from tlkit.models.info import info

    about = info(model)
    return {
        "model": about.source,
        "revision": about.revision or "",
        "family": about.family,
        "dtype": about.dtype,
        "bos": about.bos,
        "weight_hash": about.weight_hash,
        "tokenizer_hash": about.tokenizer_hash,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
