"""Logits of many prompts at chosen places, and what is made of them."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tlkit.models.bridge import Parts, unbridged

BATCH_TOKENS = 1024
"""Most tokens, padding included, that are read at once."""


def logits_of_rows(
    parts: Parts, rows: Sequence[Sequence[int]], first: Sequence[int] | None = None
) -> list[Float[Tensor, "pos vocab"]]:
    """Float32 logits of each row of token ids, from position ``first`` to its end.

    Rows of like length go through together, padded on the right, where causal attention lets
    nothing of the padding back; only the last positions are unembedded.

    Args:
        parts: The model.
        rows: Token ids.
        first: Each row's first position that is wanted; 0 if None.
    """
    start = [0] * len(rows) if first is None else list(first)
    found: dict[int, Tensor] = {}
    with torch.no_grad(), unbridged(parts.bridge, parts.swaps) as hf:
        accepts = inspect.signature(hf.forward).parameters
        for batch in _batches(rows):
            width = max(len(rows[i]) for i in batch)
            tokens = torch.zeros(len(batch), width, dtype=torch.long)
            mask = torch.zeros_like(tokens)
            for at, i in enumerate(batch):
                tokens[at, : len(rows[i])] = torch.tensor(list(rows[i]))
                mask[at, : len(rows[i])] = 1
            keep = width - min(start[i] for i in batch)
            more: dict[str, Any] = {"logits_to_keep": keep} if "logits_to_keep" in accepts else {}
            model: Any = hf
            logits = model(
                tokens.to(parts.device), attention_mask=mask.to(parts.device), use_cache=False,
                **more,
            ).logits  # fmt: skip
            before = width - logits.shape[1]
            for at, i in enumerate(batch):
                # A copy, so that what is not wanted can go.
                found[i] = logits[at, start[i] - before : len(rows[i]) - before].float().clone()
    return [found[i] for i in range(len(rows))]


def _batches(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    batches: list[list[int]] = []
    for i in sorted(range(len(rows)), key=lambda i: len(rows[i])):
        if not batches or (len(batches[-1]) + 1) * len(rows[i]) > BATCH_TOKENS:
            batches.append([])
        batches[-1].append(i)
    return batches


def kl(
    base: Float[Tensor, "*any vocab"], edited: Float[Tensor, "*any vocab"]
) -> Float[Tensor, "*any"]:
    """KL(base || edited) in nats, never negative and never NaN for a token that both rule out.

    A token whose logit is -inf in both, as suppressed tokens are, counts 0; one that only the
    edited model rules out makes it infinite.
    """
    p, q = (torch.log_softmax(logits.double(), -1) for logits in (base, edited))
    share = p.exp()
    terms = torch.where(share > 0, share * (p - q), torch.zeros_like(p))
    return terms.sum(-1).clamp_min(0).float()


def next_token(parts: Parts, rows: Sequence[Sequence[int]]) -> Float[Tensor, "row vocab"]:
    """Float32 logits of the first answer token of each prompt."""
    return torch.stack([one[0] for one in logits_of_rows(parts, rows, [len(r) - 1 for r in rows])])


def losses(parts: Parts, rows: Sequence[Sequence[int]]) -> Float[Tensor, " row"]:
    """Mean negative log-probability of each row's own tokens after the first, in nats."""
    found = []
    for ids, logits in zip(rows, logits_of_rows(parts, rows), strict=True):
        told = torch.log_softmax(logits[:-1], -1)
        wanted = torch.tensor(list(ids[1:]), device=told.device)
        found.append(-told.gather(1, wanted[:, None]).mean())
    return torch.stack(found)


def prefix_odds(
    parts: Parts, rows: Sequence[Sequence[int]], prefixes: Sequence[Sequence[int]]
) -> Float[Tensor, " row"]:
    """Log-odds that an answer starts with one of the prefixes.

    log(P / (1 - P)), P the sum of the prefixes' probabilities after the prompt: Arditi et al. 2024
    (arXiv:2406.11717, app. B) with prefixes of several tokens. None may start with another.

    Args:
        parts: The model.
        rows: Token ids of the prompts.
        prefixes: Token ids of the prefixes.
    """
    together = [[*ids, *prefix] for ids in rows for prefix in prefixes]
    first = [len(ids) - 1 for ids in rows for _ in prefixes]
    logged = []
    for whole, start, logits in zip(
        together, first, logits_of_rows(parts, together, first), strict=True
    ):
        told = torch.log_softmax(logits[:-1], -1)
        wanted = torch.tensor(whole[start + 1 :], device=told.device)
        logged.append(told.gather(1, wanted[:, None]).sum())
    total = torch.stack(logged).view(len(rows), len(prefixes)).double().logsumexp(-1)
    # P = 1 in rounding would be odds without end.
    total = total.clamp_max(-1e-9)
    return (total - torch.log(-torch.expm1(total))).float()


def apart(prefixes: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """The prefixes that start with no other one, each once."""
    unique = sorted({tuple(one) for one in prefixes if len(one)}, key=len)
    return [one for i, one in enumerate(unique) if not any(one[: len(o)] == o for o in unique[:i])]
