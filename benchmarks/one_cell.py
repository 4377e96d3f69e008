"""One clicked cell on a cached base: tlkit's session against one hooked TransformerLens forward.

    python benchmarks/one_cell.py

Every cell of a layer x position map of one pair of 24 tokens that differ from the first token on.
"""

import statistics
import time

import torch
from patching import long_pair
from timing import machine, say

import tlkit as tk
from tlkit.engine.session import Session


def main() -> None:
    """Time all cells, in turns with the hooked forward."""
    model = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct")
    prompts = long_pair(24, 0)
    session = Session(model, prompts, tk.LogitDiff())
    clean, corrupted = torch.tensor(prompts.clean), torch.tensor(prompts.corrupted)
    right, wrong = prompts.answers[0][0], prompts.wrong_answers[0][0]
    with torch.no_grad():
        names = [f"blocks.{layer}.hook_resid_pre" for layer in range(model.cfg.n_layers)]
        _, cache = model.run_with_cache(clean, names_filter=lambda name: name in names)
    session.values([tk.Patch(tk.Site("resid_pre", layer=0, pos=0))])
    ours, theirs, gap = [], [], 0.0
    for layer in range(model.cfg.n_layers):
        for pos in range(24):
            started = time.perf_counter()
            mine = session.values([tk.Patch(tk.Site("resid_pre", layer=layer, pos=pos))])[0, 0]
            ours.append(time.perf_counter() - started)
            if (layer * 24 + pos) % 7:
                continue

            def hook(value, hook, layer=layer, pos=pos):
                value[:, pos] = cache["resid_pre", layer][:, pos]
                return value

            started = time.perf_counter()
            with torch.no_grad():
                logits = model.run_with_hooks(corrupted, fwd_hooks=[(names[layer], hook)])
            theirs.append(time.perf_counter() - started)
            value = float(logits[0, -1, right] - logits[0, -1, wrong])
            gap = max(gap, abs(value - float(mine)))
    mine, other = statistics.median(ours), statistics.median(theirs)
    say({
        "machine": machine(), "cells": len(ours), "median_ms": 1e3 * mine,
        "largest_ms": 1e3 * max(ours), "peer_cells": len(theirs), "peer_median_ms": 1e3 * other,
        "ratio": other / mine, "largest_difference": gap,
    })  # fmt: skip


if __name__ == "__main__":
    main()
