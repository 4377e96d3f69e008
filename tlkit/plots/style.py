"""The house style: one template, colours that colour-blind readers can tell apart, words."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from tlkit.results.units import units_of

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", Arial, sans-serif'
INK = "#1f2430"
GRID = "#e3e6ea"
MISSING = "#cfd3d8"
"""What shows through a heat map where there is no number."""
MARK = "#b3261e"
"""The colour of a token that differs between the two prompts."""

LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
"""Okabe and Ito's palette, most distinct first."""
DASHES = ("solid", "dash", "dot", "dashdot")
DIVERGING = "RdBu_r"
SEQUENTIAL = "Blues"
QUALITY = "RdYlGn"
"""From chance to perfect, for scores of a classifier."""

SIGNED = {"effect", "recovered", "delta_p", "delta_p_control", "answer_only_delta_p", "effect_size"}
SCORES = {"F1", "AUC"}

WORDS = {
    "pos": "token position",
    "kv_head": "key/value head",
    "query": "query position",
    "key": "key position",
    "delta_p": "ΔP",
    "delta_p_control": "ΔP of the control",
    "answer_only_delta_p": "ΔP of the answer alone",
    "recovered": "recovered (0 = corrupted, 1 = clean)",
    "f1": "F1",
    "f1_control": "F1 of the control",
    "auc": "AUC",
    "kl": "KL divergence",
    "attention_weight": "average attention weight",
    "probe_auc": "AUC of the probe",
    "detector_auc": "AUC of the detector",
    "answer_prob": "probability of the answer",
    "variance": "variance score",
}


def words(name: str) -> str:
    """A name of the schema as a reader says it."""
    return WORDS.get(name, name.replace("_", " "))


def subject(data: xr.DataArray) -> str:
    """What an array holds, with its metric where one is chosen."""
    name, metric = words(str(data.name)), data.coords.get("metric")
    if metric is not None and metric.ndim == 0:
        return f"{name}: {words(str(metric.item()))}"
    return name


def quantity(data: xr.DataArray) -> str:
    """What an array holds and in which unit, for an axis or a colour bar."""
    name, units = subject(data), units_of(data)
    if not units or units.lower() in name.lower() or data.name == "recovered":
        return name
    return f"{name} ({units})"


def colours(
    data: xr.DataArray, limits: tuple[int | float, int | float] | None = None
) -> dict[str, Any]:
    """Colour scale and range: centred on 0 for what has a sign, from 0 for the rest."""
    values = np.asarray(data.values, dtype=float)
    finite = values[np.isfinite(values)]
    units = units_of(data)
    if data.name in SIGNED or (finite < 0).any():
        reach = float(np.abs(finite).max(initial=0.0)) or 1.0
        scale, fitting = DIVERGING, (-reach, reach)
    elif units in SCORES:
        scale, fitting = QUALITY, (min(0.5, float(finite.min(initial=1.0))), 1.0)
    else:
        scale, fitting = SEQUENTIAL, (0.0, float(finite.max(initial=0.0)) or 1.0)
    low, high = limits or fitting
    return {"colorscale": scale, "cmin": float(low), "cmax": float(high)}


def template() -> dict[str, Any]:
    """The layout that every figure starts from."""
    axis = {
        "showgrid": True,
        "gridcolor": GRID,
        "zeroline": False,
        "showline": True,
        "linecolor": "#9aa1ab",
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": "#9aa1ab",
        "automargin": True,
        "exponentformat": "power",
        "title": {"standoff": 10, "font": {"size": 14}},
        "tickfont": {"size": 12},
    }
    return {
        "layout": {
            "font": {"family": FONT, "size": 13, "color": INK},
            "title": {"x": 0, "xref": "container", "xanchor": "left", "pad": {"l": 16}},
            "paper_bgcolor": "white",
            "plot_bgcolor": "white",
            "colorway": list(LINES),
            "xaxis": axis,
            "yaxis": axis,
            "margin": {"l": 64, "r": 24, "t": 64, "b": 56},
            "hoverlabel": {"font": {"family": FONT, "size": 13}, "align": "left"},
            "coloraxis": {
                "colorbar": {
                    "thickness": 14,
                    "exponentformat": "power",
                    "title": {"side": "top", "font": {"size": 12}},
                }
            },
        }
    }
