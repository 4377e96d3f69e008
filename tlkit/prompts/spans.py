"""Spans: stretches of a text, by character, and the tokens that they touch."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tlkit.errors import SpecError


class Span(NamedTuple):
    """A run of token positions, from `start` up to but not including `stop`."""

    start: int
    stop: int


Asked = tuple[int, int] | str | None
"""A span as a user gives it: character offsets, a part of the text, or None for no span."""


def is_pair(asked: Any) -> bool:
    """Say whether this is two whole numbers."""
    if isinstance(asked, str) or not isinstance(asked, Sequence) or len(asked) != 2:
        return False
    return all(hasattr(edge, "__index__") and not isinstance(edge, bool) for edge in asked)


def _find(part: str, text: str, where: str) -> tuple[int, int]:
    """Return where `part` stands in `text`, which must hold it exactly once."""
    if not part:
        raise SpecError(f"{where} is an empty text; give the words that it covers, or None.")
    first = text.find(part)
    if first < 0:
        raise SpecError(
            f"{where}: {part!r} does not occur in the text ({len(text)} characters: {short(text)})."
        )
    if text.find(part, first + 1) >= 0:
        raise SpecError(
            f"{where}: {part!r} occurs more than once in the text ({len(text)} characters: "
            f"{short(text)}); give (start, stop) character offsets instead."
        )
    return first, first + len(part)


def short(text: str, limit: int = 60) -> str:
    """Quote a text for a message, cut in the middle where it is long."""
    return repr(text if len(text) <= limit else f"{text[: limit // 2]}…{text[-limit // 2 :]}")


def characters(asked: Any, text: str, where: str) -> tuple[int, int] | None:
    """Return the character offsets that a user's span means.

    Args:
        asked: Character offsets (start, stop), a part of the text that occurs exactly once, or
            None.
        text: The user's text.
        where: How messages name the span, such as ``Example 3, span 'subject'``.

    Raises:
        SpecError: The span is empty, outside the text, not found or found more than once.
    """
    if asked is None:
        return None
    if isinstance(asked, str):
        return _find(asked, text, where)
    if not is_pair(asked):
        raise SpecError(
            f"{where} is {asked!r}; give (start, stop) character offsets, a part of the text, "
            "or None."
        )
    start, stop = (edge.__index__() for edge in asked)
    if not 0 <= start <= len(text) or not 0 <= stop <= len(text):
        raise SpecError(
            f"{where}: characters {start} to {stop} lie outside the text, "
            f"which has {len(text)} characters."
        )
    if start >= stop:
        raise SpecError(
            f"{where}: characters {start} to {stop} of a text with {len(text)} characters "
            "are empty; stop must be larger than start."
        )
    return start, stop


def touched(offsets: Sequence[tuple[int, int]], start: int, stop: int) -> Span | None:
    """Return the span of all tokens that share a character with ``[start, stop)``.

    Args:
        offsets: The characters of each token. A character that is spread over several tokens
            belongs to each of them; a token without characters, such as BOS, is never touched.
        start: First character.
        stop: The character after the last.

    Example:
        >>> touched([(0, 0), (0, 3), (3, 7), (6, 7)], 6, 7)
        Span(start=2, stop=4)
    """
    hit = [i for i, (left, right) in enumerate(offsets) if max(left, start) < min(right, stop)]
    return Span(hit[0], hit[-1] + 1) if hit else None


def checked_names(spans: Mapping[str, Sequence[Any]] | None, count: int, kind: str) -> dict:
    """Return the spans as lists, one entry per example.

    Args:
        spans: Name to one entry per example.
        count: The number of examples.
        kind: What messages call this argument.

    Raises:
        SpecError: A name cannot be used, or a list has another length than there are examples.
    """
    if spans is None:
        return {}
    if not isinstance(spans, Mapping):
        raise SpecError(f"{kind} is {type(spans).__name__}; give a dict of name to list.")
    for name, entries in spans.items():
        if not isinstance(name, str) or not name or name == "end":
            raise SpecError(f"A span cannot be called {name!r}; 'end' is the last position.")
        if isinstance(entries, str) or not isinstance(entries, Sequence):
            raise SpecError(f"{kind}[{name!r}] is {entries!r}; give a list, one entry per prompt.")
        if len(entries) != count:
            raise SpecError(
                f"{kind}[{name!r}] has {len(entries)} entries for {count} prompts; "
                "give one per prompt, None where a prompt has no such span."
            )
    return {name: list(entries) for name, entries in spans.items()}
