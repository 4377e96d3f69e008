"""The intervention reading of one set of questions, as part of a study (see `intervention`)."""

from tlkit.studies.pathways.intervention import interventions
from tlkit.studies.pathways.part import INTERVENED
from tlkit.studies.pathways.task import Task


def measure(task: Task) -> None:
    """Add the intervention reading."""
    part, examples, settings, layers = task.part, task.examples, task.settings, task.layers
    found = interventions(
        task.model, examples, layers, mode=settings.mode, seed=settings.seed, packed=task.packed,
        budget=task.budget, progress=task.told(f"{task.answers.name}: patches"),
    )  # fmt: skip
    values = {
        "delta_p_intervention": task.spread(found.delta_p, layers),
        "delta_p_intervention_control": task.spread(found.control, layers),
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
