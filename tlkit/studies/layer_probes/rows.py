"""Labelled prompts, and the folds that keep like prompts together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tlkit.errors import SpecError


@dataclass(frozen=True, eq=False)
class Labelled:
    """Prompts of two classes.

    Attributes:
        texts: The prompts.
        labels: Each prompt's label, as it was given.
        positive: The label of the positive class.
        truth: bool ``[example]``, whether a prompt is of the positive class.
        group: int ``[example]``; prompts of one group are never in training and test at once.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    positive: str
    truth: np.ndarray
    group: np.ndarray

    @property
    def negative(self) -> str:
        """The other class: its label, or ``"other"`` where there are several."""
        others = sorted({one for one in self.labels if one != self.positive})
        return others[0] if len(others) == 1 else "other"


def labelled(rows: Iterable[Any], positive: str, groups: Sequence[Any] | None = None) -> Labelled:
    """Read rows of prompts and labels.

    Args:
        rows: Mappings with ``prompt`` and ``label``, perhaps with ``group``.
        positive: The label of the positive class; every other label is of the other class.
        groups: One per row, in place of the rows' own. Prompts with the same text (but for case
            and white space) are of one group in any case.

    Raises:
        SpecError: A row cannot be used, there is one class only, or no row has `positive`.
    """
    listed = list(rows)
    texts, labels = [], []
    for number, row in enumerate(listed):
        prompt, label = _read(row, number)
        texts.append(prompt)
        labels.append(label)
    there = sorted(set(labels))
    if not there:
        raise SpecError("There are no prompts; give rows with 'prompt' and 'label'.")
    if positive not in there:
        raise SpecError(
            f"No prompt is labelled {positive!r}; the labels are {', '.join(there)}: name one "
            f"of them as positive."
        )
    if len(there) == 1:
        raise SpecError(
            f"All {len(texts)} prompts are labelled {positive!r}; two classes are told apart: add "
            f"prompts of another label."
        )
    own = [row.get("group") for row in listed] if groups is None else list(groups)
    if len(own) != len(texts):
        raise SpecError(f"There are {len(own)} groups for {len(texts)} prompts; give one each.")
    truth = np.array([label == positive for label in labels])
    return Labelled(tuple(texts), tuple(labels), positive, truth, _joined(texts, own))


def _read(row: Any, number: int) -> tuple[str, str]:
    if not isinstance(row, Mapping):
        raise SpecError(f"Row {number} is no mapping; rows have 'prompt' and 'label'.")
    for name in ("prompt", "label"):
        if not isinstance(row.get(name), (str, bool, int)) or row[name] == "":
            raise SpecError(f"Row {number} has no {name!r}; rows have 'prompt' and 'label'.")
    return str(row["prompt"]), str(row["label"])


def _joined(texts: Sequence[str], groups: Sequence[Any]) -> np.ndarray:
    """Number the sets of prompts that are tied together by a text or a group."""
    names: dict[tuple[str, str], int] = {}
    tied = list(range(len(texts)))

    def top(i: int) -> int:
        while tied[i] != i:
            i = tied[i]
        return i

    for i, (text, group) in enumerate(zip(texts, groups, strict=True)):
        keys = [("text", " ".join(text.lower().split()))]
        keys += [] if group is None else [("group", str(group))]
        for key in keys:
            tied[top(i)] = top(names.setdefault(key, i))
    return np.array([top(i) for i in range(len(texts))])


Fold = tuple[np.ndarray, np.ndarray]


def folds_of(rows: Labelled, folds: int, seed: int) -> list[Fold]:
    """(train, test) indices: groups apart, classes in proportion (scikit-learn's split).

    Raises:
        SpecError: A class has fewer prompts or groups than there are folds, or a fold would be
            left with one class.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    if folds < 2:
        raise SpecError(f"folds is {folds}; cross-validation needs at least 2.")
    for value, name in ((True, rows.positive), (False, rows.negative)):
        of = rows.truth == value
        count, several = int(of.sum()), len(np.unique(rows.group[of]))
        if count < folds:
            raise SpecError(
                f"There are {count} prompts labelled {name!r}, fewer than the {folds} folds; add "
                f"prompts, or take fewer folds."
            )
        if several < folds:
            raise SpecError(
                f"The {count} prompts labelled {name!r} are of {several} groups (equal texts are "
                f"one), fewer than the {folds} folds; take fewer folds or finer groups."
            )
    split = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    found = list(split.split(np.zeros((len(rows.truth), 1)), rows.truth, rows.group))
    for number, sides in enumerate(found):
        if any(len(np.unique(rows.truth[side])) < 2 for side in sides):
            raise SpecError(
                f"The groups leave fold {number} with prompts of one class; take fewer folds or "
                f"finer groups."
            )
    return [(np.asarray(train), np.asarray(test)) for train, test in found]
