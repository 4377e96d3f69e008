"""How many word problems a model solves under each condition."""

import re
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np

from tlkit.engine.generate import greedy
from tlkit.engine.values import Progress
from tlkit.errors import SpecError
from tlkit.prompts.prompts import Prompts
from tlkit.prompts.tokens import tokenizer_of
from tlkit.results.statistics import mean_interval, paired_permutation
from tlkit.studies.answer_store import stop_tokens
from tlkit.studies.conditions.arm import ARM, redistributed
from tlkit.studies.conditions.transform import changed, named

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
    model: Any, problems: Iterable[Mapping[str, Any]], conditions: Mapping[str, Any], *,
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

    rows = list(problems)
    if not rows:
        raise SpecError("accuracy needs problems: rows with 'question' and 'answer'.")
    wanted = [last_number(str(row.get("answer", ""))) for row in rows]
    if None in wanted:
        raise SpecError(f"Problem {wanted.index(None)} has no number for an answer.")
    asked = [str(row.get("question", row.get("problem", ""))) for row in rows]
    texts = [template.replace("{question}", one) for one in asked]
    starts = [text.index(one) for text, one in zip(texts, asked, strict=True)]
    spans = [(at, at + len(one)) for at, one in zip(starts, asked, strict=True)]
    prompts = Prompts.from_texts(model, texts, spans={"question": spans}, chat=chat)
    tokenizer, labelled = tokenizer_of(model), named(conditions)
    right, empty = {}, {}
    for label, condition in labelled.items():
        arm = condition if isinstance(condition, ARM) else None
        change = changed(model, prompts, label, None if arm else condition)
        if change.condition is not None:
            raise SpecError(f"Condition {label!r} is an intervention; accuracy knows none.")
        with redistributed(model, arm) if arm else nullcontext():
            # ARM looks at the whole batch: one problem at a time, as its authors run it.
            new = greedy(
                model, change.ids, max_new_tokens=max_new_tokens,
                stop=stop_tokens(model, chat=chat), batch_tokens=1 if arm else 4096,
            )  # fmt: skip
        said = [last_number(tokenizer.decode(ids, skip_special_tokens=True)) for ids in new]
        right[label] = np.array([a == b for a, b in zip(said, wanted, strict=True)], float)
        empty[label] = sum(one is None for one in said)
        if progress:
            progress(len(right), len(labelled))
    base = right[next(label for label, one in labelled.items() if one is None)]
    table = []
    for label, values in right.items():
        interval = mean_interval(values)
        test = paired_permutation(values, base, seed=seed)
        table.append({
            "condition": label, "right": int(values.sum()), "n": len(values),
            "share": float(interval.mean), "low": float(interval.low),
            "high": float(interval.high), "difference": float(test.difference),
            "p_value": float(test.p_value), "no_number": empty[label],
        })  # fmt: skip
    return pd.DataFrame(table)
