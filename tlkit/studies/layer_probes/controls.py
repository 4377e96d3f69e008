"""What a probe's score must be compared with: what needs no activations, or no truth."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tlkit.errors import SpecError
from tlkit.studies.layer_probes.classify import Scores, fit_and_score, pipeline
from tlkit.studies.layer_probes.rows import Fold, Labelled

CONTROLS = ("majority", "positive", "shuffled", "length", "words")
"""Always the training prompts' majority; always the positive class (F1 2/3 on balanced classes);
labels shuffled among training prompts (same activations, same classifier); the number of tokens
alone; a bag of words (these two with logistic regression)."""


def check_controls(controls: Sequence[str]) -> None:
    """Refuse controls that do not exist.

    Raises:
        SpecError: With those that do.
    """
    for name in controls:
        if name not in CONTROLS:
            raise SpecError(f"There is no control {name!r}; there are {', '.join(CONTROLS)}.")


def textual(
    name: str, rows: Labelled, folds: Sequence[Fold], lengths: Sequence[int]
) -> list[Scores]:
    """Scores, one per fold, of a control that reads no activations.

    Args:
        name: ``"majority"``, ``"positive"``, ``"length"`` or ``"words"``.
        rows: The prompts.
        folds: The folds of the study itself.
        lengths: Tokens of each prompt.
    """
    numbers = np.asarray(lengths, dtype=np.float64)[:, None]
    given = np.array(rows.texts, dtype=object) if name == "words" else numbers
    return [
        fit_and_score(_model(name), given[train], rows.truth[train], given[test], rows.truth[test])
        for train, test in folds
    ]


def _model(name: str) -> Any:
    from sklearn.dummy import DummyClassifier
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    if name == "majority":
        return DummyClassifier(strategy="most_frequent")
    if name == "positive":
        return DummyClassifier(strategy="constant", constant=True)
    if name == "length":
        return pipeline("logistic")
    # Also words of one letter and signs, so that no prompt is without a word.
    words = r"\w+|[^\w\s]"
    return make_pipeline(CountVectorizer(token_pattern=words),
                         LogisticRegression(max_iter=5000))  # fmt: skip


def shuffled(truth: np.ndarray, seed: Sequence[int]) -> np.ndarray:
    """Training labels in random order."""
    return np.random.default_rng(seed).permutation(truth)
