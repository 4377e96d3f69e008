"""Exact patching sweeps: tlkit against TransformerLens on the same weights, prompts and threads.

    python benchmarks/patching.py                 # every row
    python benchmarks/patching.py resid_pre_8     # some rows
    python benchmarks/patching.py --repeats 5

Both sides get the same model object, the same token ids and the same metric. TransformerLens gets
its documented best: a cache filtered to what the sweep reads, all prompts in one batch, no_grad.
Its sweeps are timed on a sample of cells spread over the grid and scaled by the number of cells,
as every cell costs it one full forward pass. Values are compared before a ratio counts.
"""

import argparse
import itertools
import os
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TQDM_DISABLE", "1")

import numpy as np
import pandas as pd
import torch
import transformer_lens.patching as tl
from timing import alternating, machine, say

import tlkit as tk

TOLERANCE = 1e-3  # of logit differences of several logits, in fp32
SAMPLE = 12


def ioi_pairs(model: Any, count: int) -> Any:
    """Pairs of 18 tokens that first differ at token 11."""
    names = ["Mary", "John", "Paul", "Anna", "Mark", "Lisa", "Peter", "Sarah", "David", "Laura"]
    people = [(a, b) for a in names for b in names if a < b][: count * 3]
    text = "Then, {0} and {1} were working at the school. {2} decided to give a bone to"
    rows = [
        (text.format(a, b, a), text.format(a, b, b), f" {b}", f" {a}")
        for a, b in people
    ]  # fmt: skip
    prompts = tk.Prompts.from_pairs(model, *map(list, zip(*rows, strict=True)))
    fitting = [
        i for i, ids in enumerate(prompts.clean)
        if len(ids) == 18 and len(prompts.corrupted[i]) == 18 and prompts.differing(i) == [11]
    ]  # fmt: skip
    return prompts[fitting[:count]]


def long_pair(length: int, first: int, seed: int = 0) -> Any:
    """A pair of random tokens that differ from ``first`` on."""
    rng = np.random.default_rng(seed)
    clean = rng.integers(1000, 40000, length)
    corrupted = clean.copy()
    corrupted[first:] = rng.integers(1000, 40000, length - first)
    return tk.Prompts.from_tokens([clean.tolist()], [corrupted.tolist()], [[260]], [[284]])


