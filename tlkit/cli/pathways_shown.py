"""What `tlkit pathways` says when it is done."""

from pathlib import Path
from typing import Any

from tlkit.cli.output import Output
from tlkit.errors import SpecError


def show(output: Output, found: Any, path: Path | None) -> None:
    """ΔP at some layers, how many answers were right, and what else was measured."""
    from tlkit.studies import pathways as study

    rows = study.table(found).to_dict("records")
    answers = study.counts(found).to_dict("records")
    named = [", ".join(row[key] for key in ("model", "dataset") if key in row) for row in answers]
    line = "; ".join(
        f"{name}: {row['right']} of {row['questions']} right"
        for name, row in zip(named, answers, strict=True)
    )
    written = [line] if path is None else [line, f"Wrote {path}."]
    values = {"out": path, "answers": answers, "delta_p": rows, "reasons": study.reasons(found)}
    shown: list[Any] = [_delta_p(rows)] if rows else []
    for name, read, columns in (
        ("probes", study.places, ("site", "pos", "layer", "auc", "answer_string_auc")),
        ("flips", study.flips, ("control", "group", "layer", "flip_rate", "n")),
        ("detectors", study.detectors, ("detector", "auc", "low", "high", "p_value")),
    ):
        try:
            values[name] = read(found).to_dict("records")
        except SpecError:  # not asked for, or the reasons say why it is not there
            continue
        shown.append(_table(name, values[name], columns))
    output.result(values, *shown, *written)


def _delta_p(rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(title="ΔP, percentage points", box=None, pad_edge=False)
    names = [name for name in ("reading", "model", "dataset", "group", "layer") if name in rows[0]]
    for column in (*names, "delta_p", "low", "high", "n"):
        left = column in ("reading", "model", "group")
        table.add_column(column, justify="left" if left else "right")
    for row in rows:
        numbers = [f"{row[name]:+.1f}" for name in ("delta_p", "low", "high")]
        shown = [str(row[name]) for name in names]
        table.add_row(*shown, *[n if n != "+nan" else "-" for n in numbers], str(row["n"]))
    return table


def _table(title: str, rows: list[dict[str, Any]], columns: tuple[str, ...]) -> Any:
    from rich.table import Table

    names = [name for name in ("model", "dataset") if rows and name in rows[0]]
    table = Table(title=title, box=None, pad_edge=False)
    for column in (*names, *columns):
        table.add_column(column)
    for row in rows:
        cells = [row[name] for name in (*names, *columns)]
        table.add_row(*[f"{one:.3g}" if isinstance(one, float) else str(one) for one in cells])
    return table
