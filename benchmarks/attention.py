"""Attention of long documents and of prompts under conditions: time and memory.

    python benchmarks/attention.py                  # every row
    python benchmarks/attention.py columns long     # some

Column means and variances stand beside Hugging Face's eager attention with all patterns asked for
and numpy on them; the comparison of conditions beside TransformerLens's cache, filtered to the
patterns, in batches. Outputs are compared before a ratio counts. Memory is the process's peak less
what it held before (Linux).
"""

import sys
import time

import numpy as np
import torch
from timing import alternating, machine, peak_growth, say

import tlkit as tk
from tlkit.engine.streaming import stream
from tlkit.engine.tallies import Several, Tallies, Window
from tlkit.models.bridge import Parts, unbridged
from tlkit.prompts.insertion import inserted
from tlkit.prompts.samples import documents, word_problems
from tlkit.studies.variance.scores import Scores

EMBEDDED = "smollm2-135m-instruct"
WINDOW, POOL, TOP = 32, 5, 64
LONG, SOME = (2000, 4000, 8000, 16000, 32000), 5


def tokens_of(model, count):
    """So many tokens of our own long documents, one after another."""
    ids = []
    while len(ids) < count:
        for row in documents():
            ids += tk.Prompts.from_texts(model, [row["text"]]).clean[0]
    return list(ids[:count])


def eager(model, ids):
    """All patterns ``[layer, head, query, key]`` of Hugging Face's eager attention."""
    with torch.no_grad(), unbridged(model) as hf:
        found = hf.base_model(torch.tensor([ids]), output_attentions=True, use_cache=False)
    return [layer[0].numpy() for layer in found.attentions]


def dense_columns(model, ids):
    """Column means by numpy."""
    n = len(ids)
    behind = np.arange(n - 1, -1, -1)
    out = []
    for a in eager(model, ids):
        sums = a.sum(1) - np.diagonal(a, axis1=1, axis2=2)
        with np.errstate(invalid="ignore", divide="ignore"):
            out.append(np.where(behind > 0, sums / behind, np.nan))
    return np.stack(out)


def streamed_columns(parts, ids):
    """Column means as they stream by."""
    tallies = Tallies([len(ids)], parts.n_layers, ("columns",))
    stream(parts, [ids], tallies)
    return tallies.found("columns")[:, 0]


def dense_variances(model, ids):
    """Temporal and column variance of each head, and the ranks' by all heads of a layer."""
    temporal, column, ranks, tops, rank = [], [], [], [], []
    for a in eager(model, ids):
        rows = a[:, -WINDOW:, :-WINDOW]
        temporal.append(rows.var(1, ddof=1).sum(-1))
        column.append(a.sum(1).var(-1, ddof=1))
        mean = rows.mean((0, 1))
        kernel = np.ones(POOL)
        smooth = np.convolve(mean, kernel, "same") / np.convolve(np.ones_like(mean), kernel, "same")
        order = np.argsort(-smooth, kind="stable")
        place = np.empty(len(order))
        place[order] = np.arange(len(order)) / (len(order) - 1)
        ranks.append(place)
        tops.append(set(order[:TOP].tolist()))
        union = sorted(set().union(*tops[-9:]))
        spread = (
            np.var(ranks[-9:], axis=0, ddof=1) if len(ranks) > 1 else np.full(len(place), np.nan)
        )
        rank.append(spread[union].mean())
    return np.stack(temporal), np.stack(column), np.array(rank)


def streamed_variances(parts, ids):
    """The same as they stream by."""
    found = Scores(parts, ids, WINDOW, POOL, TOP, rows=())
    return found.heads["temporal"], found.heads["column"], found.layers["rank"]


def beside(ours, theirs, repeats=3):
    """Two ways in turns: seconds, their ratio, and each one's peak memory."""
    timed = alternating({"ours": ours, "theirs": theirs}, repeats)
    memory = {"ours": peak_growth(ours), "theirs": peak_growth(theirs)}
    return {
        "seconds": timed["ours"]["seconds"], "all": timed["ours"]["all"],
        "peer_seconds": timed["theirs"]["seconds"], "peer_all": timed["theirs"]["all"],
        "ratio": timed["theirs"]["seconds"] / timed["ours"]["seconds"],
        "memory_mib": memory["ours"], "peer_memory_mib": memory["theirs"],
        "memory_ratio": memory["theirs"] / max(memory["ours"], 1),
    }, timed["ours"]["value"], timed["theirs"]["value"]  # fmt: skip


def columns(model, parts):
    """Column means of all heads."""
    rows = {}
    for count in (1000, 2000):
        ids = tokens_of(model, count)
        row, mine, other = beside(
            lambda ids=ids: streamed_columns(parts, ids), lambda ids=ids: dense_columns(model, ids)
        )
        row["largest_difference"] = float(np.nanmax(np.abs(mine - other)))
        rows[f"columns_{count}"] = row
    return rows


def variances(model, parts):
    """The three variances."""
    ids = tokens_of(model, 2000)
    row, mine, other = beside(
        lambda: streamed_variances(parts, ids), lambda: dense_variances(model, ids)
    )
    row["largest_relative_difference"] = max(
        float(np.nanmax(np.abs(a - b) / (np.abs(b) + 1e-6)))
        for a, b in zip(mine[:2], other[:2], strict=True)
    )
    row["largest_difference_of_ranks"] = float(np.nanmax(np.abs(mine[2] - other[2])))
    return {"variances_2000": row}


