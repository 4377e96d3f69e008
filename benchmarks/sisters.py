"""Studies of sisters: features for layer probes, and choosing among all layers' directions.

    python benchmarks/sisters.py                    # every row
    python benchmarks/sisters.py features           # some

Features: the streams and the attention outputs of a prompt's last 64 tokens, all layers, of 400
prompts, beside TransformerLens's cache, filtered to the two sites and in batches sorted by length,
kept in memory as a notebook would. Outputs are compared before the ratio counts. Memory is the
process's peak less what it held before (Linux).

Choosing: every layer's direction by log-odds and KL, the best few by what the model then writes,
beside Hugging Face's `generate` under hooks for each candidate, all prompts in one batch, and one
hooked pass of the harmless ones. Refusals and KL are compared where both have them.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from timing import alternating, machine, peak_growth, say

import tlkit as tk
from tlkit.models.bridge import unbridged
from tlkit.prompts.samples import requests, word_problems
from tlkit.studies.abliteration.candidates import Bench, Writer, choose, prefixes_of
from tlkit.studies.abliteration.directions import directions
from tlkit.studies.abliteration.inputs import as_prompts
from tlkit.studies.abliteration.projection import strengths_of
from tlkit.studies.behaviour import checked, classify
from tlkit.studies.layer_probes.activations import Activations

SITES = {"resid_post": "hook_resid_post", "attn_out": "hook_attn_out"}
COUNT, LAST, BATCH = 400, 64, 16
PROMPTS, ANSWER, BEST = 24, 24, 5


def features(repeats=2):
    """Activations of 400 prompts."""
    model = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct")
    texts = [row["prompt"] for row in requests()] + [row["question"] for row in word_problems()]
    prompts = as_prompts(model, texts[:COUNT], "harmless", chat=True)
    folder = Path(tempfile.mkdtemp())

    def ours():
        shutil.rmtree(folder)
        found = Activations(folder, model, prompts, tuple(SITES), "cp", LAST)
        found.fill()
        return found

    timed = alternating(
        {"ours": ours, "theirs": lambda: _cached(model, prompts.clean)}, repeats
    )  # fmt: skip
    mine, other = timed["ours"].pop("value"), timed["theirs"].pop("value")
    gap = max(
        float(np.abs(mine.layer(site, layer) - other[site][layer]).max())
        for site in SITES
        for layer in range(model.cfg.n_layers)
    )
    largest = max(float(np.abs(values).max()) for values in other.values())
    del other
    memory = {"ours": peak_growth(ours),
              "theirs": peak_growth(lambda: _cached(model, prompts.clean))}  # fmt: skip
    on_disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20
    shutil.rmtree(folder)
    return {
        **_ratio(timed), "prompts": len(prompts), "tokens": sum(map(len, prompts.clean)),
        "memory_mib": memory["ours"], "peer_memory_mib": memory["theirs"],
        "memory_ratio": memory["theirs"] / max(memory["ours"], 1), "on_disk_mib": on_disk,
        "largest_difference": gap, "largest_value": largest,
    }  # fmt: skip


def _cached(model, ids):
    """The same ``[layer, prompt, place, d_model]`` from TransformerLens's filtered cache."""
    layers, places = model.cfg.n_layers, min(LAST, max(map(len, ids)))
    out = {site: np.zeros((layers, len(ids), places, model.cfg.d_model), np.float32)
           for site in SITES}  # fmt: skip
    names = {f"blocks.{layer}.{hook}" for layer in range(layers) for hook in SITES.values()}
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    for first in range(0, len(order), BATCH):
        some = order[first : first + BATCH]
        tokens = torch.zeros(len(some), max(len(ids[i]) for i in some), dtype=torch.long)
        for j, i in enumerate(some):
            tokens[j, : len(ids[i])] = torch.tensor(ids[i])
        with torch.no_grad():
            # Causal: what is padded behind changes nothing before it.
            _, cache = model.run_with_cache(tokens, names_filter=lambda name: name in names)
        for site, hook in SITES.items():
            for layer in range(layers):
                values = cache[f"blocks.{layer}.{hook}"].numpy()
                for j, i in enumerate(some):
                    own = values[j, : len(ids[i])][-places:]
                    out[site][layer, i, places - len(own) :] = own
    return out


