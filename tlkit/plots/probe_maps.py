"""Layer probes: heat maps of a score, model by layer, and prompts as points of a plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import xarray as xr

from tlkit.errors import SpecError
from tlkit.plots import style
from tlkit.plots.heatmaps import heatmap
from tlkit.plots.labels import safe
from tlkit.plots.selection import pick

if TYPE_CHECKING:
    import plotly.graph_objects as go

SITES = {"resid_post": "Layer output", "attn_out": "Attention output", "mlp_out": "MLP output"}
CHANCE, PERFECT = 0.5, 1.0
"""Ends of the colour scale: red at chance, as the paper's figure has it, and below."""


def score_maps(
    ds: xr.Dataset,
    variable: str = "f1",
    *,
    select: Mapping[str, Any] | None = None,
    title: str | None = None,
) -> go.Figure:
    """One map per site, rows models, columns layers; a layer that a model lacks is blank.

    Args:
        ds: a dataset of `tlkit.layer_probes.run`.
        variable: the score.
        select: dimension to label, to draw a part.
        title: title in place of the one that says what was done.
    """
    data = pick(ds, variable, None, select)
    panel = "site" if "site" in data.dims else None
    figure = heatmap(
        data, "layer", "model", panel=panel, limits=(CHANCE, PERFECT),
        title=title if title is not None else _title(ds, data, variable),
    )  # fmt: skip
    if title is None:  # without the note on grey cells: these are blank
        figure.update_layout(title={"text": safe(_title(ds, data, variable))})
    figure.update_layout(plot_bgcolor="white", coloraxis={"colorscale": style.QUALITY})
    figure.for_each_annotation(lambda note: note.update(text=SITES.get(note.text, note.text)))
    return figure


def _title(ds: xr.Dataset, data: xr.DataArray, variable: str) -> str:
    """The score, of what, from which features, and how it was tested."""
    positive = f" of {ds.attrs['positive']!r}" if "positive" in ds.attrs else ""
    parts = [f"{style.words(variable)}{positive}"]
    mode = ds.attrs.get("mode")
    if "features" in ds.attrs:
        joint = f", {mode}" if ds.attrs["features"] == "cp" and mode else ""
        parts.append(f"{ds.attrs['features']} features{joint}")
    parts += [str(ds.attrs[name]) for name in ("classifier",) if name in ds.attrs]
    if "fold" in data.dims:
        parts.append(f"mean of {data.sizes['fold']} folds")
    return ", ".join(parts)


def scatter(ds: xr.Dataset, title: str | None = None) -> go.Figure:
    """Prompts as points, coloured by class; pointing at one shows its text.

    Args:
        ds: a dataset of `tlkit.layer_probes.projection`.
        title: title in place of the one that says what was done.
    """
    import plotly.graph_objects as go

    if "x" not in ds or "y" not in ds:
        raise SpecError("A scatter needs x and y of prompts, such as layer_probes.projection has.")
    figure = go.Figure()
    for colour, name in zip(style.LINES, dict.fromkeys(ds["label"].values.tolist()), strict=False):
        part = ds.isel(example=(ds["label"] == name).values)
        shown = [safe(text if len(text) <= 120 else text[:119] + "…")
                 for text in part["text"].values.tolist()]  # fmt: skip
        figure.add_trace(go.Scatter(
            x=part["x"].values, y=part["y"].values, mode="markers", name=safe(name),
            marker={"color": colour, "size": 7, "opacity": 0.75}, text=shown,
            hovertemplate="%{text}<extra></extra>",
        ))  # fmt: skip
    about = title if title is not None else str(ds.attrs.get("about", ""))
    figure.update_layout(
        template=style.template(), title={"text": safe(about)}, width=720, height=560,
        legend={"title": {"text": "label"}},
    )  # fmt: skip
    return figure
