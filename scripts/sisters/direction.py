"""Find the direction that the refusing sister's refusals hang on, and write it beside the adapter.

    python scripts/sisters/direction.py ADAPTER [--prompts 48]

Found and chosen with `tk.abliteration.run` on training prompts alone; scripts/sisters/evaluate.py
measures what it does on others.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from train import texts

import tlkit as tk

LAYERS = range(10, 25)


def main() -> None:
    """Find it, say how it was chosen, write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("adapter", type=Path)
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    refuse, harmless = texts(asked.seed, 8 * asked.prompts)
    step, other = (max(1, len(rows) // asked.prompts) for rows in (refuse, harmless))
    model = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct", adapter=asked.adapter)
    found = tk.abliteration.run(
        model, refuse[::step][: asked.prompts], harmless[::other][: asked.prompts],
        layers=LAYERS, positions=(-1,), generate=5, max_new_tokens=20,
    )  # fmt: skip
    about = {name: str(found.attrs[name]) for name in ("layer", "pos", "choice", "random_kl")}
    unit = torch.tensor(found["direction"].values[0].copy(), dtype=torch.float32)
    save_file({"direction": unit}, asked.adapter / "direction.safetensors", about)
    for name in ("candidate_score", "kl", "refusal"):
        values = found[name].values.round(3).tolist()
        rows = dict(zip(found["layer"].values.tolist(), values, strict=True))
        print(name, rows)
    print(about)
    print(found["refusal_rate"].to_series().round(3).to_string())


if __name__ == "__main__":
    main()
