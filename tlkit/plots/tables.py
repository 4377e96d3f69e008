"""Tables and provenance as HTML, with every value escaped."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

SORT = """
document.querySelectorAll('th[data-sort]').forEach(th=>th.addEventListener('click',()=>{
const body=th.closest('table').tBodies[0],i=th.cellIndex,up=th.dataset.sort!=='up';
th.dataset.sort=up?'up':'down';
const key=r=>r.cells[i].dataset.v??r.cells[i].textContent;
const rows=[...body.rows].sort((a,b)=>{const x=key(a),y=key(b),n=x-y;
return (isNaN(n)?x.localeCompare(y):n)*(up?1:-1)});body.append(...rows)}));
"""
MOST_ROWS = 500


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a sortable HTML table; past 500 rows it says how many are left out."""
    rows = list(rows)
    columns = list(dict.fromkeys(str(name) for row in rows for name in row))
    if not columns:
        return '<div class="card"><p class="note">No rows.</p></div>'
    numeric = {name: all(_is_number(row.get(name)) for row in rows) for name in columns}
    head = "".join(
        f"<th data-sort{' class=number' if numeric[name] else ''}>{html.escape(name)}</th>"
        for name in columns
    )
    body = "".join(
        "<tr>" + "".join(_cell(row.get(name), numeric[name]) for name in columns) + "</tr>"
        for row in rows[:MOST_ROWS]
    )
    left = len(rows) - MOST_ROWS
    note = f'<p class="note">{left} more rows are left out.</p>' if left > 0 else ""
    return (
        f'<div class="card"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>{note}</div>"
    )


def provenance_table(attrs: Mapping[str, Any], title: str = "How it was run") -> str:
    """Attributes as two columns; JSON is laid out, the rest stays one line each."""
    rows = "".join(
        f"<tr><th>{html.escape(str(name).replace('_', ' '))}</th><td>{_value(value)}</td></tr>"
        for name, value in attrs.items()
    )
    return (
        f'<details class="card" open><summary>{html.escape(title)}</summary>'
        f"<table><tbody>{rows}</tbody></table></details>"
    )


def number(value: int | float) -> str:
    """A number with four significant digits, whole numbers whole."""
    if isinstance(value, float) and not math.isfinite(value):
        return "-" if math.isnan(value) else str(value)
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(value: Any, numeric: bool) -> str:
    if numeric:
        return f'<td class=number data-v="{float(value)!r}">{number(value)}</td>'
    text = number(value) if _is_number(value) else ("" if value is None else str(value))
    return f"<td>{html.escape(text)}</td>"


def _value(value: Any) -> str:
    if isinstance(value, str) and value[:1] in "{[":
        try:
            laid_out = json.dumps(json.loads(value), indent=1, ensure_ascii=False)
        except ValueError:
            return html.escape(value)
        return f"<pre>{html.escape(laid_out)}</pre>"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return html.escape(number(value))
    return html.escape(str(value))
