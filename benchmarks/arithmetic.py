"""How near a sweep comes to the machine: bare matrix products, bfloat16, memory.

    python benchmarks/arithmetic.py

The sweep is resid_pre, layer x position, on eight prompt pairs of 18 tokens. Its needed arithmetic
(what `tk.plan` counts) over its time is set beside bare products of the model's own shapes at 1 024
rows, taken in turns with it. Memory is the process's peak while a sweep runs under a budget, less
what it held before.
"""

import sys

import numpy as np
import torch
from patching import ioi_pairs
from timing import alternating, machine, peak_growth, say

import tlkit as tk
from tlkit.models.bridge import Parts

EMBEDDED = "smollm2-135m-instruct"
ROWS = 1024
BUDGETS = ("128MiB", "256MiB", "1GiB")


def products(model, times=10):
    """A function that runs the matrix products of all blocks' shapes, and its operations."""
    block = Parts(model).blocks[0]
    weights = [p.detach() for p in block.parameters() if p.ndim > 1]
    rows = {
        w.shape[1]: torch.randn(ROWS, w.shape[1]).to(w.dtype)
        for w in weights
    }  # fmt: skip

    def run():
        for _ in range(times):
            for weight in weights:
                torch.nn.functional.linear(rows[weight.shape[1]], weight)

    return run, times * sum(2.0 * ROWS * w.numel() for w in weights)


def speeds(model, prompts, sweep):
    """The sweep beside bare products."""
    bare, operations = products(model)
    metric = tk.LogitDiff()
    with torch.no_grad():
        timed = alternating({"sweep": lambda: tk.run(model, prompts, sweep, metric), "bare": bare})
    needed = tk.plan(model, prompts, sweep, metric).flops
    sweep_rate = needed / timed["sweep"]["seconds"]
    bare_rate = operations / timed["bare"]["seconds"]
    return {
        "seconds": timed["sweep"]["seconds"], "all": timed["sweep"]["all"],
        "needed_tflop": needed / 1e12, "gflop_per_second": sweep_rate / 1e9,
        "bare_gflop_per_second": bare_rate / 1e9, "share": sweep_rate / bare_rate,
    }, timed["sweep"]["value"]  # fmt: skip


def main() -> None:
    """All of it."""
    results = {"machine": machine()}
    values = {}
    for dtype in ("float32", "bfloat16"):
        model = tk.HookedTransformer.from_pretrained(EMBEDDED, dtype=dtype)
        prompts = ioi_pairs(model, 8)
        layers, tokens = range(model.cfg.n_layers), range(len(prompts.clean[0]))
        sweep = tk.Sweep(tk.Patch(tk.Site("resid_pre")), layer=layers, pos=tokens)
        results[dtype], found = speeds(model, prompts, sweep)
        values[dtype] = found["value"].values
        sys.stderr.write(f"{dtype}: {results[dtype]['share']:.0%} of bare products\n")
        if dtype == "float32":
            wide = tk.Sweep(tk.Patch(tk.Site("z")), layer=layers, head=range(9), pos=tokens)
            tk.run(model, prompts, wide, tk.LogitDiff())  # what a first run leaves is not counted
            results["memory_mib"] = {
                budget: peak_growth(
                    lambda budget=budget: tk.run(
                        model, prompts, wide, tk.LogitDiff(), budget=budget
                    )
                )
                for budget in BUDGETS
            }
    results["bfloat16_ratio"] = results["float32"]["seconds"] / results["bfloat16"]["seconds"]
    spread = np.ptp(values["float32"])
    gap = np.abs(values["float32"] - values["bfloat16"]).max()
    results["bfloat16_difference_share_of_range"] = float(gap / spread)
    say(results)


if __name__ == "__main__":
    main()
