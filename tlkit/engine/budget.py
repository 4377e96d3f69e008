"""Sizes of memory in words."""

import re
from typing import Any

import torch

from tlkit.errors import SpecError


def bytes_of(size: int | str | None) -> int | None:
    """A number of bytes from a number, or from text such as "4GiB" or "512MB".

    Raises:
        SpecError: It is neither.
    """
    if size is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)[bB]?\s*", str(size))
    if not found:
        raise SpecError(f"A budget is a number of bytes or text such as '4GiB', not {size!r}.")
    power = " KMGT".index(found[2].upper() or " ")
    whole = int(float(found[1]) * (1024 if found[3] else 1000) ** power)
    if whole < 1:
        raise SpecError(f"A budget of {size!r} leaves no byte to work with.")
    return whole


def enough(asked: int | str | None, work: Any) -> int | None:
    """A budget in bytes, if a single prompt can be run in it.

    Args:
        asked: As the user wrote it.
        work: The request.

    Raises:
        SpecError: It cannot.
    """
    from tlkit.engine.packed_values import run_bytes_per_token

    most = bytes_of(asked)
    longest = max(len(ids) for run in work.sequences.runs.values() for ids in run)
    least = run_bytes_per_token(work.parts) * longest
    if most is not None and most < least:
        raise SpecError(
            f"budget={asked!r} is too small: one prompt of {longest} tokens takes "
            f"{least / 1e6:,.2f} MB of activations; give more, or shorter prompts."
        )
    return most


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory could not be had, on whatever device."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    # PyTorch's own allocator on CPUs raises a plain RuntimeError.
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)
