"""The lines of a curve figure: means, their bands, and what hovering says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from tlkit.plots import style
from tlkit.plots.labels import safe
from tlkit.results.statistics import Interval, mean_interval

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Line:
    """What one line of a figure shows, and how it looks."""

    name: str
    colour: str
    dash: str
    values: xr.DataArray


def split(part: xr.DataArray, lines: str | None, dash: str | None) -> Iterator[Line]:
    """One line a combination: the colour says the first dimension, the dash the second."""
    outer = range(part.sizes[lines]) if lines else [None]
    inner = range(part.sizes[dash]) if dash else [None]
    for i in outer:
        for j in inner:
            where = {d: k for d, k in ((lines, i), (dash, j)) if d is not None}
            values = part.isel(where)
            name = ", ".join(str(values[d].item()) for d in where)
            yield Line(
                name,
                style.LINES[(i or 0) % len(style.LINES)],
                style.DASHES[(j or 0) % len(style.DASHES)],
                values,
            )


def draw(
    figure: go.Figure,
    column: int,
    line: Line,
    x: str,
    over: str | None,
    level: float | None,
    names: list[str],
    counted: np.ndarray | None = None,
) -> None:
    """Adds a line and its band to a column; the legend says `counted`, n over all columns."""
    import plotly.graph_objects as go

    places = list(range(line.values.sizes[x]))
    found = _summary(line.values, x, over, level)
    sizes = found.n if counted is None else counted
    label = safe(line.name or "mean") + (f" ({_count(sizes)})" if over else "")
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
