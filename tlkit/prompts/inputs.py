"""What users hand to Prompts, checked before any tokenizer or model is asked."""

from collections.abc import Iterable
from typing import Any

from tlkit.errors import SpecError


def texts(given: Any, kind: str, count: int | None = None, *, blank: bool = False) -> list[str]:
    """Return a list of texts, none of them empty.

    Args:
        given: The texts.
        kind: What messages call this argument.
        count: How many there must be.
        blank: Whether a text may be white space alone.

    Raises:
        SpecError: It is no list of texts, a text is blank, or their number is wrong.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise SpecError(f"{kind} is {given!r}; give a list of texts, one per prompt.")
    entries = list(given)
    if count is not None and len(entries) != count:
        raise SpecError(f"{kind} has {len(entries)} entries for {count} prompts; give one each.")
    if not entries:
        raise SpecError(f"{kind} is empty; give at least one prompt.")
    for index, entry in enumerate(entries):
        if not isinstance(entry, str):
            raise SpecError(f"{kind}[{index}] is {entry!r}, which is not a text.")
        if not (entry if blank else entry.strip()):
            raise SpecError(f"{kind}[{index}] is empty; every prompt and every answer needs text.")
        if any("\ud800" <= letter <= "\udfff" for letter in entry):
            raise SpecError(
                f"{kind}[{index}] holds half of a surrogate pair, which is no character; "
                "repair the text's encoding."
            )
    return [str(entry) for entry in entries]


def _plain(value: Any) -> Any:
    """Turn tensors and arrays into lists and numbers."""
    return value.tolist() if hasattr(value, "tolist") else value


def _is_id(value: Any) -> bool:
    """Say whether this is a whole number from 0."""
    return hasattr(value, "__index__") and not isinstance(value, bool) and value >= 0


def token_rows(
    given: Any, kind: str, count: int | None = None, *, single: bool = False
) -> tuple[tuple[int, ...], ...]:
    """Return token ids as a tuple of rows.

    Args:
        given: A 2-D tensor or array, or one list of ids per example.
        kind: What messages call this argument.
        count: How many rows there must be.
        single: Whether an entry may be one id instead of a list of ids.

    Raises:
        SpecError: It is no such thing, a row is empty, or the number of rows is wrong.
    """
    given = _plain(given)
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise SpecError(f"{kind} is {given!r}; give one list of token ids per prompt.")
    rows = [_plain(row) for row in given]
    if single:
        rows = [[row] if _is_id(row) else row for row in rows]
    if count is not None and len(rows) != count:
        raise SpecError(f"{kind} has {len(rows)} entries for {count} prompts; give one each.")
    if not rows:
        raise SpecError(f"{kind} is empty; give at least one prompt.")
    for index, row in enumerate(rows):
        if isinstance(row, str) or not isinstance(row, Iterable):
            raise SpecError(f"{kind}[{index}] is {row!r}; give a list of token ids.")
        rows[index] = [_plain(token) for token in row]
        if not rows[index]:
            raise SpecError(f"{kind}[{index}] is empty; every row needs at least one token id.")
        wrong = [token for token in rows[index] if not _is_id(token)]
        if wrong:
            raise SpecError(f"{kind}[{index}] holds {wrong[0]!r}, which is not a token id.")
    return tuple(tuple(int(token) for token in row) for row in rows)


def check_vocabulary(rows: Iterable[Iterable[int]], kind: str, size: int) -> None:
    """Refuse token ids from `size` on, which a model cannot have.

    Raises:
        SpecError: There is such an id.
    """
    for index, row in enumerate(rows):
        highest = max(row)
        if highest >= size:
            raise SpecError(
                f"{kind}[{index}] holds token id {highest}; this model has 0 to {size - 1}."
            )
