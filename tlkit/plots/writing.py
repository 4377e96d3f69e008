"""Writing text files whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from tlkit.errors import SpecError
from tlkit.results.disk import writing


def write_page(path: str | Path, text: str) -> Path:
    """Writes an HTML page, replacing one of that name."""
    path = Path(path)
    if path.suffix not in (".html", ".htm"):
        raise SpecError(f"A page is saved as .html: name it {path.with_suffix('.html')}.")
    return write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, body: bytes) -> Path:
    """Writes a file beside its place, then moves it there."""
    if not path.parent.is_dir():
        raise SpecError(f"The folder {path.parent} does not exist: make it first.")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with writing(path):
            temporary.write_bytes(body)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
