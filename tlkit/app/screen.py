"""The state as plain values that a browser can draw: the map's frame, and what was picked."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from tlkit.app.bench import Bench
from tlkit.app.state import METRICS, SITES, State, sites_of, width_of
from tlkit.engine.sequences import Sequences
from tlkit.engine.work import recovered
from tlkit.models.bridge import Parts
from tlkit.models.text import token_labels
from tlkit.prompts.prompts import Prompts
from tlkit.spec.attention import EdgeIntervention
from tlkit.spec.sweeps import AnyIntervention

TOP = 10
"""How many next tokens are listed."""


def number(value: float) -> float | None:
    """A number as JSON can say it: None for what is no number."""
    return float(value) if math.isfinite(value) else None


def frame(model: Any, state: State, bench: Bench) -> dict[str, Any]:
    """Everything around the map: choices, axes, tokens, texts and baselines."""
    parts = Parts(model)
    sequences = Sequences(state.prompts, state.base)
    length = len(sequences.runs[state.base][0])
    sources = [sequences.source_position(state.source, 0, p) for p in range(length)]
    ids, theirs = sequences.runs[state.base][0], sequences.runs[state.source][0]
    labels = {side: _labels(state.prompts, side) for side in ("clean", "corrupted")}
    return {
        "choices": {
            "site": sites_of(parts),
            "metric": list(METRICS),
            "direction": ["denoise", "noise"],
            "example": [_title(pair) for pair in state.pairs],
        },
        "chosen": {
            "site": state.site, "metric": state.metric, "direction": state.direction,
            "example": state.example,
        },
        "layers": parts.n_layers,
        "heads": parts.n_heads,
        "axis": "pos" if state.axis == "pos" else "kv_head" if state.site in ("k", "v") else "head",
        "columns": width_of(parts, state),
        "sides": {"base": state.base, "source": state.source},
        "tokens": {
            "base": labels[state.base],
            "source": [labels[state.source][p] if p >= 0 else "" for p in sources],
            "differs": [p < 0 or theirs[p] != own for p, own in zip(sources, ids, strict=True)],
        },
        "texts": texts(model, state.prompts),
        "unit": bench.unit,
        "before": number(bench.baseline()),
        "clean": number(bench.baseline("clean")),
        "corrupted": number(bench.baseline("corrupted")),
    }  # fmt: skip


def picked(model: Any, state: State, bench: Bench) -> dict[str, Any]:
    """What the changes do: numbers, and the next tokens before and after."""
    before, old = bench.together(())
    value, new = bench.together(state.changes)
    runs = {side: np.array([[bench.baseline(side)]]) for side in ("clean", "corrupted")}
    share = recovered(np.array([[value]]), runs, (slice(None), slice(None)))
    parts = [value - before]
    if len(state.changes) > 1:
        parts = [bench.alone(one) - before for one in state.changes]
    return {
        "changes": [_change(one, state) for one in state.changes],
        "before": number(before),
        "value": number(value),
        "effect": number(value - before),
        "recovered": number(float(share[0, 0])),
        "sum": number(sum(parts)) if len(parts) > 1 else None,
        "effects": [number(one) for one in parts],
        "top": {"before": _top(model, old, new), "after": _top(model, new, old)},
    }


def texts(model: Any, prompts: Prompts) -> dict[str, str]:
    """The pair's texts and answers, as they can be edited; empty where there is no tokenizer."""
    tokenizer = getattr(model, "tokenizer", None)
    rows = {
        "clean": (prompts.clean_texts, prompts.clean),
        "corrupted": (prompts.corrupted_texts, prompts.corrupted),
        "answer": ((), prompts.answers),
        "wrong_answer": ((), prompts.wrong_answers),
    }
    found = {}
    for name, (known, ids) in rows.items():
        text = known[0] if known else ""
        if not known and ids is not None and tokenizer is not None:
            special = name in ("clean", "corrupted")
            text = tokenizer.decode(list(ids[0]), skip_special_tokens=special)
        found[name] = text
    return found


def label(change: AnyIntervention) -> str:
    """A change in words."""
    if isinstance(change, EdgeIntervention):
        layers = "all layers" if change.layers is None else f"layer {_one(change.layers)}"
        heads = "all heads" if change.heads is None else f"head {_one(change.heads)}"
        return f"cut {_one(change.queries)} → {_one(change.keys)}, {layers}, {heads}"
    site = change.site
    verb = "ablate" if not hasattr(change, "source") else "patch"
    where = [f"layer {site.layer}"]
    if site.head is not None:
        where.append(f"{site.head_dimension.replace('kv_head', 'kv head')} {site.head}")
    if site.pos is not None:
        where.append(f"position {site.pos}")
    return f"{verb} {site.component}, {', '.join(where)}"


def _one(value: Any) -> Any:
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value


def _change(change: AnyIntervention, state: State) -> dict[str, Any]:
    """A change in words, and the cell of the present map that it is, if it is one."""
    site = getattr(change, "site", None)
    if site is None or not hasattr(change, "source") or site.component != state.site:
        return {"label": label(change), "layer": None, "at": None}
    return {"label": label(change), "layer": site.layer, "at": getattr(site, state.axis)}


def _labels(prompts: Prompts, side: str) -> list[str]:
    known = prompts.clean_tokens if side == "clean" else prompts.corrupted_tokens
    return list(known[0]) if known else [str(token) for token in getattr(prompts, side)[0]]


def _title(pair: Prompts) -> str:
    """A pair as a choice in a list."""
    return pair.clean_texts[0] if pair.clean_texts else "".join(_labels(pair, "clean"))


def words(model: Any, ids: Sequence[int]) -> list[str]:
    """Token labels, or ids where there is no tokenizer."""
    if getattr(model, "tokenizer", None) is None:
        return [str(one) for one in ids]
    return token_labels(model, ids)


def _top(model: Any, logits: Tensor, other: Tensor) -> list[dict[str, Any]]:
    """The likeliest next tokens, with their probability here and in the other run."""
    here, there = logits.softmax(-1), other.softmax(-1)
    best = here.topk(min(TOP, len(here)))
    ids = best.indices.tolist()
    return [
        {"token": word, "p": p, "other": float(there[token])}
        for word, p, token in zip(words(model, ids), best.values.tolist(), ids, strict=True)
    ]


__all__ = ["SITES", "TOP", "frame", "label", "number", "picked", "texts", "words"]
