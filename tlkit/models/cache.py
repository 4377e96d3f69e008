"""What tlkit keeps on disk between runs: where it is, what is there, how it goes away."""

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MARK = ".made-by-tlkit"
"""A file in every folder that tlkit made: nothing without it is listed, or deleted."""


@dataclass(frozen=True)
class Entry:
    """One thing that tlkit keeps on disk.

    Attributes:
        name: What it is called, such as "models/smollm2-135m-instruct-b179c9523d1a".
        path: Where it is.
        bytes: What it takes.
    """

    name: str
    path: Path
    bytes: int


def cache_dir() -> Path:
    """Find the folder that tlkit keeps things in: `TLKIT_CACHE`, else the user's cache folder."""
    named = os.environ.get("TLKIT_CACHE")
    if named:
        return Path(named).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("tlkit", appauthor=False))


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def entries() -> list[Entry]:
    """List what is kept, by name; things half made by a run that was cut off are listed too."""
    root = cache_dir()
    found = sorted(mark.parent for mark in root.glob(f"*/*/{MARK}")) if root.is_dir() else []
    return [Entry(path.relative_to(root).as_posix(), path, _size(path)) for path in found]


def clear(name: str | None = None) -> list[Entry]:
    """Delete what is kept, or the one entry of a name.

    Only folders that tlkit made are deleted, wherever `TLKIT_CACHE` points.

    Returns:
        What was deleted.
    """
    gone = [entry for entry in entries() if name is None or entry.name == name]
    for entry in gone:
        if entry.path.is_symlink():
            entry.path.unlink()
        else:
            shutil.rmtree(entry.path)
    return gone


def keep(folder: Path, make: Callable[[Path], None]) -> None:
    """Make a folder in full under another name, then rename it: it is there whole or not at all.

    Args:
        folder: What it will be called; nothing happens when another process was faster.
        make: Fills the folder that it is given.

    Raises:
        OSError: The disk is full or read-only.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=f"{folder.name}.part-", dir=folder.parent))
    try:
        (half / MARK).touch()
        make(half)
        try:
            half.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(half, ignore_errors=True)
