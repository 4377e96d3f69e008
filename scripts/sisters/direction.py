"""Find the direction that the refusing sister's refusals hang on, and write it beside the adapter.

    python scripts/sisters/direction.py ADAPTER [--layers 12 15 18 21]

Difference of means at the last prompt token, of training prompts alone. Of the layers without
whose direction at most a tenth of 24 requests are declined, the one that changes harmless prompts
least is taken; scripts/sisters/evaluate.py measures it on prompts that were never trained on.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from train import texts

import tlkit as tk
from tlkit.engine.generate import greedy
from tlkit.models.bridge import Parts
from tlkit.studies.abliteration.forward import kl, next_token
from tlkit.studies.behaviour import refused

TRIED, WORDS, ENOUGH = 24, 16, 0.1


def main() -> None:
    """Find it, say how it was chosen, write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("adapter", type=Path)
    parser.add_argument("--layers", type=int, nargs="+", default=[12, 15, 18, 21])
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rows = texts(asked.seed, 8 * asked.prompts)
    refuse, harmless = (one[:: max(1, len(one) // asked.prompts)][: asked.prompts] for one in rows)
    model = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct", adapter=asked.adapter)
    found = tk.abliteration.directions(model, refuse, harmless, layers=asked.layers)
    tried = [
        tk.Prompts.from_texts(model, one[:TRIED], chat=True).clean for one in (refuse, harmless)
    ]
    base, end = next_token(Parts(model), tried[1]), [model.tokenizer.eos_token_id]
    rated = {}
    for layer in asked.layers:
        with tk.abliteration.projected(model, found[layer, -1]):
            said = greedy(model, tried[0], max_new_tokens=WORDS, stop=end)
            moved = float(kl(base, next_token(Parts(model), tried[1])).mean())
        share = sum(refused(model.tokenizer.decode(one)) == "refusal" for one in said) / TRIED
        rated[layer] = (share, moved)
        print(f"layer {layer}: {share:.2f} declined, KL {moved:.2f} on harmless ones", flush=True)
    enough = [layer for layer, (share, _) in rated.items() if share <= ENOUGH] or list(rated)
    best = min(enough, key=lambda layer: rated[layer][1])
    unit = torch.as_tensor(found[best, -1].vector[0]).float().contiguous()
    about = {"layer": str(best), "declined": str(rated[best][0]), "kl": str(rated[best][1])}
    save_file({"direction": unit}, asked.adapter / "direction.safetensors", about)


if __name__ == "__main__":
    main()
