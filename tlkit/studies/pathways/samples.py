"""The study on tlkit's own questions, at a size that one chooses."""

from typing import Any

import numpy as np

from tlkit.prompts.qa import QA
from tlkit.prompts.samples import questions
from tlkit.studies.pathways.study import run


def own_questions(n: int | None = None, seed: int = 0) -> QA:
    """Take our own questions, relations in turn, in an order drawn by `seed`.

    Args:
        n: How many; all if None.
        seed: Shuffles within each relation.
    """
    rows = questions()
    generator = np.random.default_rng(seed)
    rows = [rows[i] for i in generator.permutation(len(rows))]
    seen: dict[str, int] = {}
    turns = []
    for row in rows:
        turns.append(seen.get(row["relation"], 0))
        seen[row["relation"]] = turns[-1] + 1
    order = np.argsort(turns, kind="stable")
    return QA.from_rows((rows[i] for i in order), "our own questions", n)


def on_samples(
    model: Any, n: int | None = None, *, seed: int = 0, template: str | None = "short", **more: Any
) -> Any:
    """Run the study on our own questions, asked for short answers.

    Args:
        model: A loaded model.
        n: How many questions; all if None. The group reading needs 30 right and 30 wrong answers.
        seed: Chooses the questions, and everything else that `run` draws.
        template: How they are asked (see `Settings`).
        **more: Handed to `run`.

    Returns:
        The dataset of `run`.
    """
    return run(model, own_questions(n, seed), seed=seed, template=template, **more)
