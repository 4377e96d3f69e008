"""One set of questions, from the answers to both readings."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tlkit.engine.values import Progress
from tlkit.models.bridge import Parts
from tlkit.prompts.qa import QA
from tlkit.studies.answers import Answers, answer
from tlkit.studies.pathways.examples import Example, examples_of
from tlkit.studies.pathways.group import group_reading, read
from tlkit.studies.pathways.intervention import interventions
from tlkit.studies.pathways.part import AUCS, BY_PROBE, INTERVENED, Part
from tlkit.studies.pathways.settings import Settings

Stages = Callable[[str], Progress]
"""Called with a stage's name; gives a function of (done, total)."""


def study_one(
    model: Any, qa: QA, settings: Settings, *, packed: bool, budget: int | None,
    stages: Stages | None,
) -> Part:  # fmt: skip
    """One set of questions."""
    told = stages or (lambda _: lambda done, total: None)
    answers = answer(
        model, qa, chat=settings.chat, template=settings.template, stop=settings.stop,
        max_new_tokens=settings.max_new_tokens, progress=told(f"{qa.name}: answers"),
    )  # fmt: skip
    part, examples = begin(answers, settings)
    if not examples:
        return part
    if "group" in settings.readings:
        wrong = np.array([one.wrong for one in examples])
        if _probed(part, wrong, settings):
            features = read(
                Parts(model), examples, mode=settings.mode, packed=packed, budget=budget,
                progress=told(f"{qa.name}: knockouts"),
            )  # fmt: skip
            groups = [one.group for one in examples]
            found = group_reading(
                features, wrong, groups, settings.probing, told(f"{qa.name}: probes")
            )
            for name, unit in BY_PROBE.items():
                part.add(name, ("layer", "example"), found[name], unit, examples)
            for name in AUCS:
                part.add(name, ("layer", "seed"), found[name], "AUC")
    if "intervention" in settings.readings:
        _intervene(model, part, examples, settings, packed, budget, told(f"{qa.name}: patches"))
    return part


def begin(answers: Answers, settings: Settings) -> tuple[Part, list[Example]]:
    """What the model said, and the examples that can be used."""
    part, examples = Part.of(answers), examples_of(answers, settings.seed)
    part.counts["used"] = len(examples)
    if not examples:
        part.reasons.append("No answer was judged and had its exact tokens found.")
    lost = sum(one.control is None for one in examples)
    if lost:
        part.counts["no control"] = lost
        part.reasons.append(f"{lost} prompts are too short for as many random tokens.")
    return part, examples


def _probed(part: Part, wrong: np.ndarray, settings: Settings) -> bool:
    """Whether there are enough right and wrong answers for probes; if not, why is noted."""
    bad, good, needed = int(wrong.sum()), int((~wrong).sum()), settings.class_size
    if min(bad, good) >= needed:
        return True
    part.reasons.append(
        f"The group reading needs {needed} right and {needed} wrong answers; there are {good} "
        f"right and {bad} wrong."
    )
    return False


def _intervene(
    model: Any, part: Part, examples: Sequence[Example], settings: Settings, packed: bool,
    budget: int | None, progress: Progress,
) -> None:  # fmt: skip
    """Add the intervention reading."""
    n_layers = Parts(model).n_layers
    layers = settings.intervened(n_layers)
    found = interventions(
        model, examples, layers, mode=settings.mode, seed=settings.seed, packed=packed,
        budget=budget, progress=progress,
    )  # fmt: skip
    values = {
        "delta_p_intervention": _at_layers(found.delta_p, layers, n_layers),
        "delta_p_intervention_control": _at_layers(found.control, layers, n_layers),
        "answer_prob": found.base,
        "paired": found.paired,
    }
    for name, (dims, unit) in INTERVENED.items():
        part.add(name, dims, values[name], unit, examples)
    alone = sum(one.last == one.prompt for one in examples)
    if alone:
        part.counts["answers of one token"] = alone
        part.reasons.append(f"{alone} answers are one token, of which nothing can be cut off (A).")
    lonely = int((~found.paired).sum())
    if lonely:
        part.counts["no paired question"] = lonely
        part.reasons.append(f"{lonely} questions have no other of the same relation and shape.")


def _at_layers(values: np.ndarray, layers: Sequence[int], n_layers: int) -> np.ndarray:
    """Values of some layers ``[…, layer, example]`` among all, NaN at the others."""
    out = np.full((*values.shape[:-2], n_layers, values.shape[-1]), np.nan, dtype=np.float32)
    out[..., list(layers), :] = values
    return out
