"""The interventions of a pathways study against a plain hooked loop, on the same answers.

    python benchmarks/pathways.py

The model answers our own questions once; both sides get these answers. Each side measures ΔP of
the answer's probability for every k: question and answer cut off in blocks 0 to k, random tokens
cut off, and a paired question's stream put in at the question and where the answer is predicted.
The loop does what a user of TransformerLens would: one hooked forward pass for each example, k and
intervention, with the partner's streams kept from one run.
"""

import sys

import numpy as np
import torch
from timing import alternating, machine, say

import tlkit as tk
from tlkit.studies.answers import answer
from tlkit.studies.pathways.examples import cut, cut_written, examples_of
from tlkit.studies.pathways.intervention import interventions
from tlkit.studies.pathways.partners import partners_of

COUNT, LAYERS, TOLERANCE = 16, range(0, 30, 3), 0.05  # percentage points


class Loop:
    """Hooked forward passes, one for each cell."""

    def __init__(self, model, examples):
        self.model, self.examples = model, examples
        self.partners = partners_of(examples, 0)

    def run(self):
        """ΔP ``[kind, group, layer, example]`` and the control ``[layer, example]``."""
        change = np.full((2, 2, len(LAYERS), len(self.examples)), np.nan)
        control = np.full((len(LAYERS), len(self.examples)), np.nan)
        with torch.no_grad():
            for i, one in enumerate(self.examples):
                base, length = self.probability(one, []), len(one.ids) - 1
                works = [cut(one.question, length, [0], "zero"),
                         cut_written(one.prompt, length, [0], "zero"),
                         cut(one.control, length, [0], "zero")]  # fmt: skip
                for at, k in enumerate(LAYERS):
                    for group, worked in enumerate(works):
                        if worked.status == "missing":
                            continue
                        hooks = [(f"blocks.{b}.attn.hook_pattern", self.cutter(worked))
                                 for b in range(k + 1)]  # fmt: skip
                        found = 100 * (self.probability(one, hooks) - base)
                        if group == 2:
                            control[at, i] = found
                        else:
                            change[0, group, at, i] = found
                self.patch(i, one, base, change)
        return change, control

    def patch(self, i, one, base, change):
        """Streams of the partner's run, at the question and where the answer is predicted."""
        if self.partners[i] is None:
            return
        other = self.examples[self.partners[i]]
        ids = torch.tensor([other.ids[: other.prompt] + one.ids[one.prompt : -1]])
        names = [f"blocks.{k}.hook_resid_pre" for k in LAYERS]
        _, cache = self.model.run_with_cache(ids, names_filter=names)
        wheres = [list(one.question), list(range(one.exact.start - 1, len(one.ids) - 1))]
        for group, where in enumerate(wheres):
            for at, name in enumerate(names):

                def write(stream, hook, name=name, where=where):
                    stream[0, where] = cache[name][0, where]
                    return stream

                change[1, group, at, i] = 100 * (self.probability(one, [(name, write)]) - base)

    @staticmethod
    def cutter(worked):
        """A hook that sets one block's edges to 0."""

        def write(pattern, hook):
            for edit in worked.edits:
                for key in edit.keys:
                    pattern[:, :, list(edit.positions), key] = 0.0
            return pattern

        return write

    def probability(self, one, hooks):
        """The exact answer's probability under hooks."""
        logits = self.model.run_with_hooks(torch.tensor([one.ids[:-1]]), fwd_hooks=hooks)[0]
        log = logits.float().log_softmax(-1)
        return float(sum(log[p - 1, one.ids[p]] for p in range(*one.exact)).exp())


def main() -> None:
    """One row."""
    model = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct")
    said = answer(model, tk.pathways.own_questions(4 * COUNT), template="short")
    examples = [one for one in examples_of(said, 0) if one.control is not None][:COUNT]
    loop = Loop(model, examples)
    timed = alternating({
        "tlkit": lambda: interventions(model, examples, LAYERS, mode="zero", seed=0),
        "loop": loop.run,
    }, repeats=1)  # fmt: skip
    mine, (change, control) = timed["tlkit"]["value"], timed["loop"]["value"]
    gap = max(float(np.nanmax(np.abs(mine.delta_p - change))),
              float(np.nanmax(np.abs(mine.control - control))))  # fmt: skip
    ratio = timed["loop"]["seconds"] / timed["tlkit"]["seconds"]
    sys.stderr.write(f"pathways, interventions: {ratio:.1f} x\n")
    say({
        "machine": machine(), "questions": len(examples), "layers": list(LAYERS),
        "tokens": sum(len(one.ids) for one in examples),
        "tlkit_seconds": timed["tlkit"]["seconds"],
        "peer": "transformer_lens 4.3, one hooked forward pass per example, k and intervention",
        "peer_seconds": timed["loop"]["seconds"], "ratio": ratio,
        "largest_difference_points": gap, "equal": gap < TOLERANCE,
        "largest_effect_points": float(np.nanmax(np.abs(change))),
    })  # fmt: skip


if __name__ == "__main__":
    main()
