"""Questions with answers: checked, each asked once, with a count of what was left out and why."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

from tlkit.errors import SpecError
from tlkit.prompts.choose import chosen_examples
from tlkit.prompts.exact import exact_question
from tlkit.prompts.judging import contains, plain, plain_name
from tlkit.prompts.read import read_jsonl
from tlkit.prompts.spans import characters, short

REQUIRED = {"question": str, "answer": (str, int, list)}
OPTIONAL = {
    "answer_aliases": list,
    "subject": str,
    "subject_span": list,
    "relation": str,
    "popularity": (int, float),
    "subject_popularity": (int, float),
}


@dataclass(frozen=True)
class Question:
    """A question, every name of its right answer, and what it is about.

    Attributes:
        question: The question.
        answer: The right answer.
        answer_aliases: Its other names, the answer first.
        subject: What the question is about, as it stands in the question.
        subject_span: Where the subject stands, first character and the one after the last.
        relation: What is asked of the subject, such as "capital".
        popularity: How well known the subject is, such as monthly page views.
    """

    question: str
    answer: str
    answer_aliases: tuple[str, ...] = ()
    subject: str | None = None
    subject_span: tuple[int, int] | None = None
    relation: str | None = None
    popularity: float | None = None

    @property
    def exact_span(self) -> tuple[int, int] | None:
        """The exact question's characters: the subject, or what `exact_question` finds."""
        return self.subject_span or exact_question(self.question, self.subject)


