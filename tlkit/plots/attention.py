"""Attention patterns as interactive heads, drawn by CircuitsVis without a network."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tlkit.errors import SpecError
from tlkit.plots.labels import visible
from tlkit.plots.page import as_script, circuitsvis_script, page
from tlkit.plots.reduction import reduced
from tlkit.plots.writing import write_page

GROW = (
    "if(window.frameElement){const fit=()=>{window.frameElement.style.height="
    "document.documentElement.scrollHeight+'px'};new ResizeObserver(fit).observe(document.body)}"
)


@dataclass(frozen=True)
class Attention:
    """Attention patterns ready to be shown: in a notebook, a report, or a file."""

    values: list[list[list[float | int]]]
    """Head, query, key; rounded."""
    tokens: list[str]
    """A label a position (or a group of positions)."""
    names: list[str]
    """A name a head."""
    causal: bool
    """No query attends to a later key."""
    note: str = ""
    """What was left out or summed to keep the picture small."""
    title: str = ""

    def fragment(self, place: str) -> str:
        """The HTML of this picture; `script(place)` draws into it."""
        heading = f"<h3>{html.escape(self.title)}</h3>" if self.title else ""
        note = f'<p class="note">{html.escape(self.note)}</p>' if self.note else ""
        return (
            f'<div class="card">{heading}{note}'
            f'<div class="attention" id="{html.escape(place)}"></div></div>'
        )

    def script(self, place: str) -> str:
        """The JavaScript that draws the picture, once the CircuitsVis library is there."""
        largest = max((v for head in self.values for row in head for v in row), default=0.0)
        props = {
            "attention": self.values,
            "attentionHeadNames": self.names,
            "tokens": self.tokens,
            "minValue": 0,
            "maxValue": largest or 1,
            "positiveColor": "#08519c",
            "maskUpperTri": self.causal,
        }
        return (
            f"CircuitsVis.render({as_script(place)},CircuitsVis.AttentionHeads,{as_script(props)});"
        )

    def save(self, path: str | Path) -> Path:
        """Writes one HTML page that opens without a network."""
        return write_page(path, attention_page([self], title=self.title or "Attention"))

    def _repr_html_(self) -> str:
        inner = html.escape(attention_page([self], title=self.title or "Attention"), quote=True)
        return (
            f'<iframe srcdoc="{inner}" style="width:100%;height:760px;border:0" '
            f'title="Attention patterns"></iframe>'
        )


def attention(
    pattern: Any,
    tokens: Sequence[str],
    heads: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    *,
    title: str = "",
    most_tokens: int = 96,
    most_heads: int = 16,
) -> Attention:
    """Attention patterns of some heads over one prompt.

    Longer prompts are shown by groups of neighbouring positions: a square is the weight
    that the group's queries give, on average, to all keys of the other group, so that
    rows still sum to 1. The picture says so, as it says which heads were left out.

    Args:
        pattern: weights as (head, query, key), or (query, key) for one head.
        tokens: one label a position.
        heads: which heads to show; all when not said.
        names: what to call the shown heads, such as "layer 9 head 6"; "head 6" when not said.
        title: a heading above the picture.
        most_tokens: positions shown one by one, at most.
        most_heads: heads shown, at most.

    Raises:
        SpecError: sizes that do not fit together, NaN or infinite weights, no such head.
    """
    weights = _weights(pattern, len(tokens))
    chosen = _chosen(weights.shape[0], heads)
    labels = [str(name) for name in names] if names is not None else [f"head {h}" for h in chosen]
    if len(labels) != len(chosen):
        raise SpecError(f"{len(labels)} names were given for {len(chosen)} heads: give one a head.")
    notes = []
    if len(chosen) > most_heads:
        notes.append(
            f"Shown: the first {most_heads} of {len(chosen)} heads; choose others with heads=[…]."
        )
        chosen, labels = chosen[:most_heads], labels[:most_heads]
    weights = weights[chosen]
    causal = bool(np.triu(np.abs(weights), 1).max(initial=0.0) == 0)
    shown, marks, note = reduced(weights, [visible(str(t), 24) for t in tokens], most_tokens)
    digits = 4 if shown.size <= 20_000 else 3
    rounded = np.round(shown, digits).tolist()
    values = [[[_short(v) for v in row] for row in head] for head in rounded]
    notes = [note, *notes] if note else notes
    return Attention(values, marks, labels, causal, " ".join(notes), title)


def attention_page(pictures: Sequence[Attention], title: str = "Attention") -> str:
    """One page with several pictures and the library once.

    Args:
        pictures: What `attention` gave.
        title: The page's.

    Returns:
        HTML that asks for nothing from elsewhere.
    """
    places = [f"attention-{number}" for number in range(1, len(pictures) + 1)]
    body = "\n".join(p.fragment(place) for p, place in zip(pictures, places, strict=True))
    calls = [p.script(place) for p, place in zip(pictures, places, strict=True)]
    return page(title, body, [circuitsvis_script(), *calls, GROW])


def _weights(pattern: Any, length: int) -> np.ndarray:
    if hasattr(pattern, "detach"):  # a tensor, also one in bfloat16 or on a GPU
        pattern = pattern.detach().float().cpu().numpy()
    weights = np.asarray(pattern, dtype=np.float64)
    if weights.ndim == 2:
        weights = weights[None]
    if weights.ndim != 3 or weights.shape[1] != weights.shape[2]:
        raise SpecError(
            f"An attention pattern is (head, query, key) with as many queries as keys: "
            f"got {' × '.join(map(str, np.shape(pattern)))}."  # noqa: RUF001
        )
    if weights.shape[1] != length:
        raise SpecError(
            f"The attention covers {weights.shape[1]} positions and {length} tokens were given: "
            f"give the tokens of the prompt that the pattern is from."
        )
    if not np.isfinite(weights).all():
        raise SpecError("The attention holds NaN or infinite weights: draw the finite heads only.")
    if weights.min(initial=0.0) < -1e-6:
        raise SpecError(
            "The attention holds negative weights: give the pattern after the softmax, "
            "not the scores."
        )
    return weights


def _chosen(count: int, heads: Sequence[int] | None) -> list[int]:
    chosen = list(range(count)) if heads is None else [int(head) for head in heads]
    for head in chosen:
        if not 0 <= head < count:
            raise SpecError(f"There is no head {head}: the pattern has heads 0 to {count - 1}.")
    if not chosen:
        raise SpecError("No head was chosen: give at least one.")
    return chosen


def _short(value: float) -> float | int:
    """0 and 1 without their decimals: most of a pattern is 0."""
    return int(value) if value == int(value) else value
