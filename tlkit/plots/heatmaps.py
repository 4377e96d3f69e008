"""Heat maps: layer by position, layer by head, model by layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from tlkit.errors import SpecError
from tlkit.plots import style
from tlkit.plots.labels import Ticks, axis, safe, ticks
from tlkit.plots.selection import REPEATS, example_of, fixed, narrowed, pick
from tlkit.results.units import units_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

UPRIGHT = ("layer", "query", "model", "metric")
"""Dimensions that stand on the left when not said otherwise."""
NAMES = ("model", "query", "metric", "site", "dataset", "condition", "kind", "group")
"""Dimensions that are listed from the top down."""


def heatmap(
    data: xr.DataArray | xr.Dataset,
    x: str | None = None,
    y: str | None = None,
    *,
    example: int | None = None,
    variable: str | None = None,
    metric: str | None = None,
    select: Mapping[str, Any] | None = None,
    panel: str | None = None,
    tokens: Sequence[str] | None = None,
    source_tokens: Sequence[str] | None = None,
    limits: tuple[int | float, int | float] | None = None,
    title: str | None = None,
) -> go.Figure:
    """A heat map of two dimensions, averaged over examples or of one of them.

    Cells without a number are grey; where cells are means of unequally many, pointing at one says
    of how many. Every position keeps its own column, whatever the
    tokens are; a tick shows the token of the example, or of all examples where they agree.

    Args:
        data: an array, or a dataset together with `variable` and `metric`.
        x: dimension across; the one that is left when not said.
        y: dimension on the left; layer, query or model when not said.
        example: the example to draw instead of the mean over all.
        variable: which variable of a dataset; `effect` when not said.
        metric: which metric; the first when not said.
        select: dimension to label, for dimensions that the map has no room for.
        panel: a dimension to draw side by side, on one colour scale.
        tokens: labels along `pos`, in place of the dataset's own.
        source_tokens: the other prompt's aligned tokens; those that differ are marked.
        limits: ends of the colour scale, in the data's unit.
        title: title in place of the one that names what is fixed and averaged.

    Raises:
        SpecError: more dimensions are left than a heat map has, or names do not exist.
    """
    full = example_of(pick(data, variable, metric, select), example)
    over = [dim for dim in REPEATS if dim in full.dims and dim not in (x, y, panel)]
    mean = full.mean(over, keep_attrs=True)
    x, y = _sides(mean, x, y, panel)
    mean = narrowed(mean, [d for d in (x, y, panel) if d])
    given = {"pos": {"tokens": tokens, "source_tokens": source_tokens}}
    scales = {dim: ticks(full, dim, **given.get(dim, {})) for dim in (x, y)}
    panels = [mean] if panel is None else [mean.isel({panel: i}) for i in range(mean.sizes[panel])]
    figure = _figure(panels, panel, x, y, scales)
    _tell_counts(figure, full, over, (x, y, panel))
    shades = style.colours(mean, limits)
    bar = {"title": {"text": safe(units_of(mean))}}
    figure.update_layout(coloraxis={**shades, "colorbar": bar})
    grey = " (grey: no value)" if np.isnan(mean.values).any() else ""
    about = title if title is not None else _title(full, over, example, panel) + grey
    figure.update_layout(title={"text": safe(about)})
    return figure


def _tell_counts(
    figure: go.Figure, full: xr.DataArray, over: Sequence[str], kept: Sequence[str | None]
) -> None:
    """Where prompts of unequal length share a map: how many have each cell."""
    counts = full.notnull().sum(over)
    held = counts.values[counts.values > 0]
    if held.size == 0 or held.min() == held.max():
        return
    counts = narrowed(counts, [d for d in kept if d])
    x, y, panel = kept
    total = math.prod(full.sizes[dim] for dim in over)
    traces: Any = figure.data
    for i, trace in enumerate(traces):
        part = counts if panel is None else counts.isel({panel: i})
        trace.customdata = part.transpose(y, x).values
        more = f"<br>mean of %{{customdata}} of {total}<extra></extra>"
        trace.hovertemplate = trace.hovertemplate.replace("<extra></extra>", more)


def _sides(mean: xr.DataArray, x: str | None, y: str | None, panel: str | None) -> tuple[str, str]:
    free = [str(d) for d in mean.dims if d not in (x, y, panel) and mean.sizes[d] > 1]
    if x is None and y is None and len(free) < 2:  # a map may be one cell wide
        free += [str(d) for d in mean.dims if d != panel and d not in free]
    if y is None:
        y = next((dim for dim in UPRIGHT if dim in free), free[0] if free else None)
        free = [dim for dim in free if dim != y]
    if x is None:
        x = free[0] if free else None
    if x is None or y is None:
        have = ", ".join(map(str, mean.dims)) or "none"
        raise SpecError(
            f"A heat map needs two dimensions and '{mean.name}' has {have}: draw a curve instead."
        )
    return x, y


def _figure(
    panels: list[xr.DataArray], panel: str | None, x: str, y: str, scales: dict[str, Ticks]
) -> go.Figure:
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    names = [] if panel is None else [safe(part[panel].item()) for part in panels]
    figure = make_subplots(
        cols=len(panels), shared_yaxes=True, horizontal_spacing=0.03, subplot_titles=names
    )
    for column, part in enumerate(panels, start=1):
        values = part.transpose(y, x).values.astype(np.float32)
        cells = go.Heatmap(
            z=values,
            x=scales[x].values,
            y=scales[y].values,
            text=_hover(scales, x, y, values.size),
            hovertemplate=_template(x, y, values.size),
            coloraxis="coloraxis",
            hoverongaps=False,
            xgap=1 if values.shape[1] <= 100 else 0,
            ygap=1 if values.shape[0] <= 100 else 0,
        )
        figure.add_trace(cells, row=1, col=column)
        across = axis(scales[x], safe(style.words(x)), most=33 if len(panels) == 1 else 17)
        figure.update_xaxes({**across, "tickangle": _angle(scales[x])}, row=1, col=column)
    upwards = axis(scales[y], safe(style.words(y)))
    if y in NAMES:  # a list reads from the top
        upwards["range"] = upwards["range"][::-1]
    figure.update_yaxes({**upwards, "title": {"text": ""}})
    figure.update_yaxes(title=upwards["title"], row=1, col=1)
    rows = len(scales[y].values)
    figure.update_layout(
        template=style.template(),
        plot_bgcolor=style.MISSING,
        height=int(np.clip(150 + 20 * rows, 300, 1000)),
        width=int(np.clip(220 + len(panels) * max(22 * len(scales[x].values), 320), 560, 1400)),
    )
    return figure


def _hover(scales: dict[str, Ticks], x: str, y: str, size: int) -> list[list[str]] | None:
    if size > 20_000:
        return None
    return [
        [
            f"{safe(style.words(y))} {up}<br>{safe(style.words(x))} {along}"
            for along in scales[x].names
        ]
        for up in scales[y].names
    ]


def _template(x: str, y: str, size: int) -> str:
    where = f"{y} %{{y}}, {x} %{{x}}" if size > 20_000 else "%{text}"
    return f"{where}<br><b>%{{z:.4g}}</b><extra></extra>"


def _angle(scale: Ticks) -> int:
    return -60 if any(len(name) > 3 for name in scale.names) and len(scale.names) > 8 else 0


def _title(full: xr.DataArray, over: Sequence[Any], example: int | None, panel: str | None) -> str:
    about = [style.subject(full)]
    if place := fixed(full.squeeze([d for d in full.dims if full.sizes[d] == 1 and d != panel])):
        about.append(place)
    if example is not None:
        about.append(f"example {example}")
    about += [f"mean of {full.sizes[dim]} {dim}s" for dim in over if full.sizes[dim] > 1]
    return ", ".join(about)
