"""The residual sweep of eight prompt pairs: tlkit against nnsight and pyvene, if installed.

    python -m pip install nnsight pyvene
    python benchmarks/peers.py

All work on the same weights: the peers get a copy of the Hugging Face model that is inside tlkit's,
with the attention that transformers chooses by default. Their
sweeps are timed on a sample of cells spread over the grid and scaled by the number of cells, as
every cell costs each of them a full forward pass.
"""

import argparse
import copy
import sys

import numpy as np
import torch
from patching import SAMPLE, TOLERANCE, Peer, ioi_pairs, metric_of
from timing import alternating, machine, say

import tlkit as tk
from tlkit.models.bridge import unbridged


class Nnsight:
    """nnsight: the source run is traced once, cells are invokes that run as one batch.

    Several widths are tried, and the fastest counts.
    """

    def __init__(self, hf, tokenizer, prompts, cells, together=1):
        from nnsight import LanguageModel

        self.model = LanguageModel(hf, tokenizer=tokenizer)
        self.clean, self.corrupted = torch.tensor(prompts.clean), torch.tensor(prompts.corrupted)
        self.cells, self.together, self.metric = cells, together, metric_of(prompts)

    def run(self):
        """The sampled cells' values."""
        layers = sorted({layer for layer, _ in self.cells})
        blocks = self.model.model.layers
        with torch.no_grad():
            saved = {}
            with self.model.trace(self.clean):
                for layer in layers:
                    saved[layer] = blocks[layer].input.save()
            found = []
            for first in range(0, len(self.cells), self.together):
                some = self.cells[first : first + self.together]
                kept = []
                with self.model.trace() as tracer:
                    for layer, pos in some:
                        with tracer.invoke(self.corrupted):
                            blocks[layer].input[:, pos] = saved[layer][:, pos]
                            kept.append(self.model.lm_head.output[:, -1:].save())
                found += [self.metric(logits) for logits in kept]
        return torch.stack(found)


class Pyvene:
    """pyvene: an intervention per layer; the source's activations are collected once."""

    def __init__(self, hf, prompts, cells):
        import pyvene

        self.clean, self.corrupted = torch.tensor(prompts.clean), torch.tensor(prompts.corrupted)
        self.cells, self.metric = cells, metric_of(prompts)
        self.models = {}
        for layer in sorted({layer for layer, _ in cells}):
            config = pyvene.IntervenableConfig(
                {"layer": layer, "component": "block_input"}, pyvene.VanillaIntervention
            )
            self.models[layer] = pyvene.IntervenableModel(config, hf)

    def run(self):
        """The sampled cells' values; each call runs the source, which pyvene's own calls do."""
        found = []
        with torch.no_grad():
            for layer, pos in self.cells:
                _, outputs = self.models[layer](
                    {"input_ids": self.corrupted},
                    [{"input_ids": self.clean}],
                    {"sources->base": pos},
                )
                found.append(self.metric(outputs.logits))
        return torch.stack(found)


def main() -> None:
    """One row for each peer that is installed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peers", nargs="*", default=["nnsight", "pyvene"])
    asked = parser.parse_args()
    model = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct")
    prompts = ioi_pairs(model, 8)
    grid = Peer(model, prompts, "resid_pre")
    cells = [(int(a), int(b)) for a, b in grid.frame[["layer", "pos"]].to_numpy()]
    sweep = tk.Sweep(tk.Patch(tk.Site("resid_pre")), layer=range(model.cfg.n_layers), pos=range(18))

    def ours():
        return tk.run(model, prompts, sweep, tk.LogitDiff())

    results = {"machine": machine()}
    for name in asked.peers:
        results[name] = row(name, model, prompts, cells, grid.cells, ours)
    say(results)


def row(name, model, prompts, cells, count, ours):
    """One peer, at its best width."""
    with unbridged(model) as hf:
        twin = copy.deepcopy(hf)
    twin.set_attn_implementation("sdpa")
    if name == "pyvene":
        peers = {"pyvene": Pyvene(twin, prompts, cells).run}
    else:
        peers = {
            f"nnsight, {width} invokes": Nnsight(twin, model.tokenizer, prompts, cells, width).run
            for width in (1, 4, 12)
        }
    timed = alternating({"tlkit": ours, **peers})
    mine = timed["tlkit"]["value"]["value"].isel(metric=0).mean("example").values
    at = tuple(np.array(cells).T)
    best = min(peers, key=lambda peer: timed[peer]["seconds"])
    gap = float(np.abs(mine[at] - timed[best]["value"].float().numpy()).max())
    seconds = timed[best]["seconds"] * count / SAMPLE
    ratio = seconds / timed["tlkit"]["seconds"]
    sys.stderr.write(f"{best}: {ratio:.1f} x\n")
    return {
        "peer": best, "cells": count, "peer_sampled_cells": SAMPLE, "peer_seconds": seconds,
        "all_peers": {peer: timed[peer]["seconds"] * count / SAMPLE for peer in peers},
        "tlkit_seconds": timed["tlkit"]["seconds"], "ratio": ratio,
        "largest_difference": gap, "equal": gap < TOLERANCE,
    }  # fmt: skip


if __name__ == "__main__":
    main()
