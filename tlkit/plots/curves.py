"""Curves against layer, position or strength, with an interval over examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from tlkit.errors import SpecError
from tlkit.plots import style
from tlkit.plots.labels import axis, safe, ticks
from tlkit.plots.selection import REPEATS, example_of, fixed, narrowed, pick
from tlkit.results.statistics import Interval, mean_interval

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class _Line:
    name: str
    colour: str
    dash: str
    values: xr.DataArray


def curve(
    data: xr.DataArray | xr.Dataset,
    x: str = "layer",
    *,
    lines: str | None = None,
    dash: str | None = None,
    panel: str | None = None,
    over: str | None = None,
    band: str | None = "95%",
    example: int | None = None,
    variable: str | None = None,
    metric: str | None = None,
    select: Mapping[str, Any] | None = None,
    tokens: Sequence[str] | None = None,
    title: str | None = None,
) -> go.Figure:
    """Means against one dimension, with Student's t band over the repeats.

    Args:
        data: an array, or a dataset together with `variable` and `metric`.
        x: dimension across.
        lines: a dimension with a colour for each label.
        dash: a dimension with a dash for each label: solid, dashed, dotted, …
        panel: a dimension to draw side by side, with one scale for y.
        over: the dimension of the repeats that the band is about; the first there is of
            example, document, fold and seed when not said. Other repeats are averaged.
        band: the level of the band such as "95%", or None for no band.
        example: one example, drawn without a band.
        variable: which variable of a dataset; `effect` when not said.
        metric: which metric; the first when not said.
        select: dimension to label, for dimensions that the curve has no room for.
        tokens: labels along `pos`, in place of the dataset's own.
        title: title in place of the one that names what is fixed.
    """
    full = example_of(pick(data, variable, metric, select), example)
    level = _level(band)
    shown = [d for d in (x, lines, dash, panel) if d]
    repeats = [d for d in REPEATS if d in full.dims and d not in shown]
    over = over or (repeats[0] if repeats else None)
    mean = full.mean([d for d in repeats if d != over], keep_attrs=True)
    array = narrowed(mean, [*shown, *([over] if over else [])])
    panels = (
        [array] if panel is None else [array.isel({panel: i}) for i in range(array.sizes[panel])]
    )
    scale = ticks(full, x, tokens=tokens if x == "pos" else None)
    names = [] if panel is None else [safe(part[panel].item()) for part in panels]
    figure = _empty(names, len(panels))
    for column, part in enumerate(panels, start=1):
        for line in _split(part, lines, dash):
            _draw(figure, column, line, x, over, level, scale.names)
        figure.update_xaxes(
            {
                **axis(scale, safe(style.words(x)), most=25 if len(panels) == 1 else 18),
                "showgrid": False,
            },
            col=column,
        )
    figure.update_yaxes(title_text=safe(style.quantity(full)), col=1)
    about = title if title is not None else fixed(array)
    figure.update_layout(
        template=style.template(),
        title={"text": safe(about)},
        height=440 if about or names else 400,
        margin={"t": 64 if about else (40 if names else 24)},
        width=int(np.clip(120 + 620 * len(panels), 760, 1400)),
        showlegend=bool(lines or dash or over),
        hovermode="closest",
        legend=_legend(len(panels)),
    )
    return figure


def _empty(names: list[str], columns: int) -> go.Figure:
    from plotly.subplots import make_subplots

    return make_subplots(
        cols=columns, shared_yaxes=True, horizontal_spacing=0.04, subplot_titles=names
    )


def _split(part: xr.DataArray, lines: str | None, dash: str | None) -> Iterator[_Line]:
    """One line a combination: the colour says the first dimension, the dash the second."""
    outer = range(part.sizes[lines]) if lines else [None]
    inner = range(part.sizes[dash]) if dash else [None]
    for i in outer:
        for j in inner:
            where = {d: k for d, k in ((lines, i), (dash, j)) if d is not None}
            values = part.isel(where)
            name = ", ".join(str(values[d].item()) for d in where)
            yield _Line(
                name,
                style.LINES[(i or 0) % len(style.LINES)],
                style.DASHES[(j or 0) % len(style.DASHES)],
                values,
            )


def _draw(
    figure: go.Figure,
    column: int,
    line: _Line,
    x: str,
    over: str | None,
    level: float | None,
    names: list[str],
) -> None:
    import plotly.graph_objects as go

    places = list(range(line.values.sizes[x]))
    found = _summary(line.values, x, over, level)
    label = safe(line.name or "mean") + (f" ({_count(found.n)})" if over else "")
    group = line.name or "all"
    if level is not None and over is not None:
        figure.add_trace(_band(found, line.colour, group), row=1, col=column)
    figure.add_trace(
        go.Scatter(
            x=places,
            y=found.mean,
            mode="lines+markers" if len(places) <= 80 else "lines",
            line={"color": line.colour, "dash": line.dash, "width": 2},
            marker={"size": 5},
            name=label,
            legendgroup=group,
            showlegend=column == 1 and bool(line.name or over),
            text=_hover(x, names, found, over),
            hovertemplate=f"<b>{label}</b><br>%{{text}}<extra></extra>",
        ),
        row=1,
        col=column,
    )


def _band(found: Interval, colour: str, group: str) -> Any:
    """The interval as closed shapes, one for each stretch of x that has bounds."""
    import plotly.graph_objects as go

    there = np.isfinite(found.low) & np.isfinite(found.high)
    x: list[float | None] = []
    y: list[float | None] = []
    for stretch in np.split(np.arange(there.size), np.flatnonzero(np.diff(there)) + 1):
        if stretch.size and there[stretch[0]]:
            x += [*stretch.tolist(), *stretch[::-1].tolist(), None]
            y += [*found.high[stretch].tolist(), *found.low[stretch[::-1]].tolist(), None]
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return go.Scatter(
        x=x,
        y=y,
        mode="lines",
        line={"width": 0},
        fill="toself",
        fillcolor=f"rgba({red},{green},{blue},0.16)",
        legendgroup=group,
        showlegend=False,
        hoverinfo="skip",
    )


def _summary(values: xr.DataArray, x: str, over: str | None, level: float | None) -> Interval:
    if over is None:
        mean = values.transpose(x).values
        nothing = np.full(mean.shape, np.nan)
        return Interval(mean, nothing, nothing, np.ones(mean.shape, int))
    return mean_interval(values.transpose(x, over).values, level=level or 0.95)


def _hover(x: str, names: list[str], found: Interval, over: str | None) -> list[str]:
    rows = []
    for name, mean, low, high, n in zip(names, *found, strict=True):
        row = f"{safe(style.words(x))} {name}: {mean:.4g}"
        rows.append(row if over is None else f"{row} [{low:.4g}, {high:.4g}], n = {n}")
    return rows


def _count(n: np.ndarray) -> str:
    low, high = int(n.min(initial=n.max(initial=0))), int(n.max(initial=0))
    return f"n = {high}" if low == high else f"n = {low}-{high}"


def _legend(columns: int) -> dict[str, Any]:
    if columns == 1:
        return {"x": 1.02, "y": 1, "xanchor": "left", "yanchor": "top"}
    return {"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.22, "yanchor": "top"}


def _level(band: str | None) -> float | None:
    if band is None:
        return None
    try:
        level = float(band.removesuffix("%")) / 100
    except ValueError:
        level = float("nan")
    if not 0 < level < 1:
        raise SpecError(f"A band of {band!r} is no level: give one such as '95%', or None.")
    return level
