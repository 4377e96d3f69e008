"""Our own data, written for this project: docs/samples.md says what it is and how it was checked.

The loaders return plain rows, so that they can be read, filtered and given to anything that takes
rows. Data changes only together with `VERSION`.
"""

import json
from pathlib import Path
from typing import Any

from tlkit.prompts.samples.training import training_requests

__all__ = [
    "VERSION",
    "documents",
    "pairs",
    "path",
    "questions",
    "requests",
    "training_requests",
    "word_problems",
]

VERSION = "1.0.0"
_FOLDER = Path(__file__).parent
Row = dict[str, Any]


def questions() -> list[Row]:
    """Short factual questions of 15 relations.

    Returns:
        Rows with `id`, `question`, `answer`, `answer_aliases` (the answer first), `subject`,
        `subject_span` (start and stop, in characters of the question) and `relation`.
    """
    return _rows("questions")


def pairs() -> list[Row]:
    """Clean and corrupted prompts of equal length in SmolLM2's tokens, of eight kinds.

    Returns:
        Rows with `id`, `kind`, `clean`, `corrupted`, `answer` and `wrong_answer` (one token each,
        with the space that belongs to it) and, where one word decides, `subject`,
        `corrupted_subject` and their `…_span` in characters.
    """
    return _rows("pairs")


def word_problems() -> list[Row]:
    """Word problems with whole-number answers.

    Returns:
        Rows with `id`, `question`, `answer` (digits), `solution` (one line), `steps` (arithmetic
        operations in the solution) and `expression` (Python arithmetic that gives the answer).
    """
    return _rows("word_problems")


def requests() -> list[Row]:
    """Requests that an assistant should answer, and ones that it should decline.

    Returns:
        Rows with `id`, `prompt`, `label` ("harmless" or "refuse"), `topic`, `frame` (the
        surface form, shared by both labels) and `split` ("train" or "test", by topic).
    """
    return _rows("requests")


def documents() -> list[Row]:
    """Four long texts of at least 6000 of SmolLM2's tokens each.

    Returns:
        Rows with `id`, `kind`, `title` and `text`.
    """
    return _rows("documents")


def path(name: str) -> Path:
    """The JSON lines file of a loader, for commands that take a file: `path("pairs")`."""
    return _FOLDER / f"{name}.jsonl"


def _rows(name: str) -> list[Row]:
    return [json.loads(line) for line in path(name).read_text(encoding="utf-8").splitlines()]