@dataclass(frozen=True)
class QA:
    """Questions with answers. Index with a slice or a list to get fewer; loop over them.

    Make them with `from_jsonl`, `from_hub` or `from_rows`. A question is left out, and counted in
    ``dropped``, if it is blank, if it was asked before, if it has no answer in words, or if it
    holds its own answer: repeating the question would then count as right.
    """

    questions: tuple[Question, ...]
    """The questions that are kept."""
    name: str = "qa"
    """What results call this set of questions."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """How many questions, or names of answers, were left out, by reason."""

    @classmethod
    def from_rows(
        cls, rows: Iterable[Mapping[str, Any]], name: str = "qa", n: int | None = None
    ) -> "QA":
        """Check rows with the fields of `Question`; only question and answer are needed.

        Args:
            rows: One mapping per question. An answer that is a list gives the aliases too.
            name: What results call this set of questions.
            n: Keep only the first `n` questions that are not left out.

        Raises:
            SpecError: A span lies outside its question, or no question is left.
        """
        kept: list[Question] = []
        dropped: Counter[str] = Counter()
        seen: set[str] = set()
        for number, row in enumerate(rows):
            if n is not None and len(kept) >= n:
                break
            question = _question(row, f"Question {number}", dropped)
            asked = plain(question.question)
            reason = _reason(question, asked in seen)
            if reason:
                dropped[reason] += 1
                continue
            seen.add(asked)
            kept.append(question)
        if not kept:
            said = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
            raise SpecError(f"No question of {name!r} can be used: {said or 'there are none'}.")
        return cls(tuple(kept), name, dict(dropped))

    @classmethod
    def from_jsonl(
        cls,
        path: str | PathLike[str],
        fields: Mapping[str, str] | None = None,
        n: int | None = None,
        name: str | None = None,
    ) -> "QA":
        """Read questions from a file of JSON lines.

        Args:
            path: The file: ``{"question", "answer"}`` a line, and if they are there
                ``answer_aliases``, ``subject``, ``subject_span`` (first character and the one
                after the last), ``relation``, ``popularity`` (or ``subject_popularity``).
            fields: Name to column, where the file has other column names.
            n: Keep only the first `n` usable questions.
            name: What results call the set; the file's name without its ending if None.

        Raises:
            SpecError: The file cannot be read, a row is not what is asked for, or nothing is left.
        """
        if n is not None and n < 1:
            raise SpecError(f"n is {n}; ask for at least one question.")
        rows = read_jsonl(path, fields, REQUIRED, OPTIONAL)
        try:
            return cls.from_rows(rows, name or Path(path).stem, n)
        except SpecError as error:
            raise SpecError(f"{path}: {error}") from None

    @classmethod
    def from_hub(
        cls, name: str, n: int | None = None, *, source: str | PathLike[str] | None = None
    ) -> "QA":
        """Get a known data set by the `datasets` library.

        Args:
            name: ``"popqa"``, ``"triviaqa"``, ``"hotpotqa"`` or ``"nq_open"``.
            n: Keep only the first `n` usable questions.
            source: Where to take it from instead of its place on the hub: another hub id, or a
                local JSON lines, CSV or parquet file with the hub's columns.

        Raises:
            SpecError: The name is unknown, the library is missing, or the data set is out of
                reach.
        """
        from tlkit.prompts.hub import hub_rows

        return cls.from_rows(hub_rows(name, "questions", source), name, n)

    def __len__(self) -> int:
        return len(self.questions)

    def __iter__(self) -> Iterator[Question]:
        return iter(self.questions)

    def __getitem__(self, which: Any) -> "QA":
        chosen = chosen_examples(which, len(self))
        return replace(self, questions=tuple(self.questions[i] for i in chosen))

    def __hash__(self) -> int:
        return hash(self.hash())

    def hash(self) -> str:
        """Return the sha256 of all questions and answers, in 64 hexadecimal digits."""
        rows = [asdict(question) for question in self.questions]
        return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def _question(row: Mapping[str, Any], where: str, dropped: Counter[str]) -> Question:
    """Make a question of a row, its names without those that cannot be judged by."""
    text = str(row["question"])
    given = row["answer"]
    answers = [str(one) for one in given] if isinstance(given, list) else [str(given)]
    others = row.get("answer_aliases") or ()
    if any(one is None for one in others):
        raise SpecError(f"{where}: an alias of the answer is null; leave it out.")
    names = dict.fromkeys([*answers, *map(str, others)])
    aliases = []
    for name in names:
        if name in answers[:1] or (plain_name(name) and not contains(text, name)):
            aliases.append(name)
        elif plain_name(name):
            dropped["alias inside its question"] += 1
        else:
            dropped["alias without words"] += 1
    span, subject = row.get("subject_span"), row.get("subject")
    found = None if span is None else characters(span, text, f"{where}, subject_span")
    if found is None and subject and text.count(subject) == 1:
        found = (text.index(subject), text.index(subject) + len(subject))
    if found is not None and subject and text[slice(*found)] != subject:
        raise SpecError(
            f"{where}: subject_span covers {text[slice(*found)]!r}, but the subject is "
            f"{subject!r}; count characters from 0, the end not included."
        )
    popularity = row.get("popularity")
    if popularity is None:
        popularity = row.get("subject_popularity")
    return Question(
        question=text,
        answer=answers[0] if answers else "",
        answer_aliases=tuple(aliases),
        subject=subject,
        subject_span=found,
        relation=row.get("relation"),
        popularity=None if popularity is None else float(popularity),
    )


def _reason(question: Question, again: bool) -> str | None:
    """Why a question is left out, or None."""
    if not plain(question.question):
        return "empty question"
    if again:
        return "question asked twice"
    if not plain_name(question.answer):
        return "answer without words"
    if contains(question.question, question.answer):
        return "answer inside its question"
    return None


def describe_dropped(qa: QA) -> str:
    """Say in one line how many questions are there and what was left out.

    Example:
        >>> rows = [{"question": "Who?", "answer": "Ann"}, {"question": "who", "answer": "Bo"}]
        >>> describe_dropped(QA.from_rows(rows))
        "'qa': 1 question; left out: 1 question asked twice"
    """
    count = f"{len(qa)} question{'s' if len(qa) != 1 else ''}"
    said = ", ".join(f"{count} {reason}" for reason, count in sorted(qa.dropped.items()))
    return f"{short(qa.name)}: {count}" + (f"; left out: {said}" if said else "")
