"""One set of questions: its answers, then each part that was asked for, in turn."""

from collections.abc import Callable
from typing import Any

from tlkit.errors import SpecError
from tlkit.prompts.qa import QA
from tlkit.studies.answers import Answers, answer
from tlkit.studies.pathways import (
    by_group,
    by_intervention,
    by_layers,
    by_place,
    by_token,
    detection,
    edge_saliency,
    knowledge,
)
from tlkit.studies.pathways.examples import examples_of
from tlkit.studies.pathways.giving import given
from tlkit.studies.pathways.part import Part
from tlkit.studies.pathways.sets import Asked
from tlkit.studies.pathways.settings import Settings
from tlkit.studies.pathways.task import Task, Told

STEPS: dict[str, Callable[[Task], None]] = {
    "group": by_group.measure,
    "intervention": by_intervention.measure,
    "cuts": by_layers.measure,
    "probes": by_place.measure,
    "tokens": by_token.measure,
    "boundary": knowledge.measure,
    "detect": detection.measure,
    "saliency": edge_saliency.measure,
}
"""What does a part: it adds what it finds to the task's `Part`."""


def study_one(
    model: Any, qa: Asked, settings: Settings, *, packed: bool, budget: int | None,
    stages: Told | None, before: Part | None = None, keep: Callable[[Part], None] | None = None,
) -> Part:  # fmt: skip
    """Do what is not done yet of one set of questions.

    Args:
        model: The model.
        qa: Questions, or answers to them.
        settings: The study's choices.
        packed: Whether to run packed, or one hooked forward pass per cell.
        budget: Bytes that may be taken besides the weights.
        stages: Told of each stage's progress.
        before: What a store has of this set already.
        keep: Called with all that there is whenever a part is done.

    Raises:
        SpecError: The store's answers are not those that the model gives now.
    """
    told = stages or (lambda _: lambda done, total: None)
    answers = answered(model, qa, settings, told)
    part = before or Part.of(answers)
    if part.answers != answers.hash():
        raise SpecError(
            f"The store was made from other answers to {qa.name!r} than these; give another name, "
            f"or delete it."
        )
    examples = examples_of(answers, settings.seed)
    if before is None:
        _count(part, examples)
    task = Task(model, answers, examples, part, settings, packed, budget, told)
    for name in settings.asked:
        if name not in part.done:
            if examples:
                STEPS[name](task)
            part.done.append(name)
            if keep:
                keep(part)
    return part


def answered(model: Any, qa: Asked, settings: Settings, told: Told) -> Answers:
    """The answers to a set of questions: those that came with it, given ones, or the model's."""
    if isinstance(qa, Answers):
        return qa
    assert isinstance(qa, QA)
    how: dict[str, Any] = {"chat": settings.chat, "template": settings.template}
    if settings.answers == "given":
        return given(model, qa, seed=settings.seed, **how)
    return answer(
        model, qa, stop=settings.stop, max_new_tokens=settings.max_new_tokens,
        progress=told(f"{qa.name}: answers"), **how,
    )  # fmt: skip


def _count(part: Part, examples: list[Any]) -> None:
    part.counts["used"] = len(examples)
    if not examples:
        part.reasons.append("No answer was judged and had its exact tokens found.")
    lost = sum(one.control is None for one in examples)
    if lost:
        part.counts["no control"] = lost
        part.reasons.append(f"{lost} prompts are too short for as many random tokens.")
