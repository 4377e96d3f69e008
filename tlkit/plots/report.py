"""One HTML page that says what was found and how: opens anywhere, asks nothing of a network."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from tlkit.errors import SpecError
from tlkit.plots.attention import Attention
from tlkit.plots.page import circuitsvis_script, page, plot_call, plotly_script
from tlkit.plots.tables import SORT, provenance_table, table
from tlkit.plots.views import plot
from tlkit.plots.writing import write_page
from tlkit.results.table import top


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it.

    An item is text (paragraphs are set apart by an empty line), a plotly figure, an
    `Attention`, a table (a list of dicts, or a DataFrame), provenance (a mapping), or a
    results dataset, which is drawn, tabled and explained by its own provenance.
    """

    title: str
    items: Sequence[Any] = ()


def report(
    sections: Sequence[Any] | Mapping[str, Any],
    path: str | Path,
    title: str = "tlkit report",
    *,
    created: datetime | None = None,
    limit_mb: int | float = 8,
) -> Path:
    """Writes one self-contained page of sections.

    Args:
        sections: `Section`s, or bare items as in a section, or a mapping of headings to items.
        path: an `.html` file; one of that name is replaced.
        title: the page's heading.
        created: the date on the page; now when not said. All else follows from the input.
        limit_mb: largest page, in megabytes of 10^6 bytes.

    Raises:
        SpecError: an item of an unknown kind, or a page over the limit.
    """
    made = _Page()
    if isinstance(sections, Mapping):
        sections = [Section(heading, [item]) for heading, item in sections.items()]
    titled = [s if isinstance(s, Section) else Section("", [s]) for s in sections]
    for index, section in enumerate(titled, start=1):
        made.add(section, f"section-{index}")
    when = (created or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M %Z").strip()
    body = (
        f'<header><h1>{html.escape(title)}</h1><p class="note">{html.escape(when)}</p></header>\n'
        f"{_contents(titled)}\n<main>\n{''.join(made.body)}\n</main>"
    )
    text = page(title, body, made.all_scripts())
    size = len(text.encode("utf-8"))
    if size > limit_mb * 1e6:
        heaviest, weight = max(made.weights.items(), key=lambda pair: pair[1])
        raise SpecError(
            f"The report has {size / 1e6:.1f} MB and may have {limit_mb:g}: "
            f"'{heaviest}' alone has {weight / 1e6:.1f}; show less there, or raise limit_mb."
        )
    return write_page(path, text)


@dataclass
class _Page:
    """What the sections added so far."""

    body: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    weights: dict[str, int] = field(default_factory=dict)
    figures: int = 0
    attentions: int = 0
    tables: int = 0

    def add(self, section: Section, anchor: str) -> None:
        before = sum(map(len, self.body)) + sum(map(len, self.scripts))
        self.body.append(f'<section id="{anchor}">')
        if section.title:
            self.body.append(f"<h2>{html.escape(section.title)}</h2>")
        for item in section.items:
            self.item(item)
        self.body.append("</section>\n")
        after = sum(map(len, self.body)) + sum(map(len, self.scripts))
        self.weights[section.title or anchor] = after - before

    def item(self, item: Any) -> None:
        if isinstance(item, str):
            self.body += [f"<p>{_lines(part)}</p>" for part in re.split(r"\n\s*\n", item.strip())]
        elif isinstance(item, Attention):
            self.attentions += 1
            place = f"attention-{self.attentions}"
            self.body.append(item.fragment(place))
            self.scripts.append(item.script(place))
        elif isinstance(item, xr.Dataset):
            self.dataset(item)
        elif isinstance(item, Mapping):
            self.body.append(provenance_table(item))
        elif hasattr(item, "to_plotly_json"):
            self.figure(item)
        elif (rows := _rows(item)) is not None:
            self.tables += 1
            self.body.append(table(rows))
        else:
            raise SpecError(
                f"A report cannot show a {type(item).__name__}: give text, a figure, attention, "
                f"a table, a mapping or a dataset."
            )

    def figure(self, figure: Any) -> None:
        self.figures += 1
        place = f"figure-{self.figures}"
        height = int(figure.layout.height or 450)
        own = int(figure.layout.width or 700)
        self.body.append(
            f'<div class="card"><div id="{place}" style="height:{height}px;'
            f'min-width:{min(own, 1150)}px;max-width:{own * 3 // 2}px"></div></div>'
        )
        self.scripts.append(plot_call(str(figure.to_json()), place))

    def dataset(self, ds: xr.Dataset) -> None:
        self.figure(plot(ds))
        if "effect" in ds.data_vars:
            self.item("The cells with the largest mean effect:")
            self.item(top(ds))
        self.body.append(provenance_table(ds.attrs))

    def all_scripts(self) -> list[str]:
        libraries = [plotly_script()] if self.figures else []
        libraries += [circuitsvis_script()] if self.attentions else []
        return [*libraries, *self.scripts, *([SORT] if self.tables else [])]


def _contents(sections: Sequence[Section]) -> str:
    links = [
        f'<li><a href="#section-{index}">{html.escape(section.title)}</a></li>'
        for index, section in enumerate(sections, start=1)
        if section.title
    ]
    return f"<nav><ul>{''.join(links)}</ul></nav>" if len(links) > 1 else ""


def _lines(text: str) -> str:
    return html.escape(text.strip(), quote=False).replace("\n", "<br>")


def _rows(item: Any) -> list[Mapping[str, Any]] | None:
    if isinstance(item, pd.DataFrame):
        records = item.to_dict(orient="records")
        return [{str(k): _plain(v) for k, v in record.items()} for record in records]
    if isinstance(item, Sequence) and all(isinstance(row, Mapping) for row in item):
        return [{str(k): _plain(v) for k, v in row.items()} for row in item]
    return None


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
