"""What a model answers: generated greedily, kept on disk, judged, its exact tokens located."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tlkit.engine.generate import greedy
from tlkit.engine.values import Progress
from tlkit.errors import SpecError
from tlkit.models.info import hash_tokenizer
from tlkit.prompts.choose import chosen_examples
from tlkit.prompts.exact import exact_answer
from tlkit.prompts.judging import Verdict, judge
from tlkit.prompts.qa import QA, Question
from tlkit.prompts.spans import Span, touched
from tlkit.prompts.tokens import Tokenized, span_tokens, tokenize, tokenizer_of
from tlkit.prompts.words import sentence_stop
from tlkit.studies.answer_store import AnswerStore, stop_tokens

BASE, CHAT = "Q: {question}\nA:", "{question}"
"""How a base model and a chat model are asked."""
SHORT = (
    "Q: Who composed The Four Seasons?\nA: Antonio Vivaldi\n\nQ: What do bees make?\nA: honey\n\n"
    "Q: {question}\nA:"
)
"""Two examples that make most models answer in a word or two, chat models too: a sentence restates
the question, and the verdict can then be read from the restatement."""


@dataclass(frozen=True)
class Answer:
    """One question as it was asked, and what the model said.

    Positions are token positions in ``prompt_ids + answer_ids``.

    Attributes:
        question: The question.
        prompt_ids: What the model read.
        answer_ids: What it said.
        text: The same as text.
        verdict: Right, wrong, or unknown where it says that it does not know.
        asked: Where the question's own words stand in the prompt.
        exact_question: Where its exact tokens stand, None if they were not found.
        exact_answer: Where the exact answer stands, None if it was not found.
        group: What must not be in training and test at once; the question if empty.
    """

    question: Question
    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    text: str
    verdict: Verdict
    asked: Span
    exact_question: Span | None
    exact_answer: Span | None
    group: str = ""

    @property
    def ids(self) -> tuple[int, ...]:
        """Prompt and answer."""
        return self.prompt_ids + self.answer_ids


@dataclass(frozen=True)
class Answers:
    """A model's answers to a set of questions. Index with a slice or a list to get fewer."""

    name: str
    items: tuple[Answer, ...]
    tokenizer_hash: str = ""
    """Which tokenizer made the ids; empty if that is not known."""

    def hash(self) -> str:
        """Return the sha256 of what was read and said, and of how it was judged and located."""
        rows = [
            (one.prompt_ids, one.answer_ids, one.verdict, one.exact_question, one.exact_answer)
            for one in self
        ]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Answer]:
        return iter(self.items)

    def __getitem__(self, which: Any) -> "Answers":
        chosen = chosen_examples(which, len(self))
        return replace(self, items=tuple(self.items[i] for i in chosen))

    def counts(self) -> dict[str, int]:
        """How many are right, wrong and unknown, and what was not found."""
        verdicts = Counter(item.verdict for item in self)
        return {
            "questions": len(self),
            **{name: verdicts[name] for name in ("right", "wrong", "unknown")},
            "no exact question": sum(item.exact_question is None for item in self),
            "no exact answer": sum(item.exact_answer is None for item in self),
        }

    def share_right(self) -> dict[str, tuple[float, int]]:
        """Per relation, the share of right answers and the number of questions."""
        rows: dict[str, list[bool]] = {}
        for item in self:
            rows.setdefault(item.question.relation or "", []).append(item.verdict == "right")
        return {name: (sum(row) / len(row), len(row)) for name, row in sorted(rows.items())}


