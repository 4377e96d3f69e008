"""Mechanistic interpretability of language models: exact studies on TransformerLens.

Names are loaded when first used, so that ``import tlkit`` costs milliseconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tlkit.errors import EngineError, SpecError, TlkitError
    from tlkit.spec.sites import Site

# Where each public name lives; the imports above say the same to type checkers.
# "module:name" is that name in the module, "module" alone is the module itself.
_HOME = {
    "EngineError": "tlkit.errors:EngineError",
    "Site": "tlkit.spec.sites:Site",
    "SpecError": "tlkit.errors:SpecError",
    "TlkitError": "tlkit.errors:TlkitError",
}

__all__ = ["EngineError", "Site", "SpecError", "TlkitError"]  # pyright needs the literal


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value = _version()
    elif name in _HOME:
        module, _, member = _HOME[name].partition(":")
        value = import_module(module)
        if member:
            value = getattr(value, member)
    else:
        raise AttributeError(f"module 'tlkit' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, "__version__"})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tlkit")
    except PackageNotFoundError:  # a checkout that was never installed
        return "0+unknown"
