"""Weights read from safetensors files a piece at a time, never mapped into memory.

A mapped file is no memory of the process until it is touched, and then it is, so that a limit on
memory would mean nothing: these are plain reads, and what is read lies in tensors of our own.
"""

import threading
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tlkit.errors import SpecError
from tlkit.models.validate import Entry, read_json, safetensors_entries

if TYPE_CHECKING:
    import torch
    from torch import Tensor

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
PIECE = 4 * 2**20
"""Most bytes that are read at once where their type is changed."""
_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


class WeightFiles:
    """The tensors of a model folder, by the names that the files give them.

    Args:
        folder: Holds ``model.safetensors``, or the shards that its index names.

    Attributes:
        bytes_read: What has been read of the tensors so far.

    Raises:
        SpecError: There is no safetensors file, or a file is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.bytes_read = folder, 0
        self._lock = threading.Lock()
        if (folder / SINGLE).is_file():
            paths = {folder / SINGLE: None}
        elif (folder / INDEX).is_file():
            paths = {}
            for name, file in read_json(folder / INDEX)["weight_map"].items():
                paths.setdefault(folder / str(file), set()).add(name)
        else:
            raise SpecError(
                f"stream=True reads safetensors files, and {folder} has none; save the model with "
                f"save_pretrained(), or load it without stream."
            )
        self._where: dict[str, tuple[Path, Entry]] = {}
        self._stamps: dict[Path, tuple[int, int]] = {}
        for path, names in paths.items():
            self._stamps[path] = _stamp(path)
            for name, entry in safetensors_entries(path).items():
                if names is None or name in names:
                    self._where[name] = (path, entry)

    @property
    def names(self) -> list[str]:
        """Every tensor."""
        return list(self._where)

    @property
    def stamp(self) -> tuple[Any, ...]:
        """Sizes and times of the files, which change when somebody writes to them."""
        return tuple((path.name, *_stamp(path)) for path in sorted(self._stamps))

    @property
    def bytes(self) -> int:
        """What all tensors take on disk."""
        return sum(entry.end - entry.start for _, entry in self._where.values())

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape."""
        return self._where[name][1].shape

    def dtype(self, name: str) -> "torch.dtype":
        """A tensor's type on disk.

        Raises:
            SpecError: It is none that models compute in.
        """
        import torch

        told = self._where[name][1].dtype
        if told not in _DTYPES:
            raise SpecError(
                f"{self.folder} holds {name} as {told}; stream=True reads float32, bfloat16, "
                f"float16 and float64: load the model without stream, or save it in one of them."
            )
        return getattr(torch, _DTYPES[told])

    def fill(self, name: str, out: "Tensor", first: int = 0) -> None:
        """Read as many elements as ``out`` has, in its own type, from the ``first`` on.

        Args:
            name: The tensor.
            out: Is written; contiguous, on the CPU.
            first: Index of an element in the flattened tensor.

        Raises:
            SpecError: The file has changed since it was opened.
        """
        import torch

        path, entry = self._where[name]
        stored, flat = self.dtype(name), out.view(-1)
        with path.open("rb", buffering=0) as file:
            if _stamp(path) != self._stamps[path]:
                raise SpecError(f"{path} has changed since the model was loaded; load it again.")
            file.seek(entry.start + first * stored.itemsize)
            if stored == out.dtype:
                self._into(file, flat.view(torch.uint8), path)
                return
            most = PIECE // stored.itemsize
            piece = torch.empty(min(most, len(flat)), dtype=stored)
            for begin in range(0, len(flat), most):
                part = piece[: len(flat) - begin]
                self._into(file, part.view(torch.uint8), path)
                flat[begin : begin + len(part)] = part  # as loading it whole would round it

    def _into(self, file: Any, raw: "Tensor", path: Path) -> None:
        """Fill bytes from where the file stands."""
        room, done = raw.numpy().data, 0
        while done < len(room):  # one call may return less than was asked for
            count = file.readinto(room[done : done + 2**28])
            if not count:
                raise SpecError(f"{path} ended while it was read; fetch it again.")
            done += count
        with self._lock:
            self.bytes_read += done

    def gather(self, name: str, ids: "Tensor", dtype: "torch.dtype") -> "Tensor":
        """Rows of a matrix by their numbers ``[...]``, each read once: ``[..., column]``."""
        import torch

        wanted, back = ids.cpu().unique(return_inverse=True)
        if len(wanted) and not 0 <= int(wanted[0]) <= int(wanted[-1]) < self.shape(name)[0]:
            raise IndexError(f"{name} has rows 0 to {self.shape(name)[0] - 1}.")
        width = prod(self.shape(name)[1:])
        out = torch.empty(len(wanted), *self.shape(name)[1:], dtype=dtype)
        for begin, end in _runs(wanted.tolist()):
            self.fill(name, out[begin:end], int(wanted[begin]) * width)
        return out[back]

    def pieces(self, name: str, dtype: "torch.dtype") -> Iterator["Tensor"]:
        """A whole tensor, flattened, a few MiB at a time."""
        import torch

        count, most = prod(self.shape(name)), PIECE // dtype.itemsize
        for begin in range(0, count, most):
            out = torch.empty(min(most, count - begin), dtype=dtype)
            self.fill(name, out, begin)
            yield out


def private_memory(size: int) -> "Tensor":
    """Bytes that go back to the system as soon as nothing holds them.

    What an allocator gets back it may keep, in pieces that the next block does not fit into.
    """
    import mmap

    import torch

    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return torch.empty(size, dtype=torch.uint8)
    kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return torch.frombuffer(mmap.mmap(-1, size, flags=kind), dtype=torch.uint8)


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Where neighbouring numbers stand in a sorted list: ``(begin, end)`` of each run."""
    runs: list[tuple[int, int]] = []
    for at, number in enumerate(numbers):
        if runs and number == numbers[at - 1] + 1:
            runs[-1] = (runs[-1][0], at + 1)
        else:
            runs.append((at, at + 1))
    return runs
