"""Answers that are given: for models too small to answer, and where the answer must tell nothing.

Questions of one relation are paired, and each is given its own answer (right) and the other's
(wrong). Where nothing is said of relations, the question word and the looks of the answer stand in
for them (`kind_of`): a year as the answer to "Who ...?" would be wrong by its kind alone. So every
answer string is there once as right and once as wrong, and nothing that reads the string alone can
tell. Both questions of a pair are always in one fold: a probe that learned "this string is right"
from one of them would otherwise be wrong on the other, which shows as an AUC below one half.
"""

import re
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np

from tlkit.errors import SpecError
from tlkit.models.info import hash_tokenizer
from tlkit.prompts.judging import judge, plain_name
from tlkit.prompts.qa import QA, Question
from tlkit.prompts.spans import Span
from tlkit.prompts.tokens import answer_tokens, continuation, tokenizer_of
from tlkit.studies.answers import Answer, Answers, ask, how_asked, located

_ASKED = re.compile(r"\b(who|whom|whose|when|where|why|how (many|much)|how|which|what)\b", re.I)
END = "."
"""What follows a given answer, so that the answer ends behind its exact tokens."""


def given(
    model: Any, qa: QA, *, chat: bool | None = None, template: str | None = None, seed: int = 0
) -> Answers:
    """Give each question its right answer and another question's.

    Args:
        model: A loaded model, or a tokenizer; it is not run.
        qa: The questions.
        chat: See `tlkit.studies.answers.answer`.
        template: See there.
        seed: Draws the pairs.

    Returns:
        Two answers for each question that could be paired, the right one first.

    Raises:
        SpecError: No two questions of one kind have answers of their own.
    """
    tokenizer = tokenizer_of(model)
    chat, template = how_asked(tokenizer, chat, template)
    pairs = pairs_of(qa, seed)
    if not pairs:
        raise SpecError(
            f"No two questions of {qa.name!r} are of the same kind and have answers that differ, "
            f"so none can be given another's answer; let the model answer (answers='generated')."
        )
    found = []
    for number, (one, other) in enumerate(pairs):
        for question, wrong in ((one, other), (other, one)):
            for text, verdict in ((question.answer, "right"), (wrong.answer, "wrong")):
                said = _said(tokenizer, question, text, template=template, chat=chat)
                found.append(replace(said, verdict=verdict, group=f"pair {number}"))
    return Answers(qa.name, tuple(found), hash_tokenizer(tokenizer))


def pairs_of(qa: QA, seed: int) -> list[tuple[Question, Question]]:
    """Pair questions of one kind, each answer string in one pair alone.

    Neither's answer may be right for the other one. What is left over is left out.
    """
    rows = [list(qa)[i] for i in np.random.default_rng(seed).permutation(len(qa))]
    taken: set[str] = set()
    waiting: dict[str, list[Question]] = defaultdict(list)
    pairs = []
    for one in rows:
        name = plain_name(one.answer)
        if name in taken:
            continue
        taken.add(name)
        several = waiting[kind_of(one)]
        other = next((other for other in several if _apart(one, other)), None)
        if other is None:
            several.append(one)
        else:
            several.remove(other)
            pairs.append((other, one))
    return pairs


def kind_of(one: Question) -> str:
    """The relation; or else the question word, and what the answer looks like.

    Example:
        >>> kind_of(Question("In which year did it end?", "1918"))
        'which, a number'
    """
    if one.relation:
        return one.relation
    asked = _ASKED.search(one.question)
    return f"{asked[0].casefold() if asked else 'other'}, {_looks(one.answer)}"


def _looks(answer: str) -> str:
    if answer.casefold() in ("yes", "no"):
        return "yes or no"
    if any(one.isdigit() for one in answer):
        return "a number"
    return "a name" if answer[:1].isupper() else "words"


def _apart(one: Question, other: Question) -> bool:
    """Whether neither's answer is right for the other, as answers are judged."""
    return all(
        judge(answer.answer, question.answer_aliases) == "wrong"
        for question, answer in ((one, other), (other, one))
    )


def _said(
    tokenizer: Any, question: Question, text: str, *, template: str, chat: bool
) -> Answer:  # fmt: skip
    """A question with an answer put behind it; all of its words are the exact answer."""
    prompt = ask(tokenizer, question, template, chat=chat)
    where = f"Question {question.question!r}"
    ids = answer_tokens(tokenizer, prompt, text, where)
    end = answer_tokens(tokenizer, prompt, text + END, where)
    # Where the full stop does not stand apart, the answer ends with its exact tokens.
    whole = end if end[: len(ids)] == ids else ids
    begin = len(prompt.ids)
    said = located(tokenizer, question, prompt, whole, template=template)
    spaced = continuation(prompt, text)
    return replace(
        said,
        text=spaced.strip(),
        exact_answer=Span(begin, begin + len(ids)),
    )
