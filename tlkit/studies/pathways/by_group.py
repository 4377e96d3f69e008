"""The group reading of one set of questions, as part of a study (see `group`)."""

from tlkit.studies.pathways.group import group_reading, read
from tlkit.studies.pathways.part import AUCS, BY_PROBE
from tlkit.studies.pathways.task import Task


def measure(task: Task) -> None:
    """Add the group reading, or why there is none."""
    if not task.probed("The group reading"):
        return
    name, settings = task.answers.name, task.settings
    features = read(
        task.parts, task.examples, mode=settings.mode, packed=task.packed, budget=task.budget,
        progress=task.told(f"{name}: knockouts"),
    )  # fmt: skip
    task.base = features["base"]  # other parts read the same states
    found = group_reading(
        features, task.wrong, task.groups, settings.probing, task.told(f"{name}: probes")
    )
    for variable, unit in BY_PROBE.items():
        task.part.add(variable, ("layer", "example"), found[variable], unit, task.examples)
    for variable in AUCS:
        task.part.add(variable, ("layer", "seed"), found[variable], "AUC")
