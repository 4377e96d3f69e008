"""One set of questions' results, and several of them in one dataset."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tlkit.prompts.judging import Verdict
from tlkit.studies.answers import Answers
from tlkit.studies.pathways.examples import Example

GROUPS = ("Q-anchored", "A-anchored")
TEXTS = ("question", "answer", "relation", "verdict")
Dims = tuple[str, ...]

POINTS, PROBABILITY, TRUTH = "percentage points", "probability", "true or false"
BY_PROBE: dict[str, str] = {
    "delta_p": POINTS,
    "delta_p_control": POINTS,
    "delta_p_held_out": POINTS,
    "delta_p_control_held_out": POINTS,
    "q_anchored": TRUTH,
    "q_anchored_held_out": TRUTH,
    "p_wrong": PROBABILITY,
    "p_wrong_knockout": PROBABILITY,
    "p_wrong_control": PROBABILITY,
}
"""Variables of the group reading, each of layer and example, and their units."""
INTERVENED: dict[str, tuple[Dims, str]] = {
    "delta_p_intervention": (("kind", "group", "layer", "example"), POINTS),
    "delta_p_intervention_control": (("layer", "example"), POINTS),
    "answer_prob": (("example",), PROBABILITY),
    "paired": (("example",), TRUTH),
}
"""Variables of the intervention reading."""
AUCS = ("probe_auc", "probe_auc_control")


@dataclass
class Part:
    """What was found on one set of questions.

    Attributes:
        count: How many answers there are.
        answers: The hash of these answers.
        variables: Name to (dimensions, values, unit); every answer is an example, and one that
            could not be used has NaN or False.
        texts: Name to one text per answer: question, answer, relation, verdict.
        counts: What was found and what was not.
        reasons: Why numbers are missing, one sentence each.
        done: The parts of the study that are done.
    """

    count: int
    answers: str = ""
    variables: dict[str, tuple[Dims, np.ndarray, str]] = field(default_factory=dict)
    texts: dict[str, list[str]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, answers: Answers) -> "Part":
        """Begin with what the model said."""
        part = cls(len(answers), answers.hash(), counts=answers.counts())
        verdicts: list[Verdict] = [one.verdict for one in answers]
        part.texts = {
            "question": [one.question.question for one in answers],
            "answer": [one.text for one in answers],
            "relation": [one.question.relation or "" for one in answers],
            "verdict": list(verdicts),
        }
        return part

    def add(
        self, name: str, dims: Dims, values: np.ndarray, unit: str,
        examples: Sequence[Example] | None = None,
    ) -> None:  # fmt: skip
        """Keep a variable; the values of some examples are spread over all questions."""
        if examples is not None and dims[-1] == "example":
            empty = False if values.dtype == bool else np.nan
            whole = np.full((*values.shape[:-1], self.count), empty, dtype=_kind(values))
            whole[..., [one.index for one in examples]] = values
            values = whole
        self.variables[name] = (dims, values, unit)

    def note(self) -> dict[str, Any]:
        """All but variables and texts, as plain values."""
        return {
            "counts": self.counts, "reasons": self.reasons, "done": self.done,
            "variables": list(self.variables),
            "answers": self.answers,
        }  # fmt: skip


def _kind(values: np.ndarray) -> Any:
    return bool if values.dtype == bool else np.float32


def stacked(parts: Mapping[str, Part]) -> tuple[dict[str, tuple], dict[str, tuple]]:
    """Variables and text coordinates of several sets, along ``dataset``.

    Sets of fewer questions are filled up with NaN, False and empty texts.
    """
    longest = max(part.count for part in parts.values())
    names = {name: row for part in parts.values() for name, row in part.variables.items()}
    variables: dict[str, tuple] = {}
    for name, (dims, like, unit) in names.items():
        shape = [longest if d == "example" else size
                 for d, size in zip(dims, like.shape, strict=True)]  # fmt: skip
        own = [part.variables.get(name) for part in parts.values()]
        rows = [filled(None if row is None else row[1], shape, like.dtype) for row in own]
        variables[name] = (("dataset", *dims), np.stack(rows), unit)
    coords = {
        name: (
            ("dataset", "example"),
            np.array([
                [*part.texts[name], *[""] * (longest - part.count)] for part in parts.values()
            ]),
        )
        for name in TEXTS
    }  # fmt: skip
    return variables, coords


def filled(values: np.ndarray | None, shape: Sequence[int], like: Any) -> np.ndarray:
    """Values at the front of an array of a larger shape; all missing where there are none."""
    kind = np.dtype(like)
    if kind.kind == "U":
        out = np.full(shape, "", dtype=kind)
    elif kind.kind == "b":
        out = np.zeros(shape, dtype=bool)
    else:
        out = np.full(shape, np.nan, dtype=np.float32)
    if values is not None:
        out[tuple(slice(size) for size in values.shape)] = values
    return out


def unstacked(dataset: Any, notes: Mapping[str, Any]) -> dict[str, Part]:
    """The parts of a dataset, as `stacked` got them."""
    parts = {}
    for name in notes:
        one, note = dataset.sel(dataset=name), notes[name]
        count = int(note["counts"]["questions"])
        part = Part(
            count, note["answers"], counts=note["counts"], reasons=note["reasons"],
            done=note["done"],
        )  # fmt: skip
        for key in note["variables"]:
            values = one[key]
            cut = values.isel(example=slice(count)) if "example" in values.dims else values
            dims = tuple(map(str, cut.dims))
            part.variables[key] = (dims, cut.values, str(values.attrs["units"]))
        part.texts = {key: one[key].values[:count].tolist() for key in TEXTS}
        parts[name] = part
    return parts
