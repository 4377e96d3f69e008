"""The page of an abliteration: rates before and after, damage, samples, and the choice."""

from typing import Any

from tlkit.cli.output import Output

SHOWN = 20  # samples of each kind on the page
INTRODUCTION = (
    "Refusal before and after a direction was taken out of everything that writes to the residual "
    "stream, on prompts from which the direction was not found. An answer that is empty or "
    "garbled is no success, so read all classes; a rate of 0 does not say that the answers help. "
    "The random direction shows what taking any direction out does."
)
SAFETY = (
    "This is for the analysis of models by people who may study them. A model without the "
    "direction may answer requests that the original declines."
)


def sections(found: Any) -> list[Any]:
    """A report's sections."""
    from tlkit.plots import Section, curve, heatmap

    along = curve(
        found, "step", lines="model", over="harmless", variable="answer_kl",
        title="KL to the original along its own answers to harmless prompts",
    )  # fmt: skip
    made = [
        Section("What it did", [INTRODUCTION, SAFETY, rates(found), *_notes(found)]),
        Section("Damage on harmless prompts", [along, perplexity(found)]),
        Section("Choice", [f"Chosen: {found.attrs['choice']}.", *_map(found, heatmap),
                           choice(found)]),
    ]  # fmt: skip
    for kind in ("harmful", "harmless"):
        made.append(Section(f"Answers to {kind} prompts", [samples(found, kind)]))
    return [*made, Section("How it was run", [dict(found.attrs)])]


def _map(found: Any, heatmap: Any) -> list[Any]:
    """A map where there is more than one place; a single one stands in the table."""
    if found["candidate_score"].size < 2:
        return []
    return [heatmap(found["candidate_score"], "pos", "layer", title="log-odds of refusing")]


def _notes(found: Any) -> list[str]:
    said = []
    for model in found["model"].values.tolist():
        apart = float(found["disagreement"].sel(model=model))
        said.append(f"{model}: the detectors disagree on {apart:.0%} of the answers.")
    bake = found.attrs["bake"]
    if "bake_difference" in found.attrs:
        bake += f", logits within {found.attrs['bake_difference']:.2g} of those under hooks"
    return [" ".join(said), f"Weights: {bake}."]


def rates(found: Any) -> list[dict[str, Any]]:
    """Refusal rates with Wilson intervals, and the other classes, on both kinds of prompt."""
    rows = []
    for kind, prefix in (("harmful", ""), ("harmless", "harmless_")):
        for model in found["model"].values.tolist():
            for detector in found["detector"].values.tolist():
                at = {"model": model, "detector": detector}
                rate, low, high = (
                    float(found[f"{prefix}refusal_{end}"].sel(at))
                    for end in ("rate", "low", "high")
                )
                share = found[f"{prefix}share"].sel(at)
                rows.append({
                    "prompts": kind, **at, "refusal": rate, "low": low, "high": high,
                    **{name: float(share.sel(kind=name)) for name in ("empty", "garbled")},
                })  # fmt: skip
    return rows


def perplexity(found: Any) -> list[dict[str, Any]]:
    """Exponential of the mean loss on the harmless prompts' own text, model by model."""
    import numpy as np

    losses = found["loss"].mean("harmless")
    return [
        {"model": model, "perplexity of harmless prompts": float(np.exp(losses.sel(model=model)))}
        for model in found["model"].values.tolist()
    ]


def choice(found: Any) -> list[dict[str, Any]]:
    """The table of candidates, the chosen one marked, and the random direction."""
    attrs = found.attrs
    rows: list[dict[str, Any]] = [
        {
            "layer": layer, "pos": pos,
            **{name: float(found[name].sel(layer=layer, pos=pos))
               for name in ("candidate_score", "kl", "refusal")},
            "chosen": "chosen" if (layer, pos) == (attrs["layer"], attrs["pos"]) else "",
        }
        for layer in found["layer"].values.tolist()
        for pos in found["pos"].values.tolist()
    ]  # fmt: skip
    nan = float("nan")
    return [*rows, {
        "layer": nan, "pos": nan, "candidate_score": attrs["random_score"],
        "kl": attrs["random_kl"], "refusal": nan, "chosen": "random direction",
    }]  # fmt: skip


def samples(found: Any, kind: str) -> list[dict[str, str]]:
    """Answers side by side."""
    asked = found[f"{kind}_prompt"].values.tolist()
    answers = {
        model: found[f"{kind}_answer"].sel(model=model).values.tolist()
        for model in found["model"].values.tolist()
    }
    return [
        {"prompt": prompt, **{model: some[i] for model, some in answers.items()}}
        for i, prompt in enumerate(asked[:SHOWN])
    ]


def cost(model: Any, harmful: int, harmless: int, choices: dict[str, Any]) -> dict[str, Any]:
    """What a run would take, in passes of a prompt."""
    layers = choices["layers"]
    n = int(model.cfg.n_layers) if layers is None else len(set(layers))
    candidates = n * len(set(choices["positions"]))
    held = choices["held_out"]
    finding = round((1 - held) * harmful), round((1 - held) * harmless)
    testing = harmful - finding[0], harmless - finding[1]
    written = min(choices["generate"], candidates)
    return {
        "candidates": candidates,
        "prompts read to find directions": sum(finding),
        "prompts read to score candidates (harmful ones once a refusal prefix)":
            candidates * sum(finding),
        "answers written to choose": (1 + written) * finding[0],
        "answers written to report": 3 * sum(testing) + testing[1],
        "tokens of an answer, at most": choices["max_new_tokens"],
    }  # fmt: skip


def show(output: Output, found: Any, written: list[Any]) -> None:
    """The result on the terminal, or as JSON."""
    from rich.table import Table

    table = Table(title="refusals on held-out prompts", box=None, pad_edge=False)
    for column in ("prompts", "model", "detector", "refusal", "95 %", "empty", "garbled"):
        table.add_column(column)
    every = rates(found)
    for row in every:
        table.add_row(
            row["prompts"], row["model"], row["detector"], f"{row['refusal']:.2f}",
            f"{row['low']:.2f} to {row['high']:.2f}", f"{row['empty']:.2f}",
            f"{row['garbled']:.2f}",
        )  # fmt: skip
    values = {
        "choice": found.attrs["choice"], "layer": found.attrs["layer"], "pos": found.attrs["pos"],
        "rates": every, "perplexity": perplexity(found), "candidates": choice(found),
        "bake": found.attrs["bake"], "bake_difference": found.attrs.get("bake_difference"),
        "written": written, "seconds": found.attrs["seconds"],
    }  # fmt: skip
    output.result(
        values, table, f"Chosen: {found.attrs['choice']}.", *[f"Wrote {path}." for path in written]
    )
