"""Cumulative question knockout, read at every layer: tlkit against a loop over layers.

    python benchmarks/knockout.py

"Blocks 0 to k cut, the state behind block k read", for every k, on 32 questions with answers. The
loop does what a user of TransformerLens would: for each k one batch of all questions up to block
k, with the edges of blocks 0 to k set to 0 by hooks on the patterns, and no block behind k (the
last k's batch makes logits, too).
"""

import sys

import numpy as np
import torch
from timing import alternating, machine, say

import tlkit as tk
from tlkit.prompts.samples import questions

COUNT, TOLERANCE = 32, 1e-3


def asked(model, count=COUNT):
    """Questions with their answers; the span is the question's subject."""
    rows = [row for row in questions() if row["question"].count(row["subject"]) == 1][:count]
    texts = [f"Q: {row['question']}\nA: {row['answer']}." for row in rows]
    return tk.Prompts.from_texts(model, texts, spans={"subject": [row["subject"] for row in rows]})


class Loop:
    """One batch per layer, padded on the right, which a causal model does not see."""

    def __init__(self, model, prompts):
        self.model = model
        self.ends = torch.tensor([len(ids) - 1 for ids in prompts.clean])
        width = int(self.ends.max()) + 1
        self.ids = torch.zeros(len(prompts), width, dtype=torch.long)
        self.kept = torch.ones(len(prompts), 1, width, width)
        for i, ids in enumerate(prompts.clean):
            self.ids[i, : len(ids)] = torch.tensor(ids)
            start, stop = prompts.spans["subject"][i]
            self.kept[i, 0, stop:, start:stop] = 0.0

    def run(self):
        """States ``[layer, question, d_model]``."""
        read = []
        rows = torch.arange(len(self.ids))
        with torch.no_grad():
            for k in range(self.model.cfg.n_layers):
                hooks = [(f"blocks.{i}.attn.hook_pattern", self.cut) for i in range(k + 1)]
                kept = []
                hooks.append((f"blocks.{k}.hook_resid_post", lambda x, hook, to=kept: to.append(x)))
                self.model.run_with_hooks(self.ids, stop_at_layer=k + 1, fwd_hooks=hooks)
                read.append(kept[0][rows, self.ends])
        return torch.stack(read)

    def cut(self, pattern, hook):
        """Set the edges to 0, not renormalised."""
        return pattern * self.kept


def main() -> None:
    """One row."""
    model = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct")
    prompts = asked(model)
    knockout = tk.Condition("cut", (tk.Knockout(keys="subject"),))
    site = tk.Site("resid_post", pos="end")
    loop = Loop(model, prompts)
    timed = alternating(
        {"tlkit": lambda: tk.capture(model, prompts, site, knockout), "loop": loop.run}
    )
    mine = timed["tlkit"]["value"]["resid_post"].values
    theirs = timed["loop"]["value"].numpy()
    base = tk.capture(model, prompts, site)["resid_post"].values
    gap = float(np.abs(mine - theirs).max() / np.abs(theirs).max())
    ratio = timed["loop"]["seconds"] / timed["tlkit"]["seconds"]
    lengths = [len(ids) for ids in prompts.clean]
    behind = [n - prompts.spans["subject"][i][1] for i, n in enumerate(lengths)]
    sys.stderr.write(f"cumulative knockout: {ratio:.1f} x\n")
    say({
        "machine": machine(), "questions": len(prompts), "tokens": sum(lengths),
        "padded_tokens": max(lengths) * len(lengths), "tokens_behind_the_span": sum(behind),
        "tlkit_seconds": timed["tlkit"]["seconds"], "tlkit_all": timed["tlkit"]["all"],
        "peer": "transformer_lens 4.3, one batch per layer that stops there",
        "peer_seconds": timed["loop"]["seconds"], "peer_all": timed["loop"]["all"],
        "ratio": ratio, "largest_difference": gap, "equal": gap < TOLERANCE,
        "largest_effect": float(np.abs(mine - base).max()),
    })  # fmt: skip


if __name__ == "__main__":
    main()
