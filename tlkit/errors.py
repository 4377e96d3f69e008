"""What tlkit raises and warns of: a bad request, a broken promise, a result to be careful with."""

import sys
import warnings


class TlkitError(Exception):
    """Base of every error that tlkit raises on purpose."""


class SpecError(TlkitError, ValueError):
    """A request that cannot be carried out, told before any model work."""


class EngineError(TlkitError, RuntimeError):
    """A run that did not do what it must, such as a hook that never fired."""


class TlkitWarning(UserWarning):
    """A result that is there but not as it should be, such as numbers that are not finite."""


def warn(sentence: str) -> None:
    """Tell the caller's code, wherever in tlkit this is, of a result to be careful with."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("tlkit"):
        level, frame = level + 1, frame.f_back
    warnings.warn(sentence, TlkitWarning, stacklevel=level - 1)
