"""What tlkit raises: a bad request, or a run that broke its promise."""


class TlkitError(Exception):
    """Base of every error that tlkit raises on purpose."""


class SpecError(TlkitError, ValueError):
    """A request that cannot be carried out, told before any model work."""


class EngineError(TlkitError, RuntimeError):
    """A run that did not do what it must, such as a hook that never fired."""
