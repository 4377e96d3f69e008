"""Curves against layer, position or strength, with an interval over examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from tlkit.errors import SpecError
from tlkit.plots import style
from tlkit.plots.labels import axis, safe, ticks
from tlkit.plots.selection import REPEATS, example_of, fixed, narrowed, pick
from tlkit.plots.traces import draw, split

if TYPE_CHECKING:
    import plotly.graph_objects as go


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
    one_scale: bool = True,
    title: str | None = None,
) -> go.Figure:
    """Means against one dimension, with Student's t band over the repeats.

    Args:
        data: an array, or a dataset together with `variable` and `metric`.
        x: dimension across.
        lines: a dimension with a colour for each label.
        dash: a dimension with a dash for each label: solid, dashed, dotted, …
        panel: a dimension to draw side by side.
        over: the dimension of the repeats that the band is about; the first there is of
            example, document, fold and seed when not said. Other repeats are averaged.
        band: the level of the band such as "95%", or None for no band.
        example: one example, drawn without a band.
        variable: which variable of a dataset; `effect` when not said.
        metric: which metric; the first when not said.
        select: dimension to label, for dimensions that the curve has no room for.
        tokens: labels along `pos`, in place of the dataset's own.
        one_scale: whether all panels share one scale for y, or have each its own.
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
    figure = _empty(names, len(panels), one_scale=one_scale)
    across = axis(scale, safe(style.words(x)), most=25 if len(panels) == 1 else 18)
    counted = _counted(panels, lines, dash, x, over)
    for column, part in enumerate(panels, start=1):
        for line in split(part, lines, dash):
            draw(figure, column, line, x, over, level, scale.names, counted.get(line.name))
        figure.update_xaxes(across, col=column)
    figure.update_yaxes(title_text=safe(style.quantity(full)), col=1)
    about = title if title is not None else fixed(array)
    _lay_out(figure, safe(about), len(panels), named=bool(names))
    figure.update_layout(showlegend=bool(lines or dash or over))
    return figure


def _lay_out(figure: go.Figure, title: str, panels: int, *, named: bool) -> None:
    figure.update_layout(
        template=style.template(),
        title={"text": title},
        height=440 if title or named else 400,
        margin={"t": 64 if title else (40 if named else 24)},
        width=int(np.clip(120 + 620 * panels, 760, 1400)),
        hovermode="closest",
        legend=_legend(panels),
    )


def _empty(names: list[str], columns: int, *, one_scale: bool) -> go.Figure:
    from plotly.subplots import make_subplots

    return make_subplots(
        cols=columns,
        shared_yaxes=one_scale,
        subplot_titles=names,
        horizontal_spacing=0.04 if one_scale else 0.16 / columns,
    )


def _legend(columns: int) -> dict[str, Any]:
    if columns == 1:
        return {"x": 1.02, "y": 1, "xanchor": "left", "yanchor": "top"}
    # At the figure's own edge, which keeps room for it: below the axis long tokens would reach it.
    return {"orientation": "h", "x": 0.5, "xanchor": "center", "yref": "container", "y": 0.01,
            "yanchor": "bottom"}  # fmt: skip


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


def _counted(
    panels: Sequence[xr.DataArray], lines: str | None, dash: str | None, x: str, over: str | None
) -> dict[str, np.ndarray]:
    """How many repeats each line has at each x, over all panels: there is one legend."""
    found: dict[str, list[np.ndarray]] = {}
    for part in panels if over and len(panels) > 1 else ():
        for line in split(part, lines, dash):
            there = line.values.notnull().sum(over).values.ravel()
            # A panel that does not reach so far (a model with fewer layers) has no n there.
            found.setdefault(line.name, []).append(there[there > 0] if there.any() else there[:1])
    return {name: np.concatenate(several) for name, several in found.items()}
