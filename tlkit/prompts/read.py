"""Read files of JSON lines; whatever is wrong with one is told with its line number."""

import json
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from tlkit.errors import SpecError
from tlkit.prompts.spans import short

LONGEST_LINE = 64 * 2**20
"""Bytes; a longer line is refused rather than read into memory."""

Kinds = Mapping[str, type | tuple[type, ...]]

_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
_WORDS |= {list: "a list", dict: "an object", type(None): "null"}


def parse_fields(given: str | None) -> dict[str, str]:
    """Read ``name=column,name=column`` into a dict of name to column.

    Args:
        given: What the user wrote, or None for nothing.

    Raises:
        SpecError: A part has no ``=``, no name or no column, or names something twice.

    Example:
        >>> parse_fields("corrupted=corrupted_abc, wrong_answer=corrupted_answer")
        {'corrupted': 'corrupted_abc', 'wrong_answer': 'corrupted_answer'}
    """
    fields: dict[str, str] = {}
    for part in given.split(",") if given and given.strip() else ():
        name, equals, column = (piece.strip() for piece in part.partition("="))
        if not (name and equals and column):
            raise SpecError(f"--fields holds {part!r}; write name=column,name=column.")
        if name in fields:
            raise SpecError(f"--fields names {name!r} twice.")
        fields[name] = column
    return fields


def read_jsonl(
    path: str | PathLike[str],
    fields: Mapping[str, str] | None = None,
    required: Sequence[str] | Kinds = (),
    optional: Sequence[str] | Kinds = (),
    n: int | None = None,
) -> list[dict[str, Any]]:
    """Read the rows of a file of JSON lines.

    Args:
        path: The file: UTF-8, one JSON object a line; blank lines are skipped.
        fields: Name to column, where a column is not called by the name.
        required: Names that each row must have, as text; or a mapping of names to types.
        optional: Names that a row may have; null counts as missing.
        n: Read only the first `n` rows.

    Returns:
        One dict per row with every required and every optional name; None for what is missing.

    Raises:
        SpecError: The file cannot be read, or a row is not what is asked for.
    """
    must, may = _kinds(required), _kinds(optional)
    fields = dict(fields or {})
    unknown = [name for name in fields if name not in must and name not in may]
    if unknown:
        raise SpecError(
            f"--fields names {unknown[0]!r}; the names here are {', '.join([*must, *may])}."
        )
    if n is not None and n < 1:
        raise SpecError(f"n is {n}; ask for at least one row.")
    rows: list[dict[str, Any]] = []
    for line, row in _objects(Path(path)):
        rows.append(_picked(row, fields, must, may, f"{path}, line {line}"))
        if len(rows) == n:
            break
    if not rows:
        raise SpecError(f"{path} holds no rows; it must hold one JSON object a line.")
    return rows


def _kinds(names: Sequence[str] | Kinds) -> dict[str, tuple[type, ...]]:
    """Return the types that each name may have; text where nothing is said."""
    given = names if isinstance(names, Mapping) else dict.fromkeys(names, str)
    return {name: kind if isinstance(kind, tuple) else (kind,) for name, kind in given.items()}


def _lines(file: BinaryIO, path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with their numbers from 1."""
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise SpecError(f"{path}, line {number} is longer than {LONGEST_LINE >> 20} MiB.")
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise SpecError(
                f"{path}, line {number} is not UTF-8 text (byte {error.start + 1} of the line); "
                "the file must hold JSON lines in UTF-8."
            ) from None
        if "\0" in text:
            raise SpecError(f"{path}, line {number} holds binary data; it must be JSON lines.")
        if text.strip():
            yield number, text


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the JSON objects of a file, with their line numbers."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise SpecError(f"There is no file {path}.") from None
    except IsADirectoryError:
        raise SpecError(f"{path} is a folder; give a file of JSON lines.") from None
    except (OSError, ValueError) as error:
        raise SpecError(f"{path} cannot be read: {error}.") from None
    with file:
        for number, text in _lines(file, path):
            try:
                row = json.loads(text)
            except json.JSONDecodeError as error:
                raise SpecError(
                    f"{path}, line {number} is not JSON ({error.msg}, column {error.colno}); "
                    "the file must hold one JSON object a line."
                ) from None
            except (ValueError, RecursionError):
                raise SpecError(
                    f"{path}, line {number} holds a number or a nesting that is too large."
                ) from None
            try:
                json.dumps(row, ensure_ascii=False).encode()
            except UnicodeEncodeError:
                raise SpecError(
                    f"{path}, line {number} holds half of a character (a lone surrogate)."
                ) from None
            if not isinstance(row, dict):
                raise SpecError(
                    f"{path}, line {number} is {_WORDS.get(type(row), 'no object')}; the file must "
                    "hold one JSON object a line."
                )
            yield number, row


def _picked(
    row: dict[str, Any],
    fields: Mapping[str, str],
    must: Mapping[str, tuple[type, ...]],
    may: Mapping[str, tuple[type, ...]],
    where: str,
) -> dict[str, Any]:
    """Return the values by name, each of a type that it may have."""
    picked: dict[str, Any] = {}
    for name, kinds in {**must, **may}.items():
        column = fields.get(name, name)
        value = row.get(column)
        if value is None and (name in must or (name in fields and column not in row)):
            problem = "is null" if column in row else "is missing"
            raise SpecError(
                f"{where}: column {column!r} {problem}; the columns are "
                f"{', '.join(map(str, row)) or 'none'} (--fields {name}=COLUMN names another)."
            )
        if value is not None and type(value) not in kinds:
            wanted = " or ".join(_WORDS[kind] for kind in kinds)
            raise SpecError(
                f"{where}: column {column!r} is {short(repr(value))[1:-1]}; it must be {wanted}."
            )
        if name in must and value == "":
            raise SpecError(f"{where}: column {column!r} is empty.")
        picked[name] = value
    return picked
