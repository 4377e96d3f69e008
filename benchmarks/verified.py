"""What gradients rank and exact runs confirm: `engine="verified"` against all cells run exactly.

    python benchmarks/verified.py

z by head and position on pairs of five kinds of tasks. How many of the true largest 20 cells (by
mean effect) are among those that were run exactly, and at what share of the time of running all?
"""

import argparse
import sys

import numpy as np
from timing import alternating, machine, say

import tlkit as tk
from tlkit.prompts.samples import pairs

TRUE_TOP = 20


def prompts_of(model, kind, count):
    """Pairs of one kind that are equally long."""
    rows = [row for row in pairs() if row["kind"] == kind]
    fields = ("clean", "corrupted", "answer", "wrong_answer")
    made = tk.Prompts.from_pairs(model, *([row[name] for row in rows] for name in fields))
    single = [
        i for i, ids in enumerate(made.answers) if len(ids) == len(made.wrong_answers[i]) == 1
    ]  # fmt: skip
    lengths = [len(made.clean[i]) for i in single]
    usual = max(set(lengths), key=lengths.count)
    single = [i for i in single if len(made.clean[i]) == usual]
    return made[single[:count]]


def main() -> None:
    """One row for each kind."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--top", type=int)
    parser.add_argument("--remainder", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    model = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct")
    kinds = asked.kinds or list(dict.fromkeys(row["kind"] for row in pairs()))
    results = {"machine": machine()}
    for kind in kinds:
        results[kind] = row(model, prompts_of(model, kind, asked.pairs), asked)
        found, cost = results[kind]["found"], results[kind]["cost"]
        sys.stderr.write(f"{kind}: {found} of {TRUE_TOP} at {cost:.1%}\n")
    say(results)


def row(model, prompts, asked):
    """One kind."""
    length = max(len(ids) for ids in prompts.clean)
    sweep = tk.Sweep(
        tk.Patch(tk.Site("z")),
        layer=range(model.cfg.n_layers), head=range(model.cfg.n_heads), pos=range(length),
    )  # fmt: skip
    metric = tk.LogitDiff()
    chosen = {"top": asked.top, "remainder": asked.remainder}
    timed = alternating({
        "packed": lambda: tk.run(model, prompts, sweep, metric),
        "verified": lambda: tk.run(model, prompts, sweep, metric, engine="verified", **chosen),
    }, asked.repeats)  # fmt: skip
    exact, verified = timed["packed"]["value"], timed["verified"]["value"]
    effect = exact["effect"].isel(metric=0).mean("example").values.ravel()
    true = np.argsort(-np.abs(effect), kind="stable")[:TRUE_TOP]
    ran = verified["exact"].values.ravel()
    difference = (verified["value"] - exact["value"]).isel(metric=0).values
    difference = np.abs(difference.reshape(len(ran), -1)[ran]).max()
    return {
        "prompts": len(prompts), "tokens": length, "cells": len(ran), "run": int(ran.sum()),
        "found": int(ran[true].sum()), "packed_seconds": timed["packed"]["seconds"],
        "verified_seconds": timed["verified"]["seconds"],
        "cost": timed["verified"]["seconds"] / timed["packed"]["seconds"],
        "rank_agreement": verified.attrs.get("rank_agreement"),
        "largest_difference_of_exact_cells": float(difference),
    }  # fmt: skip


if __name__ == "__main__":
    main()
