"""One process at a time on a store, by a lock that goes when its process goes, killed or not."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tlkit.errors import SpecError
from tlkit.results.disk import unwritable

try:
    import fcntl
except ImportError:  # Windows has no flock: there, nothing is refused
    fcntl: Any = None

_mine: dict[tuple[str, int], int] = {}
"""How often this thread holds a store: a run that saves holds it twice."""


@contextlib.contextmanager
def held(store: str | Path) -> Iterator[None]:
    """Keep a store for this thread of this process while the body runs.

    The lock is a file beside the store, which is deleted on leaving; after a kill it stays, and
    means nothing.

    Raises:
        SpecError: Another process or thread works on the store, or nothing can be written there.
    """
    path = Path(store)
    key = (str(path.absolute()), threading.get_ident())
    if _mine.get(key):
        _mine[key] += 1
        try:
            yield
        finally:
            _mine[key] -= 1
        return
    file = path.with_name(f".{path.name}.lock")
    descriptor = _locked(file, path)
    _mine[key] = 1
    try:
        yield
    finally:
        del _mine[key]
        if descriptor is not None:
            # Deleted before it is let go, so that nobody can have locked what is deleted here.
            file.unlink(missing_ok=True)
            os.close(descriptor)


def _locked(file: Path, store: Path) -> int | None:
    """The locked file's descriptor; None where the file system knows no locks."""
    if fcntl is None:
        return None
    while True:
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise SpecError(unwritable(store, error)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise SpecError(
                f"{store} is in use by another run: wait until that has ended, or give another "
                f"name."
            ) from None
        except OSError:
            os.close(descriptor)
            file.unlink(missing_ok=True)
            return None
        if _still_there(file, descriptor):
            return descriptor
        os.close(descriptor)  # its last holder deleted it in between: lock the new one


def _still_there(file: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(file), os.fstat(descriptor))
    except FileNotFoundError:
        return False
