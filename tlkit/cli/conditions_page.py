"""The page of a conditions study: curves of heads, maps of what changed, patterns, λ and Σ."""

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
    base = str(found.attrs["baseline"])
    for label in conditions:
        for against in (base, *([control] if control and control != label else [])):
            tested = study.changed_heads(
                found, label, against, first_token=bool(found.attrs["first_token"]),
                seed=int(found.attrs["seed"]),
            )  # fmt: skip
            rows = study.ranked(tested).to_dict("records")
            name = f"{label} against {against}"
            ranked[name] = rows
            tables.append(_table(name, rows[:5], one_based=one_based))
            made.append(Section(f"Heads changed by {name}", [
                heatmap(tested["effect_size"], title=f"effect size of {name}"),
                [_counted(row, one_based=one_based) for row in rows],
            ]))  # fmt: skip
    first = next(iter(ranked.values()))
    shown = heads or [(row["layer"], row["head"]) for row in first[:TOP]]
    drawn = study.lines(found, shown, one_based=one_based)
    figure = curve(drawn, "pos", lines="condition", panel="group", variable="attention_weight")
    made.insert(1, Section("Average attention per prompt token", [figure]))
    made += _patterns(model, prompts, found, conditions, shown, one_based=one_based)
    if "lambda_q" in found:
        made.append(Section("λ and Σ", [AFFINE, *_affine(found)]))
    made.append(Section("How it was run", [dict(found.attrs)]))
    return Page(made, ranked, tables)


def _counted(row: dict[str, Any], *, one_based: bool) -> dict[str, Any]:
    return {**row, "layer": row["layer"] + one_based, "head": row["head"] + one_based}


def _table(name: str, rows: list[dict[str, Any]], *, one_based: bool) -> Any:
    from rich.table import Table

    table = Table(title=f"{name}: heads changed most", box=None, pad_edge=False)
    for column in ("layer", "head", "effect size", "difference", "adjusted p"):
        table.add_column(column, justify="right")
    for row in (_counted(row, one_based=one_based) for row in rows):
        table.add_row(
            str(row["layer"]), str(row["head"]), f"{row['effect_size']:+.2f}",
            f"{row['difference']:+.4f}", f"{row['p_adjusted']:.2g}",
        )  # fmt: skip
    return table


def _affine(found: Any) -> list[Any]:
    from tlkit.plots import curve

    return [
        curve(found[name].mean("head", keep_attrs=True), "layer", lines="condition", title=title)
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
