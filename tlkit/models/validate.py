"""Check a model's files before anything heavy: that they are there, whole, and what they say."""

import json
import struct
import zipfile
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from tlkit.errors import SpecError

WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
)
_ITEM_BITS = {
    "F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16,
    "I16": 16, "U16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I8": 8, "U8": 8, "BOOL": 8,
    "C64": 64, "F4": 4,
}  # fmt: skip
_LONGEST_HEADER = 100_000_000  # bytes, the limit of the safetensors format
_MOST_AXES = 8  # of a weight: the product of a long list of sizes would take for ever


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object, or say which file is not one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise SpecError(f"{path} is not readable as JSON; fetch it again.") from None
    if not isinstance(value, dict):
        raise SpecError(f"{path} should hold a JSON object and holds something else.")
    return value


@dataclass(frozen=True)
class Entry:
    """Where a tensor lies in a safetensors file.

    Attributes:
        dtype: The format's name of its type, such as "BF16".
        shape: Its shape.
        start: Its first byte, counted from the beginning of the file.
        end: The byte after its last.
    """

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def read_safetensors(path: Path) -> dict[str, tuple[int, ...]]:
    """Check a safetensors file and give the shape of each tensor, reading no weights.

    Args:
        path: The file.

    Returns:
        Shape by tensor name.

    Raises:
        SpecError: The header is damaged, or the file's size is not the one that it asks for.
    """
    return {name: entry.shape for name, entry in safetensors_entries(path).items()}


def safetensors_entries(path: Path) -> dict[str, Entry]:
    """Check a safetensors file and tell where each of its tensors lies, reading no weights.

    Raises:
        SpecError: The header is damaged, or the file's size is not the one that it asks for.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 2 <= length <= min(size - 8, _LONGEST_HEADER):
            raise SpecError(f"{path} is not a whole safetensors file; fetch it again.")
        raw = file.read(length)
    try:
        header = json.loads(raw)
        header.pop("__metadata__", None)
        entries = {name: _entry(told, 8 + length) for name, told in header.items()}
    except (ValueError, AttributeError, KeyError, TypeError, IndexError, ArithmeticError,
            RecursionError):  # fmt: skip
        raise SpecError(f"{path} has a damaged safetensors header; fetch it again.") from None
    whole = max((entry.end for entry in entries.values()), default=8 + length)
    if size != whole:
        short = "is cut short" if size < whole else "is longer than its header says"
        raise SpecError(f"{path} {short}: {size:,} bytes instead of {whole:,}; fetch it again.")
    return entries


def _entry(told: dict[str, Any], data: int) -> Entry:
    start, end = told["data_offsets"]
    shape = tuple(told["shape"])
    bits = _ITEM_BITS.get(told["dtype"])
    if len(shape) > _MOST_AXES or any(type(n) is not int or n < 0 for n in (*shape, start, end)):
        raise ValueError
    if end < start or (bits is not None and end - start != prod(shape) * bits // 8):
        raise ValueError
    return Entry(str(told["dtype"]), shape, data + start, data + end)


def _check_bin(path: Path) -> None:
    """A `.bin` file is a zip archive, whose table stands at its end; old ones are refused."""
    if not zipfile.is_zipfile(path):
        raise SpecError(
            f"{path} is cut short, damaged, or in PyTorch's old format; fetch it again, or convert "
            f"it to safetensors."
        )


def _check_shards(index: Path) -> None:
    """Check that every file that an index names is there, whole, and holds what it should."""
    where = read_json(index).get("weight_map")
    if not isinstance(where, dict) or not where:
        raise SpecError(f"{index} has no weight_map; fetch it again.")
    folder = index.parent
    for name in sorted({str(name) for name in where.values()}):
        if Path(name).name != name or "\\" in name:
            raise SpecError(f"{index} names {name!r}, which is no file of its own folder.")
        shard = folder / name
        if not shard.is_file():
            raise SpecError(f"{index.name} names {name}, which is not in {folder}; fetch it again.")
        if shard.suffix != ".safetensors":
            _check_bin(shard)
            continue
        missing = {key for key, file in where.items() if file == name} - set(
            read_safetensors(shard)
        )
        if missing:
            raise SpecError(
                f"{shard} lacks {min(missing)}, which {index.name} says it holds; fetch it again."
            )


def check_weights(folder: Path) -> None:
    """Check the weight files of a model folder, in the order in which they would be loaded.

    Raises:
        SpecError: There are none, one is missing, or one is damaged.
    """
    name = next((name for name in WEIGHTS if (folder / name).is_file()), None)
    if name is None:
        others = sorted(path.name for path in folder.iterdir() if path.suffix == ".gguf")
        hint = f"; it holds {others[0]}: give that file instead" if others else ""
        raise SpecError(f"{folder} has a config.json but no weights (model.safetensors){hint}.")
    path = folder / name
    if name.endswith(".index.json"):
        _check_shards(path)
    elif path.suffix == ".safetensors":
        read_safetensors(path)
    else:
        _check_bin(path)


def check_folder(folder: Path) -> dict[str, Any]:
    """Check that a folder holds a model, and give its config.json.

    Raises:
        SpecError: Not a model, or an adapter for one.
    """
    if (folder / "config.json").is_file():
        return read_json(folder / "config.json")
    if (folder / "adapter_config.json").is_file():
        raise SpecError(
            f"{folder} is an adapter, not a model: load its base model with "
            f"adapter={str(folder)!r}."
        )
    others = sorted(path.name for path in folder.iterdir() if path.suffix == ".gguf")
    hint = f"; it holds {others[0]}: give that file instead" if others else ""
    raise SpecError(f"{folder} is not a model: it has no config.json{hint}.")
