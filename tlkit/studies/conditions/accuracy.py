"""How many word problems a model solves under each condition."""

import re
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np

from tlkit.engine.generate import BATCH_TOKENS, greedy
from tlkit.engine.values import Progress
from tlkit.errors import SpecError
from tlkit.prompts.prompts import Prompts
from tlkit.prompts.tokens import tokenizer_of
from tlkit.results.statistics import paired_permutation, wilson_interval
from tlkit.studies.answer_store import stop_tokens
from tlkit.studies.conditions.arm import ARM, redistributed
from tlkit.studies.conditions.transform import Changed, changed, named

TEMPLATE = "Solve the problem step by step. Problem: {question}\nSolution:"
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def last_number(text: str) -> float | None:
    """The last number in a text; None if there is none.

    Example:
        >>> last_number("3 + 4 = 7, so she pays $1,007.50.")
        1007.5
    """
    found = _NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def accuracy(
    model: Any, problems: Iterable[Mapping[str, Any]], conditions: Any, *,
    template: str = TEMPLATE, chat: bool = False, max_new_tokens: int = 160, seed: int = 0,
    progress: Progress | None = None,
) -> Any:  # fmt: skip
    """Solve word problems under conditions; an answer's last number counts.

    Args:
        model: A loaded model.
        problems: Rows with ``question`` (or ``problem``) and ``answer``, a number.
        conditions: As `run` takes them, and `ARM`; not interventions.
        template: How they are asked, with ``{question}`` in it. `tk.Insert` puts its text before
            the question.
        chat: Whether to ask through the chat template.
        max_new_tokens: Most tokens of a solution.
        seed: Draws the paired test's sign flips.
        progress: Called with (conditions done, conditions in all).

    Returns:
        A pandas DataFrame, a row for each condition: ``condition``, ``right``, ``n``, ``share``
        with ``low`` and ``high`` (95 %), ``difference`` to the plain prompts and its ``p_value``
        (paired sign flips over problems), ``no_number`` (solutions without any).

    Raises:
        SpecError: There are no problems, or one has no number for an answer.
    """
    import pandas as pd

    prompts, wanted = _asked(model, list(problems), template, chat=chat)
    labelled = named(conditions)
    changes = {}
    for label, condition in labelled.items():
        plain = None if isinstance(condition, ARM) else condition
        changes[label] = changed(model, prompts, label, plain)
        if changes[label].condition is not None:
            raise SpecError(f"Condition {label!r} is an intervention; accuracy knows none.")
    said = {}
    for label, condition in labelled.items():
        arm = condition if isinstance(condition, ARM) else None
        said[label] = _solved(model, changes[label], arm, max_new_tokens, chat=chat)
        if progress:
            progress(len(said), len(labelled))
    base = next(label for label, one in labelled.items() if one is None)
    right = {
        label: np.array([a == b for a, b in zip(several, wanted, strict=True)], float)
        for label, several in said.items()
    }
    return pd.DataFrame(
        [_row(label, right[label], right[base], said[label], seed) for label in said]
    )


def _asked(
    model: Any, rows: list[Mapping[str, Any]], template: str, *, chat: bool
) -> tuple[Prompts, list[float | None]]:
    """The problems as prompts, and their answers."""
    if not rows:
        raise SpecError("accuracy needs problems: rows with 'question' and 'answer'.")
    wanted = [last_number(str(row.get("answer", ""))) for row in rows]
    if None in wanted:
        raise SpecError(f"Problem {wanted.index(None)} has no number for an answer.")
    if "{question}" not in template:
        raise SpecError("The template needs {question} in it.")
    asked = [str(row.get("question", row.get("problem", ""))) for row in rows]
    start = template.index("{question}")
    spans = [(start, start + len(one)) for one in asked]
    texts = [template.replace("{question}", one) for one in asked]
    return Prompts.from_texts(model, texts, spans={"question": spans}, chat=chat), wanted


def _solved(
    model: Any, change: Changed, arm: ARM | None, max_new_tokens: int, *, chat: bool
) -> list[float | None]:
    """The last number of each solution."""
    tokenizer = tokenizer_of(model)
    with redistributed(model, arm) if arm else nullcontext():
        # ARM looks at the whole batch: one problem at a time, as its authors run it.
        new = greedy(
            model, change.ids, max_new_tokens=max_new_tokens, stop=stop_tokens(model, chat=chat),
            batch_tokens=1 if arm else BATCH_TOKENS,
        )  # fmt: skip
    return [last_number(tokenizer.decode(ids, skip_special_tokens=True)) for ids in new]


def _row(
    label: str, right: np.ndarray, base: np.ndarray, said: list[float | None], seed: int
) -> dict[str, Any]:
    low, high = wilson_interval(int(right.sum()), len(right))
    test = paired_permutation(right, base, seed=seed)
    return {
        "condition": label, "right": int(right.sum()), "n": len(right),
        "share": float(right.mean()), "low": low, "high": high,
        "difference": float(test.difference), "p_value": float(test.p_value),
        "no_number": sum(one is None for one in said),
    }  # fmt: skip
