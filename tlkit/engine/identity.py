"""What a user's own code and objects are, as a text that two runs share only if they mean the same.

A kept run may only be gone on with if nothing that its numbers depend on has changed: the code of a
metric or an intervention, the helpers that it calls, and every value that these read.
"""

import functools
import hashlib
import json
import re
import sys
from collections.abc import Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

LIBRARIES = {
    "tlkit", "torch", "numpy", "scipy", "sklearn", "transformers", "transformer_lens", "einops",
    "jaxtyping", "xarray", "pandas", "typing_extensions",
}  # fmt: skip
"""Their code is known by its name; the versions that matter are part of a run's key."""


def identified(thing: Any) -> str:
    """A hash of what a thing is: code by what it does, objects by their class and values.

    Example:
        >>> identified({"scale": 1.0}) == identified({"scale": 2.0})
        False
    """
    text = json.dumps(_plain(thing, {}))
    return hashlib.sha256(text.encode()).hexdigest()


def known(thing: Any) -> bool:
    """Whether a class or function belongs to Python or to a library."""
    root = (getattr(thing, "__module__", None) or "builtins").split(".")[0]
    return root in LIBRARIES or (root in sys.stdlib_module_names and root != "test")


def _plain(thing: Any, seen: dict[int, int]) -> Any:
    """A structure that JSON can hold. What holds itself is named by when it was first met."""
    if thing is None or isinstance(thing, (bool, int, float, complex, str, bytes)):
        return repr(thing)
    if id(thing) in seen:
        return f"seen {seen[id(thing)]}"
    seen[id(thing)] = len(seen)
    if hasattr(thing, "detach") or isinstance(thing, (np.ndarray, np.generic)):
        return _numbers(thing)
    if hasattr(thing, "hash") and hasattr(thing, "clean"):
        return f"prompts {thing.hash()}"
    if isinstance(thing, Mapping):
        return ["mapping", *([_plain(k, seen), _plain(v, seen)] for k, v in thing.items())]
    if isinstance(thing, (set, frozenset)):
        return ["set", *sorted(json.dumps(_plain(one, seen)) for one in thing)]
    if isinstance(thing, (list, tuple)):
        return ["several", *(_plain(one, seen) for one in thing)]
    if isinstance(thing, (CodeType, FunctionType, MethodType, functools.partial)):
        return _code(thing, seen)
    if isinstance(thing, (type, ModuleType, BuiltinFunctionType)):
        return _class(thing, seen)
    return _instance(thing, seen)


def _numbers(thing: Any) -> str:
    if hasattr(thing, "detach"):
        dtype, thing = str(thing.dtype), thing.detach().cpu().contiguous()
        thing = thing.float().numpy() if "float" in dtype else thing.numpy()
    else:
        thing = np.ascontiguousarray(thing)
        dtype = str(thing.dtype)
    return f"{dtype} {thing.shape} {hashlib.sha256(thing.tobytes()).hexdigest()}"


def _code(thing: Any, seen: dict[int, int]) -> Any:
    if isinstance(thing, CodeType):
        return [
            "code", thing.co_code.hex(), *thing.co_names,
            *(_plain(one, seen) for one in thing.co_consts),
        ]  # fmt: skip
    if isinstance(thing, MethodType):
        return ["method", _plain(thing.__func__, seen), _plain(thing.__self__, seen)]
    if isinstance(thing, functools.partial):
        parts = (thing.func, thing.args, thing.keywords)
        return ["partial", *(_plain(one, seen) for one in parts)]
    if known(thing):
        return f"function {thing.__module__}.{thing.__qualname__}"
    code, around = thing.__code__, thing.__globals__
    cells = [cell.cell_contents for cell in thing.__closure__ or ()]
    read = [(name, around[name]) for name in _names(code) if name in around]
    parts = (code, thing.__defaults__, thing.__kwdefaults__, cells, read, thing.__dict__)
    return ["function", *(_plain(one, seen) for one in parts)]


def _names(code: CodeType) -> list[str]:
    """The names that a function and those defined in it look up."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return sorted({*code.co_names, *(name for one in inner for name in _names(one))})


def _class(thing: Any, seen: dict[int, int]) -> Any:
    if isinstance(thing, ModuleType):
        return f"module {thing.__name__}"
    if known(thing):
        return f"class {thing.__module__}.{thing.__qualname__}"
    if not isinstance(thing, type):
        return f"builtin {thing.__qualname__}"
    own = {
        name: value for name, value in vars(thing).items()
        if isinstance(value, (FunctionType, classmethod, staticmethod, property))
        or not name.startswith("__")
    }  # fmt: skip
    bases = [_plain(base, seen) for base in thing.__bases__]
    return ["class", thing.__qualname__, *bases, _plain(own, seen)]


def _instance(thing: Any, seen: dict[int, int]) -> Any:
    inner = getattr(thing, "__func__", None) or getattr(thing, "fget", None)
    if isinstance(thing, (classmethod, staticmethod, property)):
        return [type(thing).__name__, _plain(inner, seen)]
    values = getattr(thing, "__dict__", None)
    if values is None:
        names = [n for kind in type(thing).__mro__ for n in getattr(kind, "__slots__", ())]
        values = {name: getattr(thing, name, None) for name in names}
    shown = "" if values else re.sub(r" at 0x[0-9a-f]+", "", repr(thing))
    return ["object", _plain(type(thing), seen), _plain(dict(values), seen), shown]
