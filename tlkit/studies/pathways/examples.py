"""From answers to what is run: token sequences, and which tokens are cut off from which."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tlkit.engine.edits import EDGE, Edit, Worked
from tlkit.engine.sequences import Sequences
from tlkit.prompts.prompts import Prompts
from tlkit.prompts.spans import Span
from tlkit.spec.attention import Knockout
from tlkit.studies.answers import Answer, Answers

Mode = Literal["zero", "-inf"]
Edges = tuple[tuple[int, ...], tuple[int, ...]]
"""Queries, and the keys that each of them reads."""


@dataclass(frozen=True)
class Example:
    """A judged answer whose exact tokens are known; positions are token positions in ``ids``.

    Attributes:
        index: Its place among all questions.
        ids: Prompt and answer, up to the exact answer's last token.
        prompt: Number of tokens of the prompt.
        question: Positions of the exact question.
        control: As many other positions, drawn at random; None where there are too few.
        exact: Where the exact answer stands; its last token is the last of all.
        wrong: Whether the answer is wrong.
        group: What must not be in training and test at once: the question's text, or its pair.
        relation: What is asked.
    """

    index: int
    ids: tuple[int, ...]
    prompt: int
    question: tuple[int, ...]
    control: tuple[int, ...] | None
    exact: Span
    wrong: bool
    group: str
    relation: str

    @property
    def last(self) -> int:
        """The exact answer's last token, where probes read."""
        return len(self.ids) - 1


def examples_of(answers: Answers, seed: int) -> list[Example]:
    """Take the judged answers whose exact tokens of question and answer were found.

    Args:
        answers: What the model said.
        seed: Draws the control tokens.
    """
    found = []
    for index, answer in enumerate(answers):
        if answer.verdict == "unknown" or answer.exact_answer is None or not answer.exact_question:
            continue
        question = tuple(range(*answer.exact_question))
        found.append(
            Example(
                index=index,
                ids=answer.ids[: answer.exact_answer.stop],
                prompt=len(answer.prompt_ids),
                question=question,
                control=control_of(answer, question, seed),
                exact=answer.exact_answer,
                wrong=answer.verdict == "wrong",
                group=answer.group or answer.question.question,
                relation=answer.question.relation or "",
            )
        )
    return found


def control_of(answer: Answer, question: Sequence[int], seed: int) -> tuple[int, ...] | None:
    """Draw as many tokens as the exact question has, from the rest of the question.

    Where the rest is too short, tokens before the question are drawn too, but never the first of
    all, on which attention rests; then tokens behind it.

    Returns:
        Rising positions, or None where the whole prompt has too few.
    """
    taken = set(question)
    asked = [p for p in range(*answer.asked) if p not in taken]
    before = range(1, answer.asked.start)
    behind = range(answer.asked.stop, len(answer.prompt_ids))
    generator = np.random.default_rng([seed, zlib.crc32(answer.question.question.encode())])
    drawn: list[int] = []
    for pool in (asked, before, behind):
        pool = [p for p in pool if p not in taken]
        missing = min(len(question) - len(drawn), len(pool))
        drawn += generator.choice(pool, missing, replace=False).tolist() if missing else []
    return tuple(sorted(drawn)) if len(drawn) == len(question) else None


def cut(keys: Sequence[int] | None, length: int, layers: Sequence[int], mode: Mode) -> Worked:
    """Cut every edge from a later position to some tokens, edges between those tokens kept.

    For a run of neighbouring tokens that is `Knockout`'s own rule.

    Args:
        keys: The tokens; None: the example is missing.
        length: Number of tokens.
        layers: The blocks in which they are cut.
        mode: See `Knockout`.
    """
    if keys is None:
        return Worked((), "missing")
    return on_edges([edges_from(keys, length)], layers, lambda at: Knockout(keys=at, mode=mode))


def cut_written(first: int, length: int, layers: Sequence[int], mode: Mode) -> Worked:
    """Cut every edge from a position to the answer's tokens before it; a token still sees itself.

    Args:
        first: The answer's first token.
        length: Number of tokens.
        layers: The blocks in which they are cut.
        mode: See `Knockout`.

    Returns:
        The edits; "missing" where no token of the answer follows another.
    """
    edges = edges_within(first, length)
    if not edges:
        return Worked((), "missing")
    return on_edges(edges, layers, lambda keys: Knockout(keys=keys, mode=mode))


def edges_from(keys: Sequence[int], length: int) -> Edges:
    """Edges from some tokens to all later ones, those between them left out."""
    inside = set(keys)
    return tuple(p for p in range(min(keys) + 1, length) if p not in inside), tuple(keys)


def edges_within(first: int, length: int) -> list[Edges]:
    """Edges from each token of a text's end to the tokens behind it."""
    return [(tuple(range(key + 1, length)), (key,)) for key in range(first, length - 1)]


def on_edges(
    edges: Sequence[Edges], layers: Sequence[int], change: Callable[[tuple[int, ...]], Any]
) -> Worked:
    """Change edges in some blocks.

    Args:
        edges: Which; those without queries are left out.
        layers: In which blocks.
        change: Makes the intervention on some keys.

    Returns:
        The edits; "free" where there are no such edges.
    """
    edits = tuple(
        Edit(change(keys), EDGE, layer, queries, keys)
        for layer in layers
        for queries, keys in edges
        if queries
    )
    return Worked(edits, "run" if edits else "free")


def sequences_of(examples: Sequence[Example]) -> Sequences:
    """The examples' token sequences, as the engine takes them."""
    return Sequences(Prompts.from_tokens([list(example.ids) for example in examples]), "clean")
