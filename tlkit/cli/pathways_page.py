"""The page of a pathways study: figures, tables, what was not found, and how it was run."""

from typing import Any

from tlkit.errors import SpecError

TITLES = {
    "group": "Groups by verdict flip",
    "held_out": "Groups found by other probes",
    "knockout": "Knockout at question and answer",
    "patch": "Patching at question and answer",
}


def sections(found: Any) -> list[Any]:
    """A report's sections.

    Args:
        found: What `tk.pathways.run` gave.
    """
    from tlkit.plots import Section
    from tlkit.studies import pathways as study

    made = [_drawn(found, reading, title) for reading, title in TITLES.items()]
    tables = [
        Section("ΔP at some layers", [study.table(found)]),
        Section("Answers", [study.counts(found), study.share_right(found), *study.reasons(found)]),
        Section("How it was run", [dict(found.attrs)]),
    ]
    return [*made, _aucs(found), *tables]


def _drawn(found: Any, reading: Any, title: str) -> Any:
    """One reading's figure, or why there is none."""
    from tlkit.plots import Section, curve
    from tlkit.studies import pathways as study

    try:
        drawn = study.curves(found, reading)
    except SpecError as error:
        return Section(title, [str(error)])
    several = drawn.sizes["dataset"] > 1  # one set alone: its groups get the colours
    sides: dict[str, Any] = {"lines": "dataset", "dash": "group"} if several else {"lines": "group"}
    figure = curve(drawn.squeeze("dataset") if not several else drawn, "layer", variable="delta_p",
                   title=title, **sides)  # fmt: skip
    return Section(title, [drawn.attrs["caption"], figure])


def _aucs(found: Any) -> Any:
    from tlkit.plots import Section, curve
    from tlkit.studies import pathways as study

    title = "What probes can tell"
    try:
        drawn = study.aucs(found)
    except SpecError as error:
        return Section(title, [str(error)])
    text = (
        "How often a probe gives a wrong answer more than a right one, on questions that it has "
        "not seen; beside it probes that were taught shuffled labels. The band is over divisions "
        "of the questions."
    )
    figure = curve(
        drawn, "layer", variable="probe_auc", lines="dataset", dash="control", title=title
    )
    return Section(title, [text, figure])
