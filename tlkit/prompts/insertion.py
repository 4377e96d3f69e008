"""Prompts with text put in, whose own tokens all stay as they were."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tlkit.errors import EngineError, SpecError
from tlkit.models.info import hash_tokenizer
from tlkit.models.text import token_labels
from tlkit.prompts.alignment import UNMAPPED
from tlkit.prompts.places import index_of_ids, index_of_text, own_tokens
from tlkit.prompts.prompts import Prompts, Rows, Side
from tlkit.prompts.spans import Span
from tlkit.prompts.tokens import Tokenized, tokenize, tokenizer_of
from tlkit.spec.insertions import Insert


@dataclass(frozen=True)
class Inserted:
    """Prompts with text put in, and where each of their tokens went."""

    prompts: Prompts
    """The new prompts. A span that the text was put into holds it; answers keep their ids."""
    maps: Rows
    """For each position of each old clean prompt, its position in the new one."""
    inserted: tuple[Span, ...]
    """Where the inserted tokens stand in each new clean prompt."""
    merged_seams: tuple[int, ...]
    """Of each example, at how many seams (two a prompt) the tokenizer, given the joined text, would
    have made other tokens of the original text beside it. Prompts given as ids have no text: 0."""
    corrupted_maps: Rows | None = None
    """The same as `maps` for the corrupted prompts."""
    corrupted_inserted: tuple[Span, ...] | None = None
    """The same as `inserted` for the corrupted prompts."""


class _Put(NamedTuple):
    """One prompt with the text put in."""

    old: tuple[int, ...]
    at: int
    """The token before which the text stands."""
    ids: tuple[int, ...]
    """The inserted tokens."""
    text: str | None
    """The joined text of the user."""
    seams: int

    @property
    def new(self) -> tuple[int, ...]:
        return self.old[: self.at] + self.ids + self.old[self.at :]

    @property
    def map(self) -> tuple[int, ...]:
        return tuple(p + len(self.ids) * (p >= self.at) for p in range(len(self.old)))

    @property
    def span(self) -> Span:
        return Span(self.at, self.at + len(self.ids))


def inserted(model: Any, prompts: Prompts, insert: Insert) -> Inserted:
    """Put a text into every prompt, between tokens, so that the original tokens stay.

    The text is tokenised on its own, so it is the same tokens in every prompt (but for the space
    that tokenizers such as Llama 2's write before a text: it is there where the text comes first).

    Args:
        model: A model with a tokenizer, or a tokenizer.
        prompts: The prompts; of pairs, both sides get the text.
        insert: What is put in, and where.

    Raises:
        SpecError: The place lies inside a token or outside a text, or differs between the prompts
            of a pair; the text has no tokens; or the prompts are another tokenizer's.
    """
    tokenizer = tokenizer_of(model)
    if prompts.tokenizer_hash and prompts.tokenizer_hash != hash_tokenizer(tokenizer):
        raise SpecError("These prompts were tokenised by another tokenizer; give the one they had.")
    clean = _side(tokenizer, prompts, "clean", insert)
    changed = _changed(tokenizer, prompts, "clean", clean)
    seams = [put.seams for put in clean]
    corrupted = None
    if prompts.corrupted is not None:
        corrupted = _side(tokenizer, prompts, "corrupted", insert)
        changed |= _changed(tokenizer, prompts, "corrupted", corrupted)
        seams = [a + b.seams for a, b in zip(seams, corrupted, strict=True)]
        if prompts.alignment is not None:
            rows = zip(prompts.alignment, clean, corrupted, strict=True)
            changed["alignment"] = tuple(_aligned(*row, i) for i, row in enumerate(rows))
    return Inserted(
        replace(prompts, **changed), tuple(put.map for put in clean),
        tuple(put.span for put in clean), tuple(seams),
        None if corrupted is None else tuple(put.map for put in corrupted),
        None if corrupted is None else tuple(put.span for put in corrupted),
    )  # fmt: skip


def _side(tokenizer: Any, prompts: Prompts, side: Side, insert: Insert) -> list[_Put]:
    """Put the text into the clean or the corrupted prompts, and check that every token stayed."""
    spans, texts = _of(prompts, side, "spans"), _of(prompts, side, "texts")
    puts = []
    for example, ids in enumerate(prompts.ids(side)):
        where = f"Example {example}, {side} prompt"
        read = None
        if texts:
            read = tokenize(tokenizer, texts[example], chat=prompts.chat)
            if read.ids != ids:
                raise SpecError(
                    f"{where}: its text is {len(read.ids)} other tokens than the prompt's "
                    f"{len(ids)}, so no character of it can be found; make the prompts from texts."
                )
        question = spans["question"][example] if "question" in spans else None
        if insert.at == "before_question" and question is not None:
            index = question.start
        elif read is None:
            index = index_of_ids(tokenizer, ids, insert, where)
        else:
            index = index_of_text(read, insert, where)
        put = _put(tokenizer, ids, read, index, insert)
        if any(put.new[at] != token for token, at in zip(ids, put.map, strict=True)):
            raise EngineError(f"{where}: an original token was lost while text was put in.")
        puts.append(put)
    return puts


def _of(prompts: Prompts, side: Side, kind: str) -> Any:
    """A side's spans, texts or token labels."""
    if kind == "spans":
        return prompts.spans if side == "clean" else prompts.corrupted_spans
    return getattr(prompts, f"{side}_{kind}")


def _put(
    tokenizer: Any, ids: tuple[int, ...], read: Tokenized | None, index: int, insert: Insert
) -> _Put:
    """One prompt with the text before token `index`, beside what the joined text would be."""
    leads = read is not None and all(stop == 0 for _, stop in read.offsets[:index])
    own = own_tokens(tokenizer, insert.text, leads)
    if read is None:
        return _Put(ids, index, own, None, 0)
    rendered, asked = read.rendered, read.asked
    at = read.offsets[index][0] if index < len(ids) else len(rendered.text)
    offset = min(max(at - rendered.start, 0), len(rendered.body)) + rendered.skipped
    joined = asked[:offset] + insert.text + asked[offset:]
    natural = tokenize(tokenizer, joined, chat=read.chat).ids
    tail = len(ids) - index
    seams = (natural[:index] != ids[:index]) + (natural[len(natural) - tail :] != ids[index:])
    return _Put(ids, index, own, joined, seams)


def _changed(tokenizer: Any, prompts: Prompts, side: Side, puts: Sequence[_Put]) -> dict[str, Any]:
    """The fields of one side of the new prompts."""
    spans: Mapping[str, Sequence[Span | None]] = _of(prompts, side, "spans")
    changed: dict[str, Any] = {
        side: tuple(put.new for put in puts),
        "spans" if side == "clean" else "corrupted_spans": {
            name: tuple(
                span and Span(put.map[span.start], put.map[span.stop - 1] + 1)
                for span, put in zip(entries, puts, strict=True)
            )
            for name, entries in spans.items()
        },
    }
    if _of(prompts, side, "texts"):
        changed[f"{side}_texts"] = tuple(put.text for put in puts)
    if labels := _of(prompts, side, "tokens"):
        changed[f"{side}_tokens"] = tuple(
            (*row[: put.at], *token_labels(tokenizer, put.ids), *row[put.at :])
            for row, put in zip(labels, puts, strict=True)
        )
    return changed


def _aligned(
    alignment: tuple[int, ...], clean: _Put, corrupted: _Put, example: int
) -> tuple[int, ...]:
    """The new alignment of a pair; the inserted tokens correspond one by one."""
    for position, source in enumerate(alignment):
        before = position < corrupted.at
        if source != UNMAPPED and (source < clean.at) != before:
            raise SpecError(
                f"Example {example}: the text would be put before token {clean.at} of the clean "
                f"prompt and before token {corrupted.at} of the corrupted one, which do not "
                "correspond; insert at 'start' or 'end', or before a span 'question'."
            )
    moved = [UNMAPPED if source == UNMAPPED else clean.map[source] for source in alignment]
    moved[corrupted.at : corrupted.at] = range(*clean.span)
    return tuple(moved)
