"""The fields of Prompts, made from pairs of texts, from texts, or from token ids."""

from collections.abc import Mapping, Sequence
from typing import Any

from tlkit.errors import SpecError
from tlkit.models.info import hash_tokenizer
from tlkit.models.text import token_labels
from tlkit.prompts import inputs, parts
from tlkit.prompts.spans import Span, checked_names, is_pair
from tlkit.prompts.tokens import tokenizer_of


def pairs(
    tokenizer: Any,
    sides: tuple[Any, Any],
    answers: tuple[Any, Any],
    spans: tuple[Mapping | None, Mapping | None],
    *,
    chat: bool,
) -> dict[str, Any]:
    """Make the fields from texts: (clean, corrupted), (right, wrong), spans of (clean, corrupted).

    Raises:
        SpecError: Something in the request cannot be used.
    """
    clean = inputs.texts(sides[0], "clean")
    corrupted = inputs.texts(sides[1], "corrupted", len(clean))
    right, wrong = _answer_texts(answers, len(clean))
    both = [parts.prompts_of(tokenizer, texts, chat=chat) for texts in (clean, corrupted)]
    clean_ids, corrupted_ids = (tuple(prompt.ids for prompt in side) for side in both)
    parts.check_pairs_differ(clean_ids, corrupted_ids)
    given = parts.spans_of(both[1], spans[1], "corrupted_spans")
    return {
        **_answers(tokenizer, both, right, wrong),
        **_sides(tokenizer, clean_ids, corrupted_ids, parts.spans_of(both[0], spans[0]), given),
        "clean_texts": tuple(clean),
        "corrupted_texts": tuple(corrupted),
        "chat": chat,
    }


def texts(
    tokenizer: Any,
    given: Any,
    answers: tuple[Any, Any],
    spans: Mapping | None,
    *,
    chat: bool,
) -> dict[str, Any]:
    """Make the fields from texts without corrupted twins, and answers (right, wrong).

    Raises:
        SpecError: Something in the request cannot be used.
    """
    clean = inputs.texts(given, "texts")
    right, wrong = _answer_texts(answers, len(clean))
    prompts = parts.prompts_of(tokenizer, clean, chat=chat)
    ids = tuple(prompt.ids for prompt in prompts)
    return {
        **_answers(tokenizer, [prompts], right, wrong),
        **_sides(tokenizer, ids, None, parts.spans_of(prompts, spans), {}),
        "clean_texts": tuple(clean),
        "chat": chat,
    }


def tokens(
    model: Any,
    sides: tuple[Any, Any],
    answers: tuple[Any, Any],
    spans: tuple[Mapping | None, Mapping | None],
) -> dict[str, Any]:
    """Make the fields from token ids; spans are token positions; without a model, no labels.

    Raises:
        SpecError: Something in the request cannot be used.
    """
    clean = inputs.token_rows(sides[0], "clean")
    kinds = {"corrupted": sides[1], "answers": answers[0], "wrong_answers": answers[1]}
    rows = {
        kind: inputs.token_rows(given, kind, len(clean), single=kind != "corrupted")
        for kind, given in kinds.items()
        if given is not None
    }
    parts.check_answers_differ(rows.get("answers"), rows.get("wrong_answers"))
    corrupted = rows.get("corrupted")
    if corrupted is None and spans[1] is not None:
        raise SpecError("corrupted_spans needs corrupted prompts; give them too.")
    tokenizer = None if model is None else tokenizer_of(model)
    if tokenizer is not None:
        size = max(len(tokenizer), getattr(getattr(model, "cfg", None), "d_vocab", 0))
        for kind, ids in {"clean": clean, **rows}.items():
            inputs.check_vocabulary(ids, kind, size)
    found = _positions(clean, spans[0], "spans")
    given = _positions(corrupted, spans[1], "corrupted_spans") if corrupted else {}
    return {**rows, **_sides(tokenizer, clean, corrupted, found, given)}


def _answer_texts(answers: tuple[Any, Any], count: int) -> list[list[str] | None]:
    """Check the right and the wrong answers, before anything is tokenised."""
    kinds = zip(("answers", "wrong_answers"), answers, strict=True)
    return [
        None if given is None else inputs.texts(given, kind, count, blank=True)
        for kind, given in kinds
    ]


def _answers(
    tokenizer: Any,
    sides: Sequence[Sequence[parts.Tokenized]],
    right: list[str] | None,
    wrong: list[str] | None,
) -> dict[str, parts.Rows | None]:
    """Tokenise the answers as they continue the prompts."""
    rows = {
        "answers": parts.answers_of(tokenizer, sides, right, "answers"),
        "wrong_answers": parts.answers_of(tokenizer, sides, wrong, "wrong_answers"),
    }
    parts.check_answers_differ(rows["answers"], rows["wrong_answers"])
    return rows


def _sides(
    tokenizer: Any,
    clean: parts.Rows,
    corrupted: parts.Rows | None,
    spans: parts.Spans,
    given: parts.Spans,
) -> dict[str, Any]:
    """Make the fields that follow from the ids: labels, spans, alignment, tokenizer."""
    made: dict[str, Any] = {
        "clean": clean,
        "spans": spans,
        "clean_tokens": _labels(tokenizer, clean),
        "tokenizer_hash": hash_tokenizer(tokenizer),
    }
    if corrupted is not None:
        made["corrupted"] = corrupted
        made["corrupted_tokens"] = _labels(tokenizer, corrupted)
        made["corrupted_spans"] = parts.corrupted_spans_of(clean, corrupted, spans, given)
        made["alignment"] = parts.alignment_of(clean, corrupted, spans, made["corrupted_spans"])
    return made


def _labels(tokenizer: Any, rows: parts.Rows) -> tuple[tuple[str, ...], ...]:
    """Label each token readably, or with its id where there is no tokenizer."""
    seen = sorted({token for row in rows for token in row})
    labels = map(str, seen) if tokenizer is None else token_labels(tokenizer, seen)
    names = dict(zip(seen, labels, strict=True))
    return tuple(tuple(names[token] for token in row) for row in rows)


def _positions(rows: parts.Rows, spans: Mapping | None, kind: str) -> parts.Spans:
    """Check spans that are given as token positions."""
    found: parts.Spans = {}
    for name, entries in checked_names(spans, len(rows), kind).items():
        for index, (row, entry) in enumerate(zip(rows, entries, strict=True)):
            if entry is None:
                continue
            if not is_pair(entry) or not 0 <= entry[0] < entry[1] <= len(row):
                raise SpecError(
                    f"Example {index}, {kind}[{name!r}] is {entry!r}; give (start, stop) token "
                    f"positions with 0 <= start < stop <= {len(row)}, or None."
                )
        found[name] = tuple(entry and Span(int(entry[0]), int(entry[1])) for entry in entries)
    return found
