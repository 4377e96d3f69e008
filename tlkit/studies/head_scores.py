"""Which heads look back one token, to the same token, or to what followed it.

Method: Olsson et al. 2022 (arXiv:2209.11895), on random tokens that repeat; the pairs of query
and key that count are TransformerLens's ``head_detector`` patterns.
"""

import time
from typing import Any

import numpy as np
import torch

from tlkit.engine.patterns import patterns
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.models.info import info
from tlkit.prompts.prompts import Prompts
from tlkit.results.provenance import provenance
from tlkit.results.schema import build

KINDS = ("induction", "previous_token", "duplicate_token")


def head_scores(model: Any, *, n: int = 10, length: int = 25, seed: int = 0) -> Any:
    """Score every head for induction, previous-token and duplicate-token attention.

    A score is the mean attention weight on the keys that count, over the queries that have one:
    the token behind the earlier copy of the query's token (induction), the token before the
    query's (previous token), the earlier copy itself (duplicate token).

    Args:
        model: A loaded model.
        n: How many random sequences.
        length: Random tokens of each, all different; they come twice.
        seed: Draws them.

    Returns:
        An xarray Dataset: ``score`` (kind, layer, head, example), 0 to 1.

    Raises:
        SpecError: The vocabulary or the model's context is too small, or a number is below 1.
    """
    started = time.perf_counter()
    parts = Parts(model)
    rows = repeated_tokens(model, parts, n, length, seed)
    scores = np.zeros((len(KINDS), parts.n_layers, parts.n_heads, n), dtype=np.float32)
    wanted = _targets(rows[0])
    for example, row in enumerate(rows):
        found = patterns(model, row, range(parts.n_layers))
        for layer, weights in found.items():
            for kind, (target, queries) in enumerate(wanted):
                mean = (weights * target)[:, queries].sum(-1).mean(-1)
                scores[kind, layer, :, example] = mean
    attrs = provenance(
        model, Prompts.from_tokens(rows), seed=seed, study="head_scores", length=length,
        seconds=round(time.perf_counter() - started, 3),
    )  # fmt: skip
    dims = ("kind", "layer", "head", "example")
    return build({"score": (dims, scores, "probability")}, {"kind": list(KINDS)}, attrs)


def repeated_tokens(model: Any, parts: Parts, n: int, length: int, seed: int) -> list[list[int]]:
    """Random tokens, none of them special and no two the same, then the same again; behind a BOS.

    Raises:
        SpecError: There are too few tokens, or too few positions.
    """
    if n < 1 or length < 2:
        raise SpecError(
            f"Head scores need a sequence of two tokens at least, not n={n}, length={length}."
        )
    tokenizer = model.tokenizer
    size = parts.config.vocab_size
    special = set()
    begin: list[int] = []
    if tokenizer is not None:
        size = min(size, len(tokenizer))
        special = set(tokenizer.all_special_ids)
        if info(model).bos and tokenizer.bos_token_id is not None:
            begin = [tokenizer.bos_token_id]
    usual = [i for i in range(size) if i not in special]
    context = getattr(parts.config, "max_position_embeddings", None) or 2 * length + 1
    if length > len(usual) or 2 * length + len(begin) > context:
        raise SpecError(
            f"length={length} is too much: there are {len(usual)} tokens to draw and "
            f"{context} positions."
        )
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(n):
        drawn = torch.randperm(len(usual), generator=generator)[:length].tolist()
        once = [usual[i] for i in drawn]
        rows.append([*begin, *once, *once])
    return rows


def _targets(row: list[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Per kind, the keys that count ``[query, key]``, and the queries that have one."""
    from transformer_lens import head_detector

    tokens = torch.tensor(row)[None]
    found = []
    for kind in KINDS:
        target = getattr(head_detector, f"get_{kind}_head_detection_pattern")(tokens).numpy()
        found.append((target, np.flatnonzero(target.sum(1))))
    return found