def long(model, parts):
    """Time and memory up to 32 000 tokens, without anything beside it.

    From 16 000 tokens on, the first `SOME` layers are run and their time is scaled to all: layers
    cost the same, and their memory is the same memory.
    """
    rows = {}
    for count in LONG:
        ids, layers = tokens_of(model, count), parts.n_layers if count < 16000 else SOME
        spent = []

        def once(ids=ids, layers=layers, spent=spent):
            started = time.perf_counter()
            totals = Tallies([len(ids)], parts.n_layers, ("totals",), layers=range(layers))
            window = Window(len(ids), WINDOW, lambda layer, rows: None)
            stream(parts, [ids], Several(window, totals), last=layers - 1)
            spent.append((time.perf_counter() - started) * parts.n_layers / layers)

        memory = peak_growth(once)
        rows[f"tokens_{count}"] = {
            "memory_mib": memory, "seconds": spent[0], "layers_run": layers,
        }  # fmt: skip
        sys.stderr.write(f"{count} tokens: {spent[0]:.1f} s, {memory:.0f} MiB\n")
    n = np.array(LONG, dtype=float)
    seconds = np.array([row["seconds"] for row in rows.values()])
    # Relative least squares of a n + b n².
    design = np.stack([n, n**2], 1) / seconds[:, None]
    (a, b), *_ = np.linalg.lstsq(design, np.ones_like(n), rcond=None)
    for row, value in zip(rows.values(), a * n + b * n**2, strict=True):
        row["fitted_seconds"] = float(value)
    bare = bare_scores(parts)
    return {
        **rows, "b_seconds_per_token_squared": float(b),
        "bare_score_product_seconds_per_token_squared": bare, "b_over_bare": float(b) / bare,
    }  # fmt: skip


def bare_scores(parts, count=4000, times=3):
    """Seconds per token squared of q k alone, below the diagonal, in every layer."""
    q = torch.randn(parts.n_heads, 256, parts.d_head)
    k = torch.randn(parts.n_heads, count, parts.d_head)
    best = []
    for _ in range(times):
        started = time.perf_counter()
        for _ in range(8):
            torch.matmul(q, k.transpose(1, 2))
        best.append((time.perf_counter() - started) / 8)
    return min(best) * parts.n_layers / (256 * count) / 2


def paired(model, parts):
    """100 prompts under three conditions, 270 heads."""
    rows = word_problems()[:100]
    prompts = tk.Prompts.from_texts(model, [row["question"] for row in rows])
    conditions = {
        "Miess": tk.Insert("/ " * 20, at="start"),
        "he": tk.Insert("he " * 20, at="start"),
    }

    def ours():
        found = tk.conditions.run(model, prompts, conditions, affine=False)
        return found["attention_weight"].values

    row, mine, other = beside(ours, lambda: cached(model, prompts, conditions), 2)
    row["largest_difference"] = float(np.nanmax(np.abs(mine - other)))
    row["note"] = "ours has entropies, distances, sinks and tests of 270 heads besides"
    return {"paired_100x3": row}


def cached(model, prompts, conditions, batch=10):
    """Weights ``[condition, layer, head, pos, example]`` from TransformerLens's filtered cache."""
    own = [tuple(range(len(ids))) for ids in prompts.clean]
    sets = [(prompts.clean, own)]
    for insert in conditions.values():
        put = inserted(model, prompts, insert)
        sets.append((put.prompts.clean, put.maps))
    width = max(map(len, prompts.clean))
    shape = (len(sets), model.cfg.n_layers, model.cfg.n_heads, width, len(prompts))
    out = np.full(shape, np.nan, np.float32)
    for c, (ids, maps) in enumerate(sets):
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        for first in range(0, len(order), batch):
            some = order[first : first + batch]
            length = max(len(ids[i]) for i in some)
            tokens = torch.zeros(len(some), length, dtype=torch.long)
            for j, i in enumerate(some):
                tokens[j, : len(ids[i])] = torch.tensor(ids[i])
            with torch.no_grad():
                _, cache = model.run_with_cache(
                    tokens, names_filter=lambda name: name.endswith("hook_pattern")
                )
            for layer in range(model.cfg.n_layers):
                whole = cache["pattern", layer].numpy()
                for j, i in enumerate(some):
                    n = len(ids[i])
                    a = whole[j, :, :n, :n]
                    sums = a.sum(1) - np.diagonal(a, axis1=1, axis2=2)
                    behind = np.arange(n - 1, -1, -1)
                    with np.errstate(invalid="ignore", divide="ignore"):
                        means = np.where(behind > 0, sums / behind, np.nan)
                    out[c, layer, :, : len(maps[i]), i] = means[:, list(maps[i])]
    return out


def main() -> None:
    """The rows that are asked for."""
    rows = {"columns": columns, "variances": variances, "paired": paired, "long": long}
    model = tk.HookedTransformer.from_pretrained(EMBEDDED)
    parts = Parts(model)
    results = {"machine": machine()}
    for name in sys.argv[1:] or rows:
        found = rows[name](model, parts)
        results |= found
        for label, row in found.items():
            if isinstance(row, dict) and "ratio" in row:
                sys.stderr.write(
                    f"{label}: {row['ratio']:.2f} x, memory 1/{row['memory_ratio']:.1f}\n"
                )
    say(results)


if __name__ == "__main__":
    main()
