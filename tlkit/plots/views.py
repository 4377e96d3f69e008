"""Which picture a dataset gets: chosen by its study, else by its dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xarray as xr

from tlkit.errors import SpecError
from tlkit.plots.curves import curve
from tlkit.plots.heatmaps import heatmap
from tlkit.plots.probe_maps import scatter, score_maps
from tlkit.plots.selection import REPEATS, default_variable, pick

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class View:
    """The usual picture of a study; dimensions that a dataset lacks are left out."""

    variable: str
    x: str = "layer"
    y: str | None = None
    """With y it is a heat map, without a curve."""
    lines: str | None = None
    dash: str | None = None
    panel: str | None = None
    one_scale: bool = True
    """Whether the panels of a curve share a scale."""


VIEWS: dict[str, View] = {
    "pathways": View("delta_p", lines="dataset", dash="group", panel="model"),
    "pathways cuts": View("delta_p", lines="dataset", dash="group", panel="condition"),
    "pathways probes": View("probe_auc", lines="dataset", dash="control", panel="model"),
    "pathways awareness": View("awareness_auc", lines="dataset", dash="control", panel="model"),
    "pathways boundary": View("accuracy", lines="dataset", dash="group", panel="model"),
    "pathways saliency": View("density", x="saliency", lines="dataset", panel="model"),
    "conditions": View("attention_weight", x="pos", lines="condition"),
    "condition lines": View(
        "attention_weight", x="pos", lines="condition", panel="group", one_scale=False
    ),
    "logit_lens": View("value", lines="metric"),
    "direct_logit_attribution": View("head_attribution", x="head", y="layer"),
    "head_scores": View("score", x="head", y="layer", panel="kind"),
    "variance by layer": View("layer_variance", lines="model", panel="group", one_scale=False),
    "hidden norms": View("norm", x="pos", y="layer", panel="group"),
    "attention maps": View("log_attention", x="key", y="query", panel="group"),
    "ablation": View("kl", lines="model", panel="site"),
    "ablation by layer": View("effect", lines="model", panel="site"),
    "ablation difference": View("difference", lines="site"),
    "abliteration": View("candidate_score", x="pos", y="layer"),
}

PROBE_SCORES = ("f1", "macro_f1", "balanced_accuracy", "auc")
"""Scores of layer probes, drawn for all models, sites and layers at once."""


def plot(
    ds: xr.Dataset,
    *,
    variable: str | None = None,
    metric: str | None = None,
    example: int | None = None,
    select: Mapping[str, Any] | None = None,
    title: str | None = None,
) -> go.Figure:
    """The picture that a dataset's schema asks for.

    A study's own datasets get its usual figure. Any other dataset gets a curve for one
    dimension and a heat map for two; examples, documents, folds and seeds are averaged.

    Args:
        ds: a dataset of `tlkit.run` or of a study.
        variable: what to draw, in place of the usual one.
        metric: which metric; the first when not said.
        example: the example to draw instead of the mean.
        select: dimension to label, for dimensions that the picture has no room for.
        title: title in place of the one that names what is fixed and averaged.

    Raises:
        SpecError: more dimensions are left than a picture has, with what to select.
    """
    if not isinstance(ds, xr.Dataset):
        raise SpecError(f"plot draws a Dataset, such as tk.run gives; got a {type(ds).__name__}.")
    if variable is None and not select:
        ds = _PREPARED.get(str(ds.attrs.get("study", "")), lambda whole: whole)(ds)
    if ds.attrs.get("study") == "layer_probes" and variable in (None, *PROBE_SCORES):
        return score_maps(ds, variable or "f1", select=select, title=title)
    if ds.attrs.get("study") == "projection" and variable is None:
        return scatter(ds, title)
    view = VIEWS.get(str(ds.attrs.get("study", "")))
    if view is not None and variable in (None, view.variable) and view.variable in ds.data_vars:
        return _usual(view, ds, metric, example, select, title)
    name = variable or default_variable(ds)
    common = {"example": example, "title": title or _of_what(ds, name)}
    data = pick(ds, name, metric, select)
    free = [str(d) for d in data.dims if d not in REPEATS and data.sizes[d] > 1]
    if len(free) == 1:
        return curve(data, free[0], **common)
    if len(free) == 2:
        return heatmap(data, **common)
    if not free:
        raise SpecError(
            f"'{name}' is one number here, not a picture: read it with ds['{name}'].mean().item()."
        )
    example_label = data[free[-1]].values[0].item()
    raise SpecError(
        f"'{name}' varies along {', '.join(f'{d} ({data.sizes[d]})' for d in free)} and a picture "
        f"has two of them: choose a place, e.g. plot(ds, select={{'{free[-1]}': "
        f"{example_label!r}}})."
    )


def _of_what(ds: xr.Dataset, name: str) -> str | None:
    """The title of a test of heads: what was compared with what."""
    if ds.attrs.get("study") != "changed heads":
        return None
    about = ds.attrs
    plain = name.replace("_", " "), about["statistic"].replace("_", " ")
    return f"{plain[0]} of {plain[1]}: {about['condition']} against {about['against']}"


def _by_group(ds: xr.Dataset) -> xr.Dataset:
    """The curves of a pathways study, its first reading that was measured.

    Of several sets of questions the two groups alone: the control would double the lines.
    """
    if "q_anchored" not in ds and "delta_p_intervention" not in ds:
        return ds
    from tlkit.studies.pathways.part import GROUPS
    from tlkit.studies.pathways.reading import curves

    found = curves(ds)
    return found if found.sizes["dataset"] == 1 else found.sel(group=list(GROUPS))


def _changed_most(ds: xr.Dataset) -> xr.Dataset:
    """The curves of the three heads that the first condition of a study changed most."""
    from tlkit.studies.conditions import changed_heads, lines, ranked

    base = ds.attrs.get("baseline")
    others = [name for name in ds["condition"].values.tolist() if name != base]
    if base is None or not others or "attention_weight" not in ds:
        return ds
    first_token = bool(ds.attrs["first_token"])
    rows = ranked(changed_heads(ds, others[0], first_token=first_token), 3)
    return lines(ds, [(int(row.layer), int(row.head)) for row in rows.itertuples()])


def _temporal(ds: xr.Dataset) -> xr.Dataset:
    """The curves of a variance study, of the kind whose scale published curves have."""
    from tlkit.studies.variance import by_layer

    return by_layer(ds) if "layer_variance" in ds else ds


_PREPARED = {"pathways": _by_group, "conditions": _changed_most, "variance": _temporal}


def _usual(
    view: View,
    ds: xr.Dataset,
    metric: str | None,
    example: int | None,
    select: Mapping[str, Any] | None,
    title: str | None,
) -> go.Figure:
    data = pick(ds, view.variable, metric, select)

    def there(dim: str | None) -> str | None:
        return dim if dim in data.dims and data.sizes[dim] > 1 else None

    common = {"example": example, "title": title, "panel": there(view.panel)}
    if view.y is not None and there(view.x):
        return heatmap(data, view.x, view.y, **common)
    common |= {"lines": there(view.lines), "dash": there(view.dash)}
    # A map of one column is a curve.
    return curve(data, view.y or view.x, one_scale=view.one_scale, **common)
