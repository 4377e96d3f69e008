"""What ``tlkit ablate`` shows: curves, heads, and differences with their tests."""

from typing import Any

ABOUT = {
    "kl": "KL divergence of the next token after the prompt, plain run || ablated run.",
    "loss": "Cross entropy of the prompt's own tokens, less that of the plain run.",
    "answer_prob": "Probability of the whole answer, less that of the plain run.",
    "behaviour": "Share of continuations that say it; empty ones count neither way.",
}
ROWS = ("difference", "low", "high", "p_value", "p_adjusted")
SHOWN = 7
"""Layers that a terminal's table has."""
STRONGEST = 10
"""Heads in a table of differences."""
ENOUGH = 6
"""Of fewer prompts no sign-flip test can reach p = 0.05 on both sides."""


def sections(found: Any, seed: int) -> list[Any]:
    """A page's sections."""
    from tlkit.plots import Section

    made = [_curves(found, effect, seed) for effect in ABOUT if effect in found]
    made += [_heads(found, effect, seed) for effect in ABOUT if f"head_{effect}" in found]
    return [*made, Section("How it was run", [dict(found.attrs)])]


def _curves(found: Any, effect: str, seed: int) -> Any:
    from tlkit.plots import Section, curve
    from tlkit.studies import ablation as study

    raw = effect == "behaviour"
    drawn = study.by_layer(found, effect, raw=raw)
    items: list[Any] = [ABOUT[effect]]
    for name in drawn["detector"].values.tolist() if raw else [None]:
        part = drawn if name is None else drawn.sel(detector=name)
        title = effect if name is None else f"says “{name}”"
        items.append(
            curve(part, "layer", lines="model", panel="site", variable="effect", title=title)
        )
    if raw:
        items += _plain_rates(found)
    for other, tested in _compared(found, effect, seed):
        items += [_heading(found, other), rows(tested)]
    return Section(effect.replace("_", " "), [*items, *_warning(found)])


def _heads(found: Any, effect: str, seed: int) -> Any:
    from tlkit.plots import Section, heatmap
    from tlkit.studies import ablation as study

    drawn = study.by_layer(found, f"head_{effect}")
    items: list[Any] = [f"{ABOUT[effect]} One head at a time."]
    items += [
        heatmap(drawn.sel(model=name), variable="effect", title=str(name))
        for name in drawn["model"].values.tolist()
    ]
    for other, tested in _compared(found, f"head_{effect}", seed):
        strongest = sorted(rows(tested), key=lambda row: (row["p_value"], -abs(row["difference"])))
        items += [
            _heading(found, other), heatmap(tested, variable="difference", title=other),
            strongest[:STRONGEST],
        ]  # fmt: skip
    return Section(f"heads: {effect.replace('_', ' ')}", [*items, *_warning(found)])


def _compared(found: Any, effect: str, seed: int) -> list[tuple[str, Any]]:
    """Each other model's difference from the first."""
    from tlkit.studies import ablation as study

    first, *others = found["model"].values.tolist()
    if found.sizes["example"] < 2:
        return []
    return [(other, study.compare(found, first, other, effect, seed=seed)) for other in others]


def _heading(found: Any, other: str) -> str:
    return f"{other} less {found['model'].values[0]}, over prompts:"


def _warning(found: Any) -> list[str]:
    if found.sizes["model"] < 2 or found.sizes["example"] >= ENOUGH:
        return []
    return [f"{found.sizes['example']} prompts are too few to tell models apart: give more."]


def _plain_rates(found: Any) -> list[Any]:
    rates = found["behaviour_base"].mean("example")
    return [
        "Without any ablation:",
        [
            {"model": model, "says": name, "rate": float(rates.sel(model=model, detector=name))}
            for model in found["model"].values.tolist()
            for name in found["detector"].values.tolist()
        ],
    ]


def rows(tested: Any) -> list[dict[str, Any]]:
    """A comparison as rows, without layers that a model does not have."""
    frame = tested[list(ROWS)].to_dataframe().reset_index()
    return frame[[*tested["difference"].dims, *ROWS]].dropna().to_dict("records")


def told(found: Any, seed: int) -> dict[str, Any]:
    """The result as plain values: means over prompts by model, and the comparisons."""
    effects = [name for name in found.data_vars if "layer" in found[name].dims]
    means = {
        str(name): {
            model: found[name].sel(model=model).mean("example").values
            for model in found["model"].values.tolist()
        }
        for name in [*effects, *(n for n in found.data_vars if str(n).endswith("_base"))]
    }
    compared = {
        str(effect): {other: rows(tested) for other, tested in _compared(found, str(effect), seed)}
        for effect in effects
    }
    sites = found["site"].values.tolist() if "site" in found.dims else []
    return {
        "models": found["model"].values, "sites": sites, "layers": found["layer"].values,
        "means": means, "differences": compared, "seconds": found.attrs["seconds"],
    }  # fmt: skip


def shown(found: Any) -> list[Any]:
    """A terminal's table: the first effect's mean by layer."""
    from rich.table import Table

    effect = next(str(name) for name in found.data_vars if "layer" in found[name].dims)
    rest = [dim for dim in found[effect].dims if dim not in ("model", "site", "layer")]
    values = found[effect].mean(rest)
    layers = values["layer"].values.tolist()
    if len(layers) >= SHOWN:
        layers = [layers[round(i * (len(layers) - 1) / (SHOWN - 1))] for i in range(SHOWN)]
    sites = values["site"].values.tolist() if "site" in values.dims else [None]
    table = Table(
        title=f"{effect.replace('_', ' ')}, mean over {' and '.join(map(str, rest))}s",
        box=None, pad_edge=False,
    )  # fmt: skip
    for column in ("model", "component", *map(str, layers)):
        table.add_column(column, justify="left" if column in ("model", "component") else "right")
    for model in values["model"].values.tolist():
        for site in sites:
            part = values.sel(model=model)
            part = part if site is None else part.sel(site=site)
            numbers = [f"{float(part.sel(layer=layer)):.3f}" for layer in layers]
            table.add_row(model, site or "heads", *numbers)
    return [table]
