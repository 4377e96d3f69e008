"""The page of a pathways study: figures, tables, what was not found, and how it was run."""

import json
from collections.abc import Callable
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
    measured = [part(found) for part in _PARTS if _asked(found, part)]
    tables = [
        Section("ΔP at some layers", [study.table(found)]),
        Section("Answers", [study.counts(found), study.share_right(found), *study.reasons(found)]),
        Section("How it was run", _how(found)),
    ]
    return [*made, _aucs(found), *measured, *tables]


def _how(found: Any) -> list[Any]:
    """Provenance: what all models share, then each model's own."""
    attrs = {key: value for key, value in found.attrs.items() if key != "models"}
    models = json.loads(found.attrs.get("models", "{}"))
    rows = [{"name": name, **{key: about[key] for key in ("model", "dtype", "engine", "n_layers")}}
            for name, about in models.items()]  # fmt: skip
    return [*([rows] if rows else []), attrs]


def _drawn(found: Any, reading: Any, title: str) -> Any:
    """One reading's figure, or why there is none."""
    from tlkit.plots import Section
    from tlkit.studies import pathways as study

    try:
        drawn = study.curves(found, reading)
    except SpecError as error:
        return Section(title, [str(error)])
    items: list[Any] = [drawn.attrs["caption"]]
    several = drawn.sizes["dataset"] > 1 or "model" in drawn.dims
    control = "random tokens" in drawn["group"].values
    if several and control:  # as published: solid and dashed; the control has its own figure
        items.append(_curve(drawn.sel(group=drawn["group"].values[:2]), "delta_p", title))
        items.append("The same knockout of as many random tokens, on all examples:")
        items.append(_curve(drawn.sel(group=["random tokens"]), "delta_p", f"{title}: control"))
    else:
        items.append(_curve(drawn, "delta_p", title))
    return Section(title, items)


def _curve(drawn: Any, variable: str, title: str, dash: str = "group") -> Any:
    """A curve for each set and group, one panel a model; one set alone gives groups the colours."""
    from tlkit.plots import curve

    panel = "model" if drawn.sizes.get("model", 1) > 1 else None
    alone = drawn.sizes["dataset"] == 1
    if alone:
        drawn = drawn.squeeze("dataset")
    if panel is None and "model" in drawn.dims:
        drawn = drawn.squeeze("model")
    sides: dict[str, Any] = {"lines": dash} if alone else {"lines": "dataset", "dash": dash}
    return curve(drawn, "layer", variable=variable, panel=panel, title=title, **sides)


def _aucs(found: Any) -> Any:
    from tlkit.plots import Section
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
    return Section(title, [text, _curve(drawn, "probe_auc", title, "control")])


def _cuts(found: Any) -> Any:
    from tlkit.plots import Section
    from tlkit.studies import pathways as study

    drawn = study.by_cut(found)
    title = "By layer and window"
    items: list[Any] = ["Each cut has groups of its own: whose verdict it turned. ΔP of the class "
                        "that was predicted first."]  # fmt: skip
    for name in drawn["condition"].values.tolist():
        items.append(_curve(drawn.sel(condition=name), "delta_p", name))
    return Section(title, items)


def _places(found: Any) -> Any:
    from tlkit.plots import Section
    from tlkit.studies import pathways as study

    text = "The layer of the largest AUC at each site and position, and the controls."
    return Section("Probes by layer, site and position", [text, study.places(found)])


def _tokens(found: Any) -> Any:
    from tlkit.plots import Section
    from tlkit.studies import pathways as study

    text = (
        "How often a right answer that the probe took for right is taken for wrong once tokens "
        "were replaced, at the layer whose probe tells best."
    )
    return Section("Replaced tokens", [text, study.flips(found)])


def _boundary(found: Any) -> Any:
    from tlkit.plots import Section
    from tlkit.studies import pathways as study

    items: list[Any] = ["Accuracy, and how often the model says that it does not know when it may."]
    try:
        drawn = study.boundary(found)
        items += [_curve(drawn, name, name.replace("_", " ")) for name in
                  ("accuracy", "unknown_rate", "popularity")]  # fmt: skip
        items.append(_curve(study.awareness(found), "awareness_auc", "self-awareness", "control"))
    except SpecError as error:
        items.append(str(error))
    return Section("What the groups know", items)


def _detectors(found: Any) -> Any:
    from tlkit.plots import Section
    from tlkit.studies import pathways as study

    text = "AUC on questions that were not seen; the difference is from the single probe."
    return Section("Detectors of wrong answers", [text, study.detectors(found)])


def _saliency(found: Any) -> Any:
    from tlkit.plots import Section, plot
    from tlkit.studies import pathways as study

    text = "Density of the examples along the saliency of edges from question to answer."
    return Section("Saliency", [text, plot(study.saliency_density(found))])


# What a part is drawn by, and the variable that says whether it was measured.
_PARTS: dict[Callable[[Any], Any], str] = {
    _cuts: "p_wrong_cut", _places: "place_auc", _tokens: "flip_rate_n", _boundary: "right",
    _detectors: "detector_auc", _saliency: "saliency",
}  # fmt: skip


def _asked(found: Any, part: Callable[[Any], Any]) -> bool:
    """Whether a part was measured, anywhere."""
    name = _PARTS[part]
    return name in found and bool(found[name].notnull().any())
