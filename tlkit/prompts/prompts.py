"""Prompts: token ids with answers, spans and, for pairs, which positions correspond."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from tlkit.errors import SpecError
from tlkit.prompts import build
from tlkit.prompts.alignment import UNMAPPED, columns
from tlkit.prompts.choose import chosen_examples
from tlkit.prompts.spans import Asked, Span
from tlkit.prompts.table import GAP, shared_labels, two_rows
from tlkit.prompts.tokens import tokenizer_of

Side = Literal["clean", "corrupted"]
Rows = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Prompts:
    """Prompts as token ids; text was tokenised once and is kept for reading only.

    Make them with `from_pairs`, `from_texts` or `from_tokens`. Index them with a number, a slice,
    a list of numbers or a list of booleans to get fewer; loop over them to get one at a time.
    """

    clean: Rows
    """Token ids of each prompt, with BOS where the model's tokenizer puts one."""
    corrupted: Rows | None = None
    """Token ids of each prompt's corrupted twin."""
    answers: Rows | None = None
    """Token ids of the right answer, as it continues the prompt; there may be several."""
    wrong_answers: Rows | None = None
    """Token ids of the wrong answer."""
    spans: Mapping[str, tuple[Span | None, ...]] = field(default_factory=dict)
    """Named runs of positions of the clean prompts, one per prompt or None."""
    corrupted_spans: Mapping[str, tuple[Span | None, ...]] = field(default_factory=dict)
    """The same names in the corrupted prompts."""
    alignment: Rows | None = None
    """For each corrupted position the clean position that corresponds to it, or -1."""
    clean_texts: tuple[str, ...] = ()
    """The user's texts, without any chat template."""
    corrupted_texts: tuple[str, ...] = ()
    """The user's corrupted texts."""
    clean_tokens: tuple[tuple[str, ...], ...] = ()
    """A readable label of each clean token."""
    corrupted_tokens: tuple[tuple[str, ...], ...] = ()
    """A readable label of each corrupted token."""
    tokenizer_hash: str = ""
    """Which tokenizer made the ids; empty if they were given without one."""
    chat: bool = False
    """Whether the chat template was put around the texts."""

    @classmethod
    def from_pairs(
        cls,
        model: Any,
        clean: Iterable[str],
        corrupted: Iterable[str],
        answers: Iterable[str],
        wrong_answers: Iterable[str] | None = None,
        spans: Mapping[str, Sequence[Asked]] | None = None,
        corrupted_spans: Mapping[str, Sequence[Asked]] | None = None,
        chat: bool = False,
    ) -> "Prompts":
        """Make pairs of prompts whose answers differ.

        Args:
            model: A model with a tokenizer, or a tokenizer.
            clean: The prompts.
            corrupted: Each prompt's twin, such as one about another subject.
            answers: What should follow each clean prompt. A space is put between prompt and
                answer if neither has one (not with `chat`).
            wrong_answers: What should follow each corrupted prompt.
            spans: Name to one entry per clean prompt: (start, stop) character offsets, a part of
                the text that occurs once, or None.
            corrupted_spans: The same for the corrupted prompts. What is not given, or None, is
                put in the clean span's place where that is certain: where both prompts have
                equally many tokens, or where nothing outside the span differs.
            chat: Put each text into the model's chat template, as the user's message.

        Raises:
            SpecError: Something in the request cannot be used; the message names it.
        """
        return cls(
            **build.pairs(
                tokenizer_of(model),
                (clean, corrupted),
                (answers, wrong_answers),
                (spans, corrupted_spans),
                chat=chat,
            )
        )

    @classmethod
    def from_texts(
        cls,
        model: Any,
        texts: Iterable[str],
        answers: Iterable[str] | None = None,
        wrong_answers: Iterable[str] | None = None,
        spans: Mapping[str, Sequence[Asked]] | None = None,
        chat: bool = False,
    ) -> "Prompts":
        """Make prompts without corrupted twins; the arguments are those of `from_pairs`.

        Raises:
            SpecError: Something in the request cannot be used; the message names it.
        """
        answers_of_both = (answers, wrong_answers)
        return cls(**build.texts(tokenizer_of(model), texts, answers_of_both, spans, chat=chat))

    @classmethod
    def from_tokens(
        cls,
        clean: Any,
        corrupted: Any = None,
        answers: Any = None,
        wrong_answers: Any = None,
        *,
        model: Any = None,
        spans: Mapping[str, Sequence[tuple[int, int] | None]] | None = None,
        corrupted_spans: Mapping[str, Sequence[tuple[int, int] | None]] | None = None,
    ) -> "Prompts":
        """Make prompts from token ids, which are used as they are.

        Args:
            clean: One row of ids per prompt: lists, or a 2-D tensor or array. No BOS is added.
            corrupted: The same for the corrupted prompts; a pair may have equal tokens here.
            answers: One id or one row of ids per prompt.
            wrong_answers: The same for the wrong answers.
            model: A model with a tokenizer, or a tokenizer, for labels and for the check that
                prompts and model fit; without, tokens are labelled with their ids.
            spans: Name to one (start, stop) in token positions, or None, per clean prompt.
            corrupted_spans: The same for the corrupted prompts.

        Raises:
            SpecError: Something in the request cannot be used; the message names it.
        """
        both_sides, both_answers = (clean, corrupted), (answers, wrong_answers)
        return cls(**build.tokens(model, both_sides, both_answers, (spans, corrupted_spans)))

    def __len__(self) -> int:
        return len(self.clean)

    def __iter__(self) -> Iterator["Prompts"]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, which: Any) -> "Prompts":
        chosen = chosen_examples(which, len(self))

        def pick(value: Any) -> Any:
            if isinstance(value, tuple) and value:
                return tuple(value[index] for index in chosen)
            if isinstance(value, Mapping):
                return {name: pick(entries) for name, entries in value.items()}
            return value

        return replace(self, **{f.name: pick(getattr(self, f.name)) for f in fields(self)})

    def __hash__(self) -> int:
        return hash(self.hash())

    def hash(self) -> str:
        """Return the sha256 of all token ids, prompts and answers, in 64 hexadecimal digits."""
        ids = [self.clean, self.corrupted, self.answers, self.wrong_answers]
        return hashlib.sha256(json.dumps(ids, separators=(",", ":")).encode()).hexdigest()

    def ids(self, side: Side = "clean") -> Rows:
        """Return the token ids of the ``"clean"`` or the ``"corrupted"`` prompts.

        Raises:
            SpecError: The prompts have no such side.
        """
        if side not in ("clean", "corrupted"):
            raise SpecError(f"Prompts have no side {side!r}; they have 'clean' and 'corrupted'.")
        rows = self.clean if side == "clean" else self.corrupted
        if rows is None:
            raise SpecError("These prompts have no corrupted side; make them with from_pairs.")
        return rows

    def differing(self, example: int) -> list[int]:
        """List the corrupted positions without a clean counterpart, or with another token there."""
        clean, corrupted = self.clean[example], self.ids("corrupted")[example]
        sources = (self.alignment or ())[example]
        pairs = enumerate(zip(corrupted, sources, strict=True))
        return [i for i, (token, at) in pairs if at == UNMAPPED or clean[at] != token]

    def show_alignment(self, example: int, width: int = 100) -> str:
        """Lay out a pair's tokens, corresponding ones one below another.

        Args:
            example: Which pair.
            width: Columns of the terminal; longer tables go on below.
        """
        self.ids("corrupted")
        pairs = columns((self.alignment or ())[example], len(self.clean[example]))
        clean, corrupted = self.clean_tokens[example], self.corrupted_tokens[example]
        top = [GAP if left is None else clean[left] for left, _ in pairs]
        bottom = [GAP if right is None else corrupted[right] for _, right in pairs]
        return two_rows(("clean", "corrupted"), (top, bottom), width)

    def labels(self, side: Side = "corrupted") -> tuple[str, ...]:
        """Name each position, for the axis of a figure over all examples.

        A position is called by its token if that is the same in every prompt, by its span in
        angle brackets if it belongs to one span in every prompt, else by its number.

        Returns:
            As many labels as the longest prompt has tokens.
        """
        self.ids(side)
        if side == "clean":
            return shared_labels(self.clean_tokens, self.spans)
        return shared_labels(self.corrupted_tokens, self.corrupted_spans)