def answer(
    model: Any,
    qa: QA,
    *,
    chat: bool | None = None,
    template: str | None = None,
    stop: Any = "sentence",
    max_new_tokens: int = 48,
    cache: bool = True,
    progress: Progress | None = None,
) -> Answers:
    r"""Ask a model questions, greedily.

    Args:
        model: A loaded model with a tokenizer.
        qa: The questions.
        chat: Whether to ask through the chat template, thinking mode off; if None, where the
            tokenizer has one.
        template: What is asked, with ``{question}`` in it; by default the bare question for a
            chat model and ``Q: {question}\nA:`` for a base model; ``"short"`` puts two examples
            with short answers before it (`SHORT`), as for a base model.
        stop: Where an answer ends: at its first sentence that says something or the end of its
            line (``"sentence"``), at the end of its line, or with the model's turn.
        max_new_tokens: Most tokens of an answer.
        cache: Whether answers are looked up and kept on disk; what identifies one is the weights,
            the tokenizer, the prompt's tokens, and the settings.
        progress: Called with (answers there, questions in all).

    Raises:
        SpecError: The template has no place for the question, or there is no chat template.
    """
    tokenizer = tokenizer_of(model)
    chat, template = how_asked(tokenizer, chat, template)
    if stop not in ("sentence", "line", "turn"):
        raise SpecError(f"There is no stop {stop!r}; there are 'sentence', 'line', 'turn'.")
    prompts = [ask(tokenizer, question, template, chat=chat) for question in qa]
    store = AnswerStore.of(model, stop=stop, most=max_new_tokens) if cache else AnswerStore(None)
    ids = [prompt.ids for prompt in prompts]
    missing = [i for i in range(len(ids)) if store.get(ids[i]) is None]
    there = len(ids) - len(missing)

    def told(done: int, _: int) -> None:
        if progress:
            progress(there + done, len(ids))

    greedy(
        model,
        [ids[i] for i in missing],
        max_new_tokens=max_new_tokens,
        stop=stop_tokens(model, chat=chat),
        ended=lambda new: _ended(tokenizer, new, stop) is not None,
        finished=lambda some, rows: store.add([ids[missing[i]] for i in some], rows),
        progress=told,
    )
    given = [_cut(tokenizer, store.get(row) or [], stop) for row in ids]
    rows = zip(qa, prompts, given, strict=True)
    items = tuple(located(tokenizer, q, p, new, template=template) for q, p, new in rows)
    return Answers(qa.name, items, hash_tokenizer(tokenizer))


def how_asked(tokenizer: Any, chat: bool | None, template: str | None) -> tuple[bool, str]:
    """Whether through the chat template, and with which words.

    Raises:
        SpecError: The words have no place for the question.
    """
    if template == "short":
        return bool(chat), SHORT
    chat = bool(getattr(tokenizer, "chat_template", None)) if chat is None else chat
    template = template or (CHAT if chat else BASE)
    if template.count("{question}") != 1:
        raise SpecError(f"The template {template!r} must hold {{question}} once.")
    return chat, template


def ask(tokenizer: Any, question: Question, template: str, *, chat: bool) -> Tokenized:
    """Tokenise a question as it is asked, thinking mode off."""
    text = template.replace("{question}", question.question)
    return tokenize(tokenizer, text, chat=chat, **({"enable_thinking": False} if chat else {}))


def located(
    tokenizer: Any, question: Question, prompt: Tokenized, new: Sequence[int], *, template: str
) -> Answer:
    """Judge an answer and locate the exact tokens of question and answer."""
    text = decoded(tokenizer, new)
    shift = template.index("{question}")
    where = f"Question {question.question!r}"
    whole = span_tokens(prompt, (shift, shift + len(question.question)), where)
    exact, asked = question.exact_span, None
    if exact is not None:
        asked = span_tokens(prompt, (exact[0] + shift, exact[1] + shift), where)
    found = exact_answer(question.question, text)
    span = None if found is None else touched(offsets(tokenizer, new, text), *found)
    begin = len(prompt.ids)
    return Answer(
        question=question,
        prompt_ids=prompt.ids,
        answer_ids=tuple(new),
        text=text,
        verdict=judge(text, question.answer_aliases),
        asked=whole or Span(0, 0),
        exact_question=asked,
        exact_answer=None if span is None else Span(span.start + begin, span.stop + begin),
    )


def decoded(tokenizer: Any, ids: Sequence[int]) -> str:
    """Decode ids without tidying anything up."""
    return tokenizer.decode(
        list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
    )


def offsets(tokenizer: Any, ids: Sequence[int], text: str) -> list[tuple[int, int]]:
    """Find the characters of each generated token, by decoding what there was up to it."""
    found, at = [], 0
    for end in range(1, len(ids) + 1):
        so_far = decoded(tokenizer, ids[:end]).rstrip("\ufffd")
        reached = len(so_far) if text.startswith(so_far) else at
        found.append((at, max(reached, min(at + 1, len(text)))))
        at = max(at, reached)
    return found


def _ended(tokenizer: Any, new: Sequence[int], stop: str) -> int | None:
    """Where an answer has ended, in characters, None while it goes on."""
    if stop == "turn":
        return None
    text = decoded(tokenizer, new)
    if stop == "sentence":
        return sentence_stop(text)
    begin = len(text) - len(text.lstrip())
    line = text.find("\n", begin)
    return None if line < 0 else line


def _cut(tokenizer: Any, new: Sequence[int], stop: str) -> list[int]:
    """The tokens up to where an answer ends."""
    end = _ended(tokenizer, new, stop)
    if end is None:
        return list(new)
    begins = [start for start, _ in offsets(tokenizer, new, decoded(tokenizer, new))]
    return [token for token, start in zip(new, begins, strict=True) if start < end]
