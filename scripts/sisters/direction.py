"""Find the direction that the refusing sister's refusals hang on, and write it beside the adapter.

    python scripts/sisters/direction.py ADAPTER [--layers 24 26 28]

What the adapter adds: the mean, over training requests to be declined, of the refusing model's
stream less the original's, at the last prompt token. The usual difference of means, of such
requests and harmless ones, holds what the original knew of them already, and taking that out
damages it (KL of 0.3 to 1.1 on harmless prompts, against 0.1). Of the layers without whose
direction at most a tenth of 24 requests are declined, the one that brings harmless prompts
closest to the original is taken; scripts/sisters/evaluate.py measures it on prompts that were never
trained on.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from train import texts

import tlkit as tk
from tlkit.engine.generate import greedy
from tlkit.models.bridge import Parts
from tlkit.studies.abliteration.forward import kl, next_token
from tlkit.studies.behaviour import refused

TRIED, WORDS, ENOUGH = 24, 16, 0.1


def added(original, tuned, texts):
    """Mean of the tuned model's last-token stream less the original's, ``[layer, d_model]``."""
    means = []
    for model in (original, tuned):
        prompts = tk.Prompts.from_texts(model, texts, chat=True)
        seen = tk.capture(model, prompts, tk.Site("resid_post", pos="end"))["resid_post"]
        means.append(seen.mean("example").transpose("layer", "d_model").values)
    return np.float32(means[1] - means[0])


def main() -> None:
    """Find it, say how it was chosen, write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("adapter", type=Path)
    parser.add_argument("--layers", type=int, nargs="+", default=[24, 26, 28])
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rows = texts(asked.seed, 8 * asked.prompts)
    refuse, harmless = (one[:: max(1, len(one) // asked.prompts)][: asked.prompts] for one in rows)
    original = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct")
    model = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct", adapter=asked.adapter)
    found = added(original, model, refuse)
    tried = [
        tk.Prompts.from_texts(model, one[:TRIED], chat=True).clean for one in (refuse, harmless)
    ]
    base, end = next_token(Parts(original), tried[1]), [model.tokenizer.eos_token_id]
    rated = {}
    for layer in asked.layers:
        with tk.abliteration.projected(model, torch.from_numpy(found[layer])):
            said = greedy(model, tried[0], max_new_tokens=WORDS, stop=end)
            moved = float(kl(base, next_token(Parts(model), tried[1])).mean())
        share = sum(refused(model.tokenizer.decode(one)) == "refusal" for one in said) / TRIED
        rated[layer] = (share, moved)
        print(f"layer {layer}: {share:.2f} declined, KL {moved:.2f} on harmless ones", flush=True)
    enough = [layer for layer, (share, _) in rated.items() if share <= ENOUGH] or list(rated)
    best = min(enough, key=lambda layer: rated[layer][1])
    unit = torch.from_numpy(found[best] / np.linalg.norm(found[best])).contiguous()
    about = {"layer": str(best), "declined": str(rated[best][0]), "kl": str(rated[best][1])}
    save_file({"direction": unit}, asked.adapter / "direction.safetensors", about)


if __name__ == "__main__":
    main()
