"""The parts of Prompts: tokens, spans, answers and alignments, each checked."""

from collections.abc import Mapping, Sequence
from typing import Any

from tlkit.errors import SpecError
from tlkit.prompts.alignment import align, counterpart
from tlkit.prompts.spans import Span, checked_names
from tlkit.prompts.tokens import Tokenized, answer_tokens, span_tokens, tokenize

Rows = tuple[tuple[int, ...], ...]
Spans = dict[str, tuple[Span | None, ...]]


def prompts_of(tokenizer: Any, texts: Sequence[str], *, chat: bool) -> list[Tokenized]:
    """Tokenise each prompt."""
    return [tokenize(tokenizer, text, chat=chat) for text in texts]


def spans_of(prompts: Sequence[Tokenized], spans: Mapping | None, kind: str = "spans") -> Spans:
    """Find the tokens of every span of every prompt."""
    return {
        name: tuple(
            span_tokens(prompt, entry, f"Example {index}, {kind}[{name!r}]")
            for index, (prompt, entry) in enumerate(zip(prompts, entries, strict=True))
        )
        for name, entries in checked_names(spans, len(prompts), kind).items()
    }


def answers_of(
    tokenizer: Any,
    sides: Sequence[Sequence[Tokenized]],
    answers: Sequence[str] | None,
    kind: str,
) -> Rows | None:
    """Tokenise each answer as it continues its prompt.

    Args:
        tokenizer: The model's tokenizer.
        sides: The clean prompts and, for pairs, the corrupted ones.
        answers: One text per prompt, or None.
        kind: What messages call this argument.

    Raises:
        SpecError: An answer is other tokens after the clean prompt than after the corrupted
            one.
    """
    if answers is None:
        return None
    rows = []
    for index, answer in enumerate(answers):
        where = f"Example {index}, {kind}"
        found = {answer_tokens(tokenizer, side[index], answer, where) for side in sides}
        if len(found) > 1:
            raise SpecError(
                f"{where}: {answer!r} is other tokens after the clean prompt than after the "
                "corrupted one; end both prompts alike."
            )
        rows += found
    return tuple(rows)


def check_answers_differ(answers: Rows | None, wrong_answers: Rows | None) -> None:
    """Refuse an answer whose tokens are also the wrong answer's.

    Raises:
        SpecError: There is such an example.
    """
    for index, (right, wrong) in enumerate(zip(answers or (), wrong_answers or (), strict=False)):
        if right == wrong:
            raise SpecError(
                f"Example {index}: the answer and the wrong answer are the same tokens "
                f"{list(right)}."
            )


def check_pairs_differ(clean: Rows, corrupted: Rows) -> None:
    """Refuse a pair of prompts with the same tokens.

    Raises:
        SpecError: There is such a pair.
    """
    for index, (left, right) in enumerate(zip(clean, corrupted, strict=True)):
        if left == right:
            raise SpecError(
                f"Example {index}: nothing differs between the clean and the corrupted prompt; "
                f"both are the same {len(left)} tokens."
            )


def corrupted_spans_of(clean: Rows, corrupted: Rows, spans: Spans, given: Spans | None) -> Spans:
    """Return the corrupted prompts' spans: those given, else the places of the clean ones.

    Raises:
        SpecError: A name is given for the corrupted prompts alone.
    """
    unknown = [name for name in given or {} if name not in spans]
    if unknown:
        raise SpecError(
            f"corrupted_spans names {unknown[0]!r}, which spans does not; give it for both."
        )

    found: Spans = {}
    for name, entries in spans.items():
        own = (given or {}).get(name, (None,) * len(clean))
        rows = zip(own, entries, clean, corrupted, strict=True)
        found[name] = tuple(
            here or (span and counterpart(left, right, span)) for here, span, left, right in rows
        )
    return found


def alignment_of(clean: Rows, corrupted: Rows, spans: Spans, corrupted_spans: Spans) -> Rows:
    """Align each pair, by its common ends and by the spans that both prompts have."""
    rows = []
    for index, (left, right) in enumerate(zip(clean, corrupted, strict=True)):
        both = [(spans[name][index], corrupted_spans[name][index]) for name in spans]
        pairs = [(a, b) for a, b in both if a is not None and b is not None]
        rows.append(align(left, right, pairs))
    return tuple(rows)
