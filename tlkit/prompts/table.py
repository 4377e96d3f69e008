"""Prompts for reading: pairs as a table, and names for the positions of several prompts."""

import unicodedata
from collections.abc import Mapping, Sequence

from tlkit.prompts.spans import Span

GAP = "·"


def cells(text: str) -> int:
    """Count the columns that a text takes in a terminal; wide characters take two.

    Example:
        >>> cells("東a")
        3
    """
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    flat = sum(unicodedata.combining(letter) > 0 or letter in "\u200d\ufe0f" for letter in text)
    return len(text) + wide - flat


def two_rows(names: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """Lay out rows of equally many texts in columns, folded at `width`.

    Args:
        names: What each row is called.
        rows: The texts of each row.
        width: Columns of the terminal; a table that needs more goes on below.
    """
    head = max(len(name) for name in names)
    wide = [max(cells(row[i]) for row in rows) for i in range(len(rows[0]))]
    folds: list[list[int]] = [[]]
    used = head
    for column, size in enumerate(wide):
        if folds[-1] and used + 2 + size > width:
            folds.append([])
            used = head
        folds[-1].append(column)
        used += 2 + size
    blocks = []
    for fold in folds:
        lines = []
        for name, row in zip(names, rows, strict=True):
            padded = [row[i] + " " * (wide[i] - cells(row[i])) for i in fold]
            lines.append("  ".join([name.ljust(head), *padded]).rstrip())
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def shared_labels(
    tokens: Sequence[Sequence[str]], spans: Mapping[str, Sequence[Span | None]]
) -> tuple[str, ...]:
    """Name each position by what it is in every prompt: its token, its span, or its number.

    Example:
        >>> shared_labels([["A", "x", "c"], ["A", "y", "d"]], {"who": [Span(1, 2), Span(1, 2)]})
        ('A', '<who>', '2')
    """
    names = []
    for position in range(max(map(len, tokens))):
        seen = {row[position] if position < len(row) else None for row in tokens}
        if len(seen) == 1 and None not in seen:
            names += seen
            continue
        inside = [
            name
            for name, entries in spans.items()
            if all(span is not None and span.start <= position < span.stop for span in entries)
        ]
        names.append(f"<{inside[0]}>" if inside else str(position))
    return tuple(names)
