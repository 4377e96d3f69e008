"""What a disk that does not take a result is called: full, read-only, or out of reach."""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from tlkit.errors import EngineError

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your share of the disk is full",
    errno.EFBIG: "the file would be larger than is allowed here",
    errno.EROFS: "the disk is read-only",
    errno.EACCES: "you may not write there",
    errno.EPERM: "you may not write there",
}


def unwritable(path: str | Path, error: OSError) -> str:
    """One sentence for a write that failed."""
    reason = _REASONS.get(error.errno or 0, error.strerror or str(error) or "unknown")
    return f"{path} cannot be written: {reason}."


@contextlib.contextmanager
def writing(path: str | Path, kept: str = "") -> Iterator[None]:
    """Tell of a write that fails in one sentence.

    Args:
        path: What is written, for the sentence.
        kept: What is not lost, and what to do.

    Raises:
        EngineError: The disk did not take it.
    """
    try:
        yield
    except OSError as error:
        raise EngineError(" ".join(filter(None, (unwritable(path, error), kept)))) from error
