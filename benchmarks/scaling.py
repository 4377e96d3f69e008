"""How a sweep's cost grows with cells, length and depth: seconds beside the formula.

    python benchmarks/scaling.py                  # JSON
    python benchmarks/scaling.py docs/images      # and three pictures, which need Chromium

The formula is what `tk.plan` says before anything runs: the token-layers of a sweep, L(L+1)/2 times
the sum of S - p over the changed positions p, and those of the base and source runs. One speed,
fitted to all points of a series, turns it into seconds. Random models with the embedded model's
shapes, one pair of random tokens that differ from the first.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from patching import long_pair
from timing import alternating, machine, say

import tlkit as tk

SHAPES = {
    "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
    "num_attention_heads": 9, "num_key_value_heads": 3, "tie_word_embeddings": True,
}  # fmt: skip


def random_model(layers, tokenizer):
    """A Llama of random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(num_hidden_layers=layers, **SHAPES)
    hf = LlamaForCausalLM(config).eval().requires_grad_(False)
    return tk.HookedTransformer.from_pretrained(hf, tokenizer=tokenizer)


def some_cells(layers, length, count, seed=0):
    """So many cells spread over the grid."""
    rng = np.random.default_rng(seed)
    flat = rng.permutation(layers * length)[:count]
    cells = [(int(i) // length, int(i) % length) for i in flat]
    conditions = [
        tk.Condition(f"{layer}.{pos}", (tk.Patch(tk.Site("resid_pre", layer=layer, pos=pos)),))
        for layer, pos in cells
    ]
    return tk.Sweep.over(conditions)


def grid(layers, length):
    """Every layer and position."""
    return tk.Sweep(tk.Patch(tk.Site("resid_pre")), layer=range(layers), pos=range(length))


def series():
    """(name, [(size, model, prompts, sweep)])."""
    tokenizer = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct").tokenizer
    deep = random_model(30, tokenizer)
    yield (
        "cells",
        [
            (count, deep, long_pair(24, 0), some_cells(30, 24, count))
            for count in (45, 90, 180, 360, 720)
        ],
    )
    yield (
        "length",
        [(length, deep, long_pair(length, 0), grid(30, length)) for length in (8, 16, 24, 32, 48)],
    )
    yield (
        "depth",
        [
            (layers, random_model(layers, tokenizer), long_pair(24, 0), grid(layers, 24))
            for layers in (5, 10, 20, 30, 40)
        ],
    )


def measured(points, metric):
    """Seconds and token-layers of each point, and the fitted formula."""
    rows = []
    for size, model, prompts, sweep in points:
        timed = alternating({
            "tlkit": lambda m=model, p=prompts, s=sweep: tk.run(m, p, s, metric)
        })  # fmt: skip
        cost = tk.plan(model, prompts, sweep, metric)
        rows.append({
            "size": size, "cells": cost.cells, "token_layers": cost.token_layers,
            "seconds": timed["tlkit"]["seconds"],
        })  # fmt: skip
    work = np.array([row["token_layers"] for row in rows], dtype=float)
    seconds = np.array([row["seconds"] for row in rows])
    per = float((work * seconds / seconds**2).sum() / (work**2 / seconds**2).sum())
    for row in rows:
        row["formula_seconds"] = per * row["token_layers"]
    return {"microseconds_per_token_layer": 1e6 * per, "points": rows}


def draw(name, found, folder):
    """A picture of one series."""
    import plotly.graph_objects as go

    from tlkit.plots import save

    size = [row["size"] for row in found["points"]]
    figure = go.Figure([
        go.Scatter(
            x=size, y=[row["formula_seconds"] for row in found["points"]],
            name="formula", mode="lines", line={"color": "#888888"},
        ),
        go.Scatter(
            x=size, y=[row["seconds"] for row in found["points"]],
            name="measured", mode="markers", marker={"color": "#2a6fbb", "size": 9},
        ),
    ])  # fmt: skip
    titles = {"cells": "cells", "length": "tokens", "depth": "layers"}
    figure.update_layout(
        template="plotly_white", width=420, height=300, margin={"l": 55, "r": 15, "t": 15, "b": 45},
        xaxis={"title": titles[name], "rangemode": "tozero"},
        yaxis={"title": "seconds", "rangemode": "tozero"},
        legend={"x": 0.03, "y": 0.97}, font={"size": 13},
    )  # fmt: skip
    save(figure, folder / f"cost-{name}.png")


def main() -> None:
    """All three series."""
    metric = tk.LogitDiff()
    results = {"machine": machine()}
    for name, points in series():
        results[name] = measured(points, metric)
        sys.stderr.write(f"{name}: {results[name]['microseconds_per_token_layer']:.1f} us\n")
        if len(sys.argv) > 1:
            draw(name, results[name], Path(sys.argv[1]))
    say(results)


if __name__ == "__main__":
    main()
