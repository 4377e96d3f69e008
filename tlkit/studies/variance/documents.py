"""Documents as token ids, cut to what a model can read."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tlkit.errors import SpecError
from tlkit.prompts.tokens import tokenize, tokenizer_of


class Document(NamedTuple):
    """A document, or a window of one."""

    name: str
    ids: list[int]
    whole: int
    """Tokens of the document before anything was cut off."""
    source: str
    """The document that it is of."""


def read(
    model: Any, documents: Iterable[Any], longest: int, longer: str, least: int
) -> list[Document]:
    """Tokenise documents and cut those that are too long.

    Args:
        model: A model with a tokenizer.
        documents: Texts, or rows with ``text`` and perhaps ``id``.
        longest: Most tokens that are kept of one.
        longer: What becomes of longer ones: ``"middle"`` is left out, as LongBench does, the
            ``"end"`` is, or they become several ``"windows"``.
        least: Fewest tokens of a document.

    Raises:
        SpecError: There are no documents, one is empty or too short, or two have one id.
    """
    if longer not in ("middle", "end", "windows"):
        raise SpecError(f"longer={longer!r} is not known; use 'middle', 'end' or 'windows'.")
    tokenizer, found = tokenizer_of(model), list[Document]()
    for number, row in enumerate(documents):
        name, text = _read(row, number)
        if not text.strip():
            raise SpecError(f"Document {name!r} is empty.")
        ids = list(tokenize(tokenizer, text, chat=False).ids)
        if len(ids) < least:
            raise SpecError(
                f"Document {name!r} has {len(ids)} tokens; {least} are needed, more than the "
                f"window of last queries."
            )
        found += _cut(name, ids, longest, longer, least)
    names = [document.name for document in found]
    if not names:
        raise SpecError("There are no documents; give texts, or rows with 'id' and 'text'.")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise SpecError(f"Two documents are called {twice[0]!r}; give each an id of its own.")
    return found


def _read(row: Any, number: int) -> tuple[str, str]:
    if isinstance(row, str):
        return f"document {number}", row
    if not isinstance(row, Mapping) or not isinstance(row.get("text"), str):
        raise SpecError(f"Document {number} is no text and no row with a 'text'.")
    name = row.get("id")
    return f"document {number}" if name is None else str(name), row["text"]


def _cut(name: str, ids: list[int], longest: int, longer: str, least: int) -> list[Document]:
    whole = len(ids)
    if whole <= longest:
        return [Document(name, ids, whole, name)]
    if longer == "end":
        return [Document(name, ids[:longest], whole, name)]
    if longer == "middle":
        half = longest // 2
        return [Document(name, [*ids[: longest - half], *ids[whole - half :]], whole, name)]
    pieces = [ids[start : start + longest] for start in range(0, whole, longest)]
    return [
        Document(f"{name} #{number}", piece, whole, name)
        for number, piece in enumerate(pieces, start=1)
        if len(piece) >= least
    ]


def left_out(documents: list[Document]) -> int:
    """Tokens of all documents that were not read: a middle, an end, or a short last window."""
    wholes = {one.source: one.whole for one in documents}
    return sum(wholes.values()) - sum(len(one.ids) for one in documents)


def notes(documents: list[Document]) -> str:
    """How many tokens each document had and how many were read, as JSON."""
    return json.dumps({one.name: [one.whole, len(one.ids)] for one in documents})
