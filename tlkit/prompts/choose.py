"""Which examples an index means."""

import operator
from collections.abc import Iterable
from typing import Any

from tlkit.errors import SpecError


def chosen_examples(which: Any, count: int) -> list[int]:
    """Return the numbers of the examples that an index means.

    Args:
        which: A number (negative ones count from the end), a slice, or a list of numbers or of
            `count` booleans.
        count: The number of examples.

    Raises:
        IndexError: There is no example with such a number.
        SpecError: The index is of another kind, or it leaves no example.
    """
    if isinstance(which, slice):
        chosen = list(range(count))[which]
    else:
        which = which.tolist() if hasattr(which, "tolist") else which
        listed = isinstance(which, Iterable) and not isinstance(which, str)
        chosen = _numbers(list(which) if listed else [which], which, count)
    if not chosen:
        raise SpecError(f"The index {which!r} leaves none of the {count} prompts.")
    return chosen


def _numbers(entries: list[Any], which: Any, count: int) -> list[int]:
    """Turn numbers or booleans into numbers from 0."""
    if entries and all(isinstance(entry, bool) for entry in entries):
        if len(entries) != count:
            raise SpecError(f"The index has {len(entries)} booleans for {count} prompts.")
        return [index for index, wanted in enumerate(entries) if wanted]
    chosen = []
    for entry in entries:
        if isinstance(entry, bool) or not hasattr(entry, "__index__"):
            raise SpecError(
                f"Prompts cannot be indexed with {which!r}; use a number, a slice, or a list of "
                "numbers or booleans."
            )
        number = operator.index(entry)
        if not -count <= number < count:
            raise IndexError(f"There is no example {number}; there are {count}.")
        chosen.append(number % count)
    return chosen
