"""Pairs of prompts from a file."""

from collections.abc import Mapping
from os import PathLike
from typing import Any

from tlkit.errors import SpecError
from tlkit.prompts.prompts import Prompts
from tlkit.prompts.read import read_jsonl

REQUIRED = ("clean", "corrupted", "answer", "wrong_answer")
OPTIONAL = ("subject", "corrupted_subject")


def _once(rows: list[dict[str, Any]], name: str, text: str) -> list[str | None]:
    """Return each row's subject if its text holds it exactly once, else None."""
    found: list[str | None] = []
    for row in rows:
        part, whole = row[name], row[text]
        at = whole.find(part) if part else -1
        found.append(part if at >= 0 and whole.find(part, at + 1) < 0 else None)
    return found


def pairs_from_jsonl(
    model: Any,
    path: str | PathLike[str],
    fields: Mapping[str, str] | None = None,
    n: int | None = None,
    chat: bool = False,
) -> Prompts:
    """Read pairs of prompts: ``{"clean", "corrupted", "answer", "wrong_answer"}`` a line.

    A row may have a ``subject`` and a ``corrupted_subject``: where its text holds it exactly
    once, it becomes the span ``"subject"``.

    Args:
        model: A model with a tokenizer, or a tokenizer.
        path: The file of JSON lines.
        fields: Name to column, where the file has other column names.
        n: Read only the first `n` rows.
        chat: Put each text into the model's chat template.

    Raises:
        SpecError: The file or one of its rows cannot be used.
    """
    rows = read_jsonl(path, fields, REQUIRED, OPTIONAL, n)
    spans: dict[str, dict[str, list[str | None]] | None] = {"clean": None, "corrupted": None}
    for side, name in (("clean", "subject"), ("corrupted", "corrupted_subject")):
        subjects = _once(rows, name, side)
        if any(subjects):
            spans[side] = {"subject": subjects}
    if spans["clean"] is None:
        spans["corrupted"] = None
    clean, corrupted, answers, wrong = ([row[name] for row in rows] for name in REQUIRED)
    try:
        return Prompts.from_pairs(
            model, clean, corrupted, answers, wrong, spans["clean"], spans["corrupted"], chat
        )
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None
