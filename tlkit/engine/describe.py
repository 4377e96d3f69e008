"""Specs as JSON, so that a result says what was done."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from tlkit.spec.sweeps import Sweep


def described(thing: Any) -> Any:
    """A structure that JSON can hold: names, numbers, and hashes of tensors and prompts.

    The same spec gives the same structure in every process.
    """
    if isinstance(thing, Sweep):
        return _sweep(thing)
    if thing is None or isinstance(thing, (bool, int, float, str)):
        return thing
    if isinstance(thing, (list, tuple, range)):
        if _consecutive(thing):
            return f"{thing[0]}..{thing[-1]}"
        return [described(one) for one in thing]
    if isinstance(thing, Mapping):
        return {str(key): described(value) for key, value in thing.items()}
    if hasattr(thing, "hash") and hasattr(thing, "clean"):
        return {"prompts": thing.hash()}
    if is_dataclass(thing):
        named = {f.name: described(getattr(thing, f.name)) for f in fields(thing)}
        return {type(thing).__name__: {k: v for k, v in named.items() if v is not None}}
    return _opaque(thing)


def _sweep(sweep: Sweep) -> dict[str, Any]:
    shown: dict[str, Any] = {"axes": {k: described(v) for k, v in sweep.axes.items()}}
    if sweep.template is None:
        shown["conditions"] = [described(c) for c in sweep.conditions()]
    else:
        shown["template"] = described(sweep.template)
    if sweep.given:
        shown["given"] = [described(one) for one in sweep.given]
    return shown


def _consecutive(values: Any) -> bool:
    """Whether these are three or more whole numbers in a row."""
    if len(values) < 3 or any(type(value) is not int for value in values):
        return False
    return list(values) == list(range(values[0], values[0] + len(values)))


def _opaque(thing: Any) -> Any:
    """Tensors, arrays and functions by what they hold; anything else by how Python shows it."""
    if hasattr(thing, "detach"):
        thing = thing.detach().cpu().contiguous().float().numpy()
    if isinstance(thing, np.generic):
        return thing.item()
    if isinstance(thing, np.ndarray):
        data = np.ascontiguousarray(thing, dtype=np.float32).tobytes()
        return {"tensor": list(thing.shape), "sha256": hashlib.sha256(data).hexdigest()}
    if isinstance(thing, FunctionType):
        return {"function": thing.__qualname__, "sha256": _hash_of_code(thing.__code__)}
    return re.sub(r" at 0x[0-9a-f]+", "", repr(thing))  # an address is another one in every run


def _hash_of_code(code: CodeType) -> str:
    """What a function does, as far as its own code says."""
    constants = [
        _hash_of_code(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts
    ]
    parts = [code.co_code.hex(), *code.co_names, *constants]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
