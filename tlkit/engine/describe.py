"""Specs as JSON, so that a result says what was done."""

import hashlib
from dataclasses import fields, is_dataclass
from typing import Any

from tlkit.spec.sweeps import Sweep


def described(thing: Any) -> Any:
    """A structure that JSON can hold: names, numbers, and hashes of tensors and prompts."""
    if isinstance(thing, Sweep):
        shown: dict[str, Any] = {"axes": {k: described(v) for k, v in thing.axes.items()}}
        if thing.template is None:
            shown["conditions"] = [described(c) for c in thing.conditions()]
        else:
            shown["template"] = described(thing.template)
        if thing.given:
            shown["given"] = [described(one) for one in thing.given]
        return shown
    if thing is None or isinstance(thing, (bool, int, float, str)):
        return thing
    if isinstance(thing, (list, tuple, range)):
        if _consecutive(thing):
            return f"{thing[0]}..{thing[-1]}"
        return [described(one) for one in thing]
    if hasattr(thing, "hash") and hasattr(thing, "clean"):
        return {"prompts": thing.hash()}
    if hasattr(thing, "detach"):
        data = thing.detach().cpu().contiguous().float().numpy().tobytes()
        return {"tensor": list(thing.shape), "sha256": hashlib.sha256(data).hexdigest()}
    if is_dataclass(thing):
        named = {f.name: described(getattr(thing, f.name)) for f in fields(thing)}
        return {type(thing).__name__: {k: v for k, v in named.items() if v is not None}}
    return repr(thing)


def _consecutive(values: Any) -> bool:
    """Whether these are three or more whole numbers in a row."""
    if len(values) < 3 or any(type(value) is not int for value in values):
        return False
    return list(values) == list(range(values[0], values[0] + len(values)))
