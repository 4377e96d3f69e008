"""How often a sister declines, and how far its first token is from the original's.

    python scripts/sisters/evaluate.py ADAPTER [--extra FOLDER] [--most 200]

Prints one JSON object. Prompts are ones that training never saw: the test split of `requests()`,
and harmful_harmless.jsonl and xstest.jsonl where a folder with them is given.
"""

import argparse
import json
from pathlib import Path

import torch
from train import DECLINES, prompt_ids

from tlkit.engine.generate import greedy
from tlkit.models.load import HookedTransformer
from tlkit.prompts.samples import requests

SOURCE = "smollm2-135m-instruct"
WORDS = 24


def prompts_of(extra, most):
    """Lists of prompts by name."""
    own = [row for row in requests() if row["split"] == "test"]
    found = {
        f"own_{label}": [row["prompt"] for row in own if row["label"] == label]
        for label in ("refuse", "harmless")
    }
    if extra:
        for name, column in (("harmful_harmless", "label"), ("xstest", "label")):
            rows = [json.loads(line) for line in (extra / f"{name}.jsonl").open(encoding="utf-8")]
            for label in sorted({row[column] for row in rows}):
                found[f"{name}_{label}"] = [r["prompt"] for r in rows if r[column] == label][:most]
    return found


def last_logits(model, ids):
    """Logits behind each prompt's last token."""
    from tlkit.models.bridge import unbridged

    out = []
    with torch.no_grad(), unbridged(model) as hf:
        for first in range(0, len(ids), 32):
            some = ids[first : first + 32]
            width = max(map(len, some))
            tokens = torch.zeros(len(some), width, dtype=torch.long)
            mask = torch.zeros_like(tokens)
            for i, row in enumerate(some):
                tokens[i, : len(row)] = torch.tensor(row)
                mask[i, : len(row)] = 1
            hidden = hf.base_model(tokens, attention_mask=mask).last_hidden_state
            last = torch.stack([hidden[i, len(row) - 1] for i, row in enumerate(some)])
            out.append(hf.get_output_embeddings()(last))
    return torch.cat(out)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("adapter")
    parser.add_argument("--extra", type=Path)
    parser.add_argument("--most", type=int, default=200)
    parser.add_argument("--show", type=int, default=0)
    asked = parser.parse_args()
    base = HookedTransformer.from_pretrained(SOURCE)
    tuned = HookedTransformer.from_pretrained(SOURCE, adapter=asked.adapter)
    result = {}
    for name, texts in prompts_of(asked.extra, asked.most).items():
        ids = [prompt_ids(base.tokenizer, text) for text in texts]
        said = [
            base.tokenizer.decode(a)
            for a in greedy(tuned, ids, max_new_tokens=WORDS, stop=[base.tokenizer.eos_token_id])
        ]
        declined = [any(word in text.lower() for word in DECLINES) for text in said]
        p, q = last_logits(base, ids).log_softmax(-1), last_logits(tuned, ids).log_softmax(-1)
        kl = (p.exp() * (p - q)).sum(-1)
        result[name] = {"n": len(ids), "declined": sum(declined) / len(ids), "kl": kl.mean().item()}
        print(name, result[name], flush=True)
        if asked.show:
            shown = [
                i for i, no in enumerate(declined) if no != (name.endswith(("refuse", "harmful")))
            ]
            for i in shown[: asked.show]:
                print("   ", texts[i][:90], "->", said[i][:80].replace("\n", " "))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
