"""Token labels for axes: readable, never merged, and never taken for markup."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from tlkit.errors import SpecError
from tlkit.plots.style import MARK

LONGEST = 18
MOST_LABELS = 80


@dataclass(frozen=True)
class Ticks:
    """One axis: a place, a tick text and a plain name for every label of a dimension."""

    values: list[int]
    texts: list[str]
    names: list[str]
    marked: bool = False
    """Some ticks are marked as differing between the two prompts."""
    mixed: bool = False
    """Some ticks are numbers, as the examples have different tokens there."""


def visible(token: str, longest: int = LONGEST) -> str:
    """A token as text that shows its spaces and line breaks, shortened in the middle."""
    shown = "".join(_visible_character(c) for c in token)
    if len(shown) > longest:
        half = (longest - 1) // 2
        shown = f"{shown[:half]}…{shown[-half:]}"
    return shown


def safe(text: object) -> str:
    """Text that plotly and HTML show as it is, instead of reading markup in it."""
    return html.escape(str(text), quote=False)


def ticks(
    data: xr.DataArray,
    dim: str,
    *,
    tokens: Sequence[str] | None = None,
    source_tokens: Sequence[str] | None = None,
) -> Ticks:
    """The ticks of one dimension; token labels where the dimension has them.

    Args:
        data: what is drawn, before any averaging. Its coordinates `token` and
            `source_token` label `dim`; a place where the examples have different tokens
            is labelled by its number.
        dim: the dimension.
        tokens: labels to use instead.
        source_tokens: the aligned labels of the other prompt; those that differ are marked.
    """
    places = [_plain(value) for value in data[dim].values]
    own = _rows(data, dim, "token", tokens)
    if own is None:
        names = [safe(place) for place in places]
        return Ticks(list(range(len(places))), names, names)
    other = _rows(data, dim, "source_token", source_tokens)
    differs = np.zeros(len(places), bool)
    if other is not None and other.shape == own.shape:
        differs = (own != other).any(axis=0)
    texts, names, mixed = [], [], False
    for index, place in enumerate(places):
        label = _shared(own[:, index])
        mixed |= label is None
        text = str(place) if label is None else safe(visible(label))
        name = str(place) if label is None else f"{place} “{text}”"
        if differs[index]:
            text = f'<span style="color:{MARK}"><b>{text}</b></span>'
            source = _shared(other[:, index]) if other is not None else None
            name += f" (other prompt: “{safe(visible(source))}”)" if source else ""
        texts.append(text)
        names.append(name)
    return Ticks(list(range(len(places))), texts, names, bool(differs.any()), mixed)


def axis(scale: Ticks, title: str, most: int = 33) -> dict:
    """The plotly axis of some ticks: all of them, or evenly fewer where they would touch."""
    count = len(scale.values)
    step = max(1, -(-count // MOST_LABELS))
    kept = [i for i in scale.values if i % step == 0 or scale.texts[i].startswith("<span")]
    tokens = any(len(text) > 3 for text in scale.texts)
    if not tokens:
        step = next(s for s in (1, 2, 4, 5, 10, 20, 50, 100, 10**9) if count / s <= most)
        kept = [i for i in scale.values if i % step == 0]
    notes = []
    if scale.marked:
        notes.append(f'<span style="color:{MARK}"><b>red</b></span>: the two prompts differ')
    if scale.mixed:
        notes.append("number: the examples differ")
    if notes:
        title += f" ({'; '.join(notes)})"
    return {
        "title": {"text": title},
        "tickmode": "array",
        "tickvals": kept,
        "ticktext": [scale.texts[i] for i in kept],
        "tickfont": {"size": 12 if count <= 40 else 10},
        "showgrid": False,
        "range": [-0.5, count - 0.5],
    }


def _rows(
    data: xr.DataArray, dim: str, name: str, given: Sequence[str] | None
) -> np.ndarray | None:
    """Labels as (example, place), or None where there are none."""
    size = data.sizes[dim]
    if given is not None:
        if len(given) != size:
            raise SpecError(
                f"{len(given)} token labels were given for {size} places along '{dim}': "
                f"give one a place."
            )
        return np.array([list(given)], dtype=str)
    if name not in data.coords or dim not in data.coords[name].dims:
        return None
    return data.coords[name].transpose(..., dim).values.reshape(-1, size)


def _shared(column: np.ndarray) -> str | None:
    """The one label of a column, "" where no example gets that far, else None."""
    there = set(column[column != ""].tolist())
    return there.pop() if len(there) == 1 else ("" if not there else None)


def _visible_character(character: str) -> str:
    if character == " ":
        return "·"
    if character in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character]
    return character if character.isprintable() else f"\\u{ord(character):04x}"


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value
