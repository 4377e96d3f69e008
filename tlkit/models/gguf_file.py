"""Read and check the head of a GGUF file: what it holds, and whether all of it is there."""

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from tlkit.errors import SpecError

# Format codes of the scalar value types, by the number that stands for them in the file.
_SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_STRING, _ARRAY = 8, 9
_VERSIONS = (2, 3)
_MOST_AXES = 8  # of a tensor; the format itself knows 4
_DEEPEST = 4  # arrays within arrays; no file needs more than one


@dataclass(frozen=True)
class GgufHead:
    """What stands before the weights in a GGUF file.

    Attributes:
        values: The metadata; arrays are given as their length.
        shapes: Each tensor's shape, fastest axis first, as the file has it.
    """

    values: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]

    @property
    def architecture(self) -> str:
        """The family as GGUF names it, such as "llama"."""
        return str(self.values.get("general.architecture", ""))

    @property
    def elements(self) -> int:
        """Number of weights."""
        return sum(prod(shape) for shape in self.shapes.values())


class _Cursor:
    """Reads little-endian values one after the other."""

    def __init__(self, data: mmap.mmap, at: int) -> None:
        self.data, self.at = data, at

    def scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from(f"<{code}", self.data, self.at)
        self.at += struct.calcsize(f"<{code}")
        return value

    def text(self) -> str:
        length = self.scalar("Q")
        if self.at + length > len(self.data):
            raise struct.error("text runs past the end")
        value = self.data[self.at : self.at + length].decode("utf-8", "replace")
        self.at += length
        return value

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self._array(depth + 1)
        if kind not in _SCALARS:
            raise struct.error(f"unknown value type {kind}")
        return self.scalar(_SCALARS[kind])

    def _array(self, depth: int) -> int:
        """Pass over an array, and give its length."""
        if depth > _DEEPEST:
            raise struct.error("arrays within arrays")
        kind, length = self.scalar("I"), self.scalar("Q")
        if kind in _SCALARS:
            self.at += length * struct.calcsize(_SCALARS[kind])
        elif kind == _STRING:
            for _ in range(length):
                self.at += 8 + struct.unpack_from("<Q", self.data, self.at)[0]
        else:
            for _ in range(length):
                self.value(kind, depth)
        if self.at > len(self.data):
            raise struct.error("an array runs past the end")
        return length


def _tensors(cursor: _Cursor, count: int) -> dict[str, tuple[tuple[int, ...], int, int]]:
    """Read the table of tensors: shape, type and offset of each."""
    tensors = {}
    for _ in range(count):
        name = cursor.text()
        axes = cursor.scalar("I")
        if axes > _MOST_AXES:
            raise struct.error("a tensor of many axes")
        shape = tuple(cursor.scalar("Q") for _ in range(axes))
        tensors[name] = (shape, cursor.scalar("I"), cursor.scalar("Q"))
    return tensors


def _bytes_of(shape: tuple[int, ...], kind: int, name: str, path: Path) -> int:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    except (ValueError, KeyError):
        raise SpecError(
            f"{path} stores {name} in a type (number {kind}) that the installed gguf package does "
            f"not know; a newer one may: pip install -U gguf."
        ) from None
    return prod(shape) // block * size


def _magic(data: bytes, path: Path) -> None:
    if data[:4] != b"GGUF":
        raise SpecError(f"{path} is not a GGUF file: it does not start with the letters GGUF.")
    version = int.from_bytes(data[4:8], "little")
    if version not in _VERSIONS:
        raise SpecError(
            f"{path} is GGUF of version {version}; versions 2 and 3, little-endian, can be read."
        )


def read_head(path: Path) -> GgufHead:
    """Read a GGUF file's metadata and table of tensors, and check that the file holds them all.

    Args:
        path: The file.

    Returns:
        What it says of itself; no weight is read.

    Raises:
        SpecError: The file is no GGUF, of another version, cut short or one part of several.
    """
    with path.open("rb") as file:
        _magic(file.read(8), path)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read(_Cursor(data, at=8), path)


def _read(cursor: _Cursor, path: Path) -> GgufHead:
    try:
        count, pairs = cursor.scalar("Q"), cursor.scalar("Q")
        values = {}
        for _ in range(pairs):
            name = cursor.text()
            values[name] = cursor.value(cursor.scalar("I"))
        tensors = _tensors(cursor, count)
    except (struct.error, OverflowError, MemoryError):
        raise SpecError(
            f"{path} is a damaged or cut GGUF file: its header does not end; fetch it again."
        ) from None
    alignment, parts = (
        _whole(values, name, usual, path)
        for name, usual in (("general.alignment", 32), ("split.count", 1))
    )
    start = -(-cursor.at // alignment) * alignment
    _all_inside(path, len(cursor.data), start, tensors)
    if parts > 1:
        raise SpecError(
            f"{path} is one part of {parts}; join the parts into one file first "
            f"(llama-gguf-split --merge)."
        )
    return GgufHead(values, {name: shape for name, (shape, _, _) in tensors.items()})


def _whole(values: dict[str, Any], name: str, usual: int, path: Path) -> int:
    """A number of the metadata, from 1 on."""
    value = values.get(name, usual)
    if not isinstance(value, int) or not 0 <= value < 2**31:
        raise SpecError(f"{path} says {name} = {value!r:.40}, which cannot be; fetch it again.")
    return max(value, 1)


def _all_inside(
    path: Path, size: int, start: int, tensors: dict[str, tuple[tuple[int, ...], int, int]]
) -> None:
    if not tensors:
        raise SpecError(f"{path} is a GGUF file without weights; it may hold only a vocabulary.")
    for name, (shape, kind, offset) in tensors.items():
        end = start + offset + _bytes_of(shape, kind, name, path)
        if end > size:
            raise SpecError(
                f"{path} is cut short: {name} would end at byte {end:,} and the file has "
                f"{size:,}; fetch it again."
            )
