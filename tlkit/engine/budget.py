"""Sizes of memory in words."""

import re

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
