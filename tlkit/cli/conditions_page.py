"""The page of a conditions study: curves of heads, maps of what changed, patterns, λ and Σ."""

import json
from dataclasses import dataclass
from typing import Any

TOP = 3
INTRODUCTION = (
    "For each head, the mean attention that later tokens give each token of the original prompt "
    "(inserted tokens are left out of the axis). Whatever is inserted takes attention away from "
    "the rest, so read a drop beside the control."
)
AFFINE = (
    "Inserted tokens take a share 1 - λ of a head's attention and add their own values Σ. "
    "The residual says how far z' is from λ z + Σ; 'in place' compares with a run whose tokens "
    "already stand where the insertion moves them, so that rotary embeddings see no shift."
)


@dataclass(frozen=True)
class Page:
    """What is shown and said."""

    sections: list[Any]
    ranked: dict[str, list[dict[str, Any]]]
    tables: list[Any]


def sections(
    model: Any, prompts: Any, found: Any, conditions: dict[str, Any], control: str | None,
    heads: list[tuple[int, int]], *, one_based: bool,
) -> Page:  # fmt: skip
    """A report's sections, the ranked heads, and tables for the terminal."""
    from tlkit.plots import Section, curve, heatmap
    from tlkit.studies import conditions as study

    made: list[Any] = [Section("What this is", [INTRODUCTION])]
    ranked: dict[str, list[dict[str, Any]]] = {}
    tables: list[Any] = []
    base, top = str(found.attrs["baseline"]), list[tuple[int, int]]()
    counted = f"layers and heads counted from {int(one_based)}"
    for label in conditions:
        for against in (base, *([control] if control and control != label else [])):
            tested = study.changed_heads(
                found, label, against, first_token=bool(found.attrs["first_token"]),
                seed=int(found.attrs["seed"]),
            )  # fmt: skip
            rows = study.ranked(tested).to_dict("records")
            top = top or [(row["layer"], row["head"]) for row in rows[:TOP]]
            name = f"{label} against {against}"
            ranked[name] = [_counted(row, one_based=one_based) for row in rows]
            tables.append(_table(name, ranked[name][:5]))
            title = f"effect size of {name} ({counted})"
            made.append(Section(f"Heads changed by {name}", [
                heatmap(_shifted(tested["effect_size"], one_based=one_based), title=title),
                ranked[name],
            ]))  # fmt: skip
    shown = heads or top
    drawn = study.lines(found, shown, one_based=one_based)
    figure = curve(
        drawn, "pos", lines="condition", panel="group", variable="attention_weight",
        one_scale=False, title=counted,
    )  # fmt: skip
    made.insert(
        1, Section("Average attention per prompt token", [*_warnings(found, control), figure])
    )
    made += _patterns(model, prompts, found, conditions, shown, one_based=one_based)
    if "lambda_q" in found:
        made.append(Section("λ and Σ", [AFFINE, *_affine(found, one_based=one_based)]))
    made.append(Section("How it was run", [dict(found.attrs)]))
    return Page(made, ranked, tables)


def _shifted(data: Any, *, one_based: bool) -> Any:
    """The same, its layers and heads named as they are counted."""
    if not one_based:
        return data
    names = {dim: data[dim].values + 1 for dim in ("layer", "head") if dim in data.dims}
    return data.assign_coords(names)


def _warnings(found: Any, control: str | None) -> list[str]:
    """What makes the numbers say less than they seem to."""
    said = []
    if found.sizes["example"] < 6:
        said.append(
            f"{found.sizes['example']} prompts cannot make a head stand out: sign flips of so few "
            f"give no small p. Give more."
        )
    put = json.loads(str(found.attrs["inserted_tokens"]))
    if control is not None and len({put[name] for name in put if put[name]}) > 1:
        lengths = ", ".join(f"{name} {count:g}" for name, count in put.items() if count)
        said.append(
            f"A control should be as long as what it controls for; tokens put in: {lengths}."
        )
    return said


def _counted(row: dict[str, Any], *, one_based: bool) -> dict[str, Any]:
    return {**row, "layer": row["layer"] + one_based, "head": row["head"] + one_based}


def _table(name: str, rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(title=f"{name}: heads changed most", box=None, pad_edge=False)
    for column in ("layer", "head", "effect size", "difference", "adjusted p"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            str(row["layer"]), str(row["head"]), f"{row['effect_size']:+.2f}",
            f"{row['difference']:+.4f}", f"{row['p_adjusted']:.2g}",
        )  # fmt: skip
    return table


def _affine(found: Any, *, one_based: bool) -> list[Any]:
    from tlkit.plots import curve

    there = found["lambda_q"].notnull().any(("layer", "head", "example"))
    some = _shifted(found.isel(condition=there.values), one_based=one_based)
    return [
        curve(some[name].mean("head", keep_attrs=True), "layer", lines="condition", title=title)
        for name, title in (
            ("lambda_q", "λ, mean over heads"),
            ("affine_residual", "residual"),
            ("affine_residual_in_place", "residual in place"),
        )
        if name in found
    ]


def _patterns(
    model: Any, prompts: Any, found: Any, conditions: dict[str, Any],
    heads: list[tuple[int, int]], *, one_based: bool,
) -> list[Any]:  # fmt: skip
    """The first prompt's patterns of some heads, plain and with the first insertion."""
    import numpy as np

    from tlkit.engine.patterns import patterns
    from tlkit.models.text import token_labels
    from tlkit.plots import Section, attention
    from tlkit.prompts.tokens import tokenizer_of
    from tlkit.studies.conditions.transform import changed

    items: list[Any] = []
    base = str(found.attrs["baseline"])
    for label, condition in [(base, None), *list(conditions.items())[:1]]:
        ids = changed(model, prompts[[0]], label, condition).ids[0]
        got = patterns(model, ids, sorted({layer for layer, _ in heads}))
        weights = np.stack([got[layer][head] for layer, head in heads])
        names = [f"layer {layer + one_based} head {head + one_based}" for layer, head in heads]
        labels = token_labels(tokenizer_of(model), ids)
        items.append(attention(weights, labels, names=names, title=f"{label}, first prompt"))
    return [Section("Patterns", items)]