def choosing(repeats=1):
    """Which of all layers' directions undoes the refusals."""
    model = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct-refusing")
    rows = [row for row in requests() if row["split"] == "train"]
    bad, good = (
        as_prompts(model, [row["prompt"] for row in rows if row["label"] == label][:PROMPTS],
                   kind, chat=True)
        for label, kind in (("refuse", "harmful"), ("harmless", "harmless"))
    )  # fmt: skip
    found = directions(model, bad, good)
    write = Writer(model, True, ANSWER)
    detector = next(iter(checked(None).values()))
    weights = strengths_of(None, model.cfg.n_layers)
    answers, texts = write(bad)
    refused = [classify(text, detector) == "refusal" for text in texts]
    prefixes = prefixes_of(model, None, answers, refused, chat=True)

    def ours():
        bench = Bench(model, bad, good, prefixes, weights, write, detector)
        return choose(bench, found, 0.1, 0.1, BEST)

    timed = alternating(
        {"ours": ours, "theirs": lambda: _hooked(model, found, bad, good, detector)}, repeats
    )  # fmt: skip
    key, table = timed["ours"].pop("value")
    other = timed["theirs"].pop("value")
    kls = [abs(table[one].kl - kl) for one, (_, kl) in other.items()]
    written = [one for one in table if not np.isnan(table[one].rate)]
    removed = {one: row for one, row in other.items() if row[0] <= 0.1}
    theirs = min(removed or other, key=lambda one: other[one][1 if removed else 0])
    return {
        **_ratio(timed), "candidates": len(found), "prompts": [len(bad), len(good)],
        "answer_tokens": ANSWER, "before": float(np.mean(refused)),
        "chosen": list(key), "chosen_by_loop": list(theirs),
        "ours": [table[key].rate, table[key].kl], "loop": list(other[theirs]),
        "largest_difference_of_kl": max(kls),
        "largest_difference_of_refusals": max(
            abs(table[one].rate - other[one][0]) for one in written
        ),
    }  # fmt: skip


def _hooked(model, found, bad, good, detector):
    """Refusals and KL of every candidate: hooks on all that writes to the stream, `generate`."""
    table = {}
    with torch.no_grad(), unbridged(model) as hf:
        writers = [hf.get_input_embeddings()]
        for block in hf.model.layers:
            writers += [block.self_attn.o_proj, block.mlp.down_proj]
        base = _last(hf, good.clean)
        for key, direction in found.items():
            v = direction.vector[0]
            hooks = [
                module.register_forward_hook(
                    lambda _m, _i, out, v=v: out - (out @ v)[..., None] * v
                )
                for module in writers
            ]
            try:
                texts = _written(hf, model.tokenizer, bad.clean)
                kl = (base.exp() * (base - _last(hf, good.clean))).sum(-1).mean()
            finally:
                for hook in hooks:
                    hook.remove()
            rate = np.mean([classify(text, detector) == "refusal" for text in texts])
            table[key] = (float(rate), float(kl))
    return table


def _padded(ids):
    """Token ids padded on the left, and their mask."""
    width = max(map(len, ids))
    tokens, mask = torch.zeros(2, len(ids), width, dtype=torch.long)
    for row, seen, one in zip(tokens, mask, ids, strict=True):
        row[width - len(one) :] = torch.tensor(one)
        seen[width - len(one) :] = 1
    return {"input_ids": tokens, "attention_mask": mask}


def _last(hf, ids):
    """Log-probabilities of each prompt's next token."""
    return hf(**_padded(ids), logits_to_keep=1).logits[:, -1].log_softmax(-1)


def _written(hf, tokenizer, ids):
    """Greedy answers of all prompts in one batch."""
    given = _padded(ids)
    out = hf.generate(
        **given, max_new_tokens=ANSWER, do_sample=False, pad_token_id=tokenizer.pad_token_id
    )
    width = given["input_ids"].shape[1]
    return [tokenizer.decode(row[width:], skip_special_tokens=True) for row in out]


def _ratio(timed):
    return {
        "seconds": timed["ours"]["seconds"], "all": timed["ours"]["all"],
        "peer_seconds": timed["theirs"]["seconds"], "peer_all": timed["theirs"]["all"],
        "ratio": timed["theirs"]["seconds"] / timed["ours"]["seconds"],
    }  # fmt: skip


def main() -> None:
    """The rows that are asked for."""
    rows = {"features": features, "choosing": choosing}
    results = {"machine": machine()}
    for name in sys.argv[1:] or rows:
        results[name] = rows[name]()
        sys.stderr.write(f"{name}: {results[name]['ratio']:.2f} x\n")
    say(results)


if __name__ == "__main__":
    main()
