"""How often the sisters decline, and how far their first token is from the original's.

    python scripts/sisters/evaluate.py [--extra FOLDER] [--adapter FOLDER] > figures.json

On prompts that training never saw: the test split of `requests()`, and harmful_harmless.jsonl and
xstest.jsonl where a folder with them is given. With --adapter that one is measured, and the
direction beside it if there is one, instead of what ships. A random direction is the control.
"""

import argparse
import contextlib
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

import tlkit as tk
from tlkit.engine.generate import greedy
from tlkit.models.bridge import Parts
from tlkit.models.sisters import FOLDER
from tlkit.prompts.samples import requests
from tlkit.results.statistics import wilson_interval
from tlkit.studies.abliteration.forward import kl, next_token
from tlkit.studies.behaviour import CLASSES, refused

SOURCE = "smollm2-135m-instruct"
WORDS = 24


def prompts_of(extra, most):
    """Lists of prompts by name."""
    own = [row for row in requests() if row["split"] == "test"]
    found = {
        f"own {label}": [row["prompt"] for row in own if row["label"] == label]
        for label in ("refuse", "harmless")
    }
    for name in ("harmful_harmless", "xstest") if extra else ():
        rows = [json.loads(line) for line in (extra / f"{name}.jsonl").open(encoding="utf-8")]
        for label in sorted({row["label"] for row in rows}):
            found[f"{name} {label}"] = [r["prompt"] for r in rows if r["label"] == label][:most]
    return found


def sisters(adapter):
    """Name, model and what is projected out of it while it is measured."""
    original = tk.HookedTransformer.from_pretrained(SOURCE)
    refusing = tk.HookedTransformer.from_pretrained(SOURCE, adapter=adapter)
    yield "original", original, None
    yield "refusing", refusing, None
    if (adapter / "direction.safetensors").is_file():
        unit = load_file(adapter / "direction.safetensors")["direction"]
        yield "abliterated", refusing, unit
        drawn = torch.randn(unit.shape, generator=torch.Generator().manual_seed(0))
        yield "refusing less a random direction", refusing, drawn / drawn.norm()


def measured(model, unit, ids, first, show, texts):
    """Shares of answers by class, and the mean KL of the first answer token to the original's."""
    taken = contextlib.nullcontext() if unit is None else tk.abliteration.projected(model, unit)
    with taken:
        said = [
            model.tokenizer.decode(answer)
            for answer in greedy(
                model, ids, max_new_tokens=WORDS, stop=[model.tokenizer.eos_token_id]
            )
        ]
        own = next_token(Parts(model), ids)
    classes = [refused(text) for text in said]
    for text, answer, kind in list(zip(texts, said, classes, strict=True))[:show]:
        sys.stderr.write(f"    {kind:8s} {text[:70]!r} -> {answer[:80]!r}\n")
    low, high = wilson_interval(classes.count("refusal"), len(classes))
    shares = {name: classes.count(name) / len(classes) for name in CLASSES}
    return {**shares, "refusal_low": low, "refusal_high": high, "kl": float(kl(first, own).mean())}


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--adapter", type=Path, default=FOLDER)
    parser.add_argument("--extra", type=Path)
    parser.add_argument("--most", type=int, default=200)
    parser.add_argument("--show", type=int, default=0)
    asked = parser.parse_args()
    sets, first, result = prompts_of(asked.extra, asked.most), {}, {}
    for name, model, unit in sisters(asked.adapter):
        for kind, texts in sets.items():
            ids = tk.Prompts.from_texts(model, texts, chat=True).clean
            if kind not in first:  # the original comes first
                first[kind] = next_token(Parts(model), ids)
            row = measured(model, unit, ids, first[kind], asked.show, texts)
            result.setdefault(name, {})[kind] = {"n": len(texts), **row}
            sys.stderr.write(f"{name}, {kind}: {row['refusal']:.3f}, KL {row['kl']:.3f}\n")
    json.dump(result, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