def metric_of(prompts: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """TransformerLens's metric: the mean logit difference at the last position."""
    right = torch.tensor([ids[0] for ids in prompts.answers])
    wrong = torch.tensor([ids[0] for ids in prompts.wrong_answers])

    def metric(logits: torch.Tensor) -> torch.Tensor:
        last = logits[:, -1]
        rows = torch.arange(len(last))
        return (last[rows, right] - last[rows, wrong]).mean()

    return metric


SITES = {
    "resid_pre": (tl.layer_pos_patch_setter, "resid_pre", ("layer", "pos")),
    "attn_out": (tl.layer_pos_patch_setter, "attn_out", ("layer", "pos")),
    "mlp_out": (tl.layer_pos_patch_setter, "mlp_out", ("layer", "pos")),
    "z_all": (tl.layer_head_vector_patch_setter, "z", ("layer", "head")),
    "z_pos": (tl.layer_pos_head_vector_patch_setter, "z", ("layer", "pos", "head")),
}


class Peer:
    """TransformerLens's loop on a sample of cells."""

    def __init__(self, model: Any, prompts: Any, site: str, seed: int = 0) -> None:
        setter, name, axes = SITES[site]
        sizes = {
            "layer": model.cfg.n_layers,
            "pos": len(prompts.clean[0]),
            "head": model.cfg.n_heads,
        }
        self.model, self.setter, self.name, self.axes = model, setter, name, axes
        self.cells = int(np.prod([sizes[axis] for axis in axes]))
        # Spread over the grid, a random one from each of SAMPLE equal stretches.
        rng = np.random.default_rng(seed)
        edges = np.linspace(0, self.cells, SAMPLE + 1).astype(int)
        flat = [int(rng.integers(a, b)) for a, b in itertools.pairwise(edges)]
        where = np.unravel_index(flat, [sizes[axis] for axis in axes])
        self.frame = pd.DataFrame(dict(zip(axes, where, strict=True)))
        self.clean = torch.tensor(prompts.clean)
        self.corrupted = torch.tensor(prompts.corrupted)
        self.metric = metric_of(prompts)

    def run(self) -> torch.Tensor:
        """The sampled cells' values; the cache is made anew, as a user would."""
        with torch.no_grad():
            _, cache = self.model.run_with_cache(
                self.clean, names_filter=lambda name: name.endswith(f"hook_{self.name}")
            )
            return tl.generic_activation_patch(
                self.model, self.corrupted, cache, self.metric, self.setter, self.name,
                index_df=self.frame,
            )  # fmt: skip


def compare(model: Any, prompts: Any, site: str, repeats: int, one_by_one: bool) -> dict[str, Any]:
    """One row of the table."""
    groups = [prompts[[i]] for i in range(len(prompts))] if one_by_one else [prompts]
    peers = [Peer(model, group, site) for group in groups]
    swept = {"z_all": "z", "z_pos": "z"}.get(site, site)
    axes = {axis: range(n) for axis, n in _sizes(model, prompts, SITES[site][2]).items()}

    def ours() -> Any:
        sweep = tk.Sweep(tk.Patch(tk.Site(swept)), **axes)
        return tk.run(model, prompts, sweep, tk.LogitDiff())

    def theirs() -> list[torch.Tensor]:
        return [peer.run() for peer in peers]

    timed = alternating({"tlkit": ours, "transformer_lens": theirs}, repeats)
    values = timed["tlkit"]["value"]["value"].isel(metric=0)
    gap = 0.0
    for number, (peer, found) in enumerate(
        zip(peers, timed["transformer_lens"]["value"], strict=True)
    ):
        mine = values.isel(example=number) if one_by_one else values.mean("example")
        at = tuple(peer.frame[axis].to_numpy() for axis in peer.axes)
        gap = max(gap, float(np.abs(mine.values[at] - found.numpy()).max()))
    scale = peers[0].cells / SAMPLE
    theirs_seconds = timed["transformer_lens"]["seconds"] * scale
    return {
        "prompts": len(prompts), "tokens": len(prompts.clean[0]), "cells": peers[0].cells,
        "tlkit_seconds": timed["tlkit"]["seconds"], "tlkit_all": timed["tlkit"]["all"],
        "peer": f"transformer_lens 4.3, {'one by one' if one_by_one else 'batched'}",
        "peer_seconds": theirs_seconds, "peer_sampled_cells": SAMPLE,
        "ratio": theirs_seconds / timed["tlkit"]["seconds"],
        "largest_difference": gap, "equal": gap < TOLERANCE,
    }  # fmt: skip


def _sizes(model: Any, prompts: Any, axes: tuple[str, ...]) -> dict[str, int]:
    sizes = {"layer": model.cfg.n_layers, "pos": len(prompts.clean[0]), "head": model.cfg.n_heads}
    return {axis: sizes[axis] for axis in axes}


def main() -> None:
    """Run the rows that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    model = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct")
    eight = ioi_pairs(model, 8)
    rows: dict[str, tuple[Any, str, bool]] = {
        "resid_pre_8": (eight, "resid_pre", False),
        "resid_pre_8_one_by_one": (eight, "resid_pre", True),
        "resid_pre_24": (long_pair(24, 0), "resid_pre", False),
        "attn_out_8": (eight, "attn_out", False),
        "mlp_out_8": (eight, "mlp_out", False),
        "z_all_8": (eight, "z_all", False),
        "z_pos_1": (eight[[0]], "z_pos", False),
    }
    results: dict[str, Any] = {"machine": machine()}
    for name in asked.rows or rows:
        prompts, site, one_by_one = rows[name]
        results[name] = compare(model, prompts, site, asked.repeats, one_by_one)
        sys.stderr.write(f"{name}: {results[name]['ratio']:.1f} x\n")
    say(results)


if __name__ == "__main__":
    main()
