"""Greedy continuations in batches, on the model's own modules, with a cache of keys and values."""

import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from tlkit.engine.values import Progress
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts, unbridged

BATCH_TOKENS = 4096
"""Most tokens of prompts, padding included, that are read at once."""

Ended = Callable[[Sequence[int]], bool]
Finished = Callable[[Sequence[int], Sequence[list[int]]], None]


def greedy(
    model: Any,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    stop: Collection[int] = (),
    ended: Ended | None = None,
    batch_tokens: int = BATCH_TOKENS,
    finished: Finished | None = None,
    progress: Progress | None = None,
) -> list[list[int]]:
    """Continue prompts by the token of the largest logit, until each has ended.

    Prompts of like length are padded on the left and go through the model together; an attention
    mask and positions of its own keep each as if it were alone. Batches change logits by rounding
    alone (4e-5 on the embedded model), so that only a near tie can be decided otherwise.

    Args:
        model: A loaded model.
        prompts: Token ids of each prompt, BOS included.
        max_new_tokens: Most tokens that are added.
        stop: Token ids that end a continuation; they are not part of it.
        ended: Told a continuation so far, says whether it is over.
        batch_tokens: Most tokens that are read at once.
        finished: Called with the indices of a batch and its continuations when they are done.
        progress: Called with (prompts done, prompts in all).

    Returns:
        The new token ids of each prompt.

    Raises:
        SpecError: A prompt is empty, or nothing may be added.
    """
    if max_new_tokens < 1:
        raise SpecError(f"max_new_tokens is {max_new_tokens}; let at least one token be added.")
    if any(not len(ids) for ids in prompts):
        raise SpecError("A prompt without tokens cannot be continued.")
    parts = Parts(model)
    longest = max(map(len, prompts), default=0)
    if longest + max_new_tokens > parts.context:
        raise SpecError(
            f"A prompt of {longest} tokens and {max_new_tokens} more are over {parts.context}, for "
            f"which the model was made; leave it out, or lower max_new_tokens."
        )
    done: dict[int, list[int]] = {}
    for batch in _batches(prompts, batch_tokens):
        rows = [prompts[index] for index in batch]
        continued = _continue(parts, rows, max_new_tokens, frozenset(stop), ended)
        done |= zip(batch, continued, strict=True)
        if finished:
            finished(batch, continued)
        if progress:
            progress(len(done), len(prompts))
    return [done[index] for index in range(len(prompts))]


def _batches(prompts: Sequence[Sequence[int]], batch_tokens: int) -> Iterator[list[int]]:
    """Prompts of like length together, as many as fit."""
    batch: list[int] = []
    for index in sorted(range(len(prompts)), key=lambda i: len(prompts[i])):
        if batch and (len(batch) + 1) * len(prompts[index]) > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _continue(
    parts: Parts,
    prompts: Sequence[Sequence[int]],
    most: int,
    stop: frozenset[int],
    ended: Ended | None,
) -> list[list[int]]:
    """Continue one batch; rows that have ended leave it."""
    from transformers import DynamicCache

    tokens, mask = _left_padded(prompts, parts.device)
    new: list[list[int]] = [[] for _ in prompts]
    rows = list(range(len(prompts)))
    cache = DynamicCache(config=parts.config)
    with torch.no_grad(), unbridged(parts.bridge) as hf:
        accepts = inspect.signature(hf.forward).parameters
        while rows:
            picked = _next_tokens(hf, accepts, tokens, mask, cache)
            kept = []
            for at, (row, token) in enumerate(zip(rows, picked.tolist(), strict=True)):
                if token in stop:
                    continue
                new[row].append(token)
                if len(new[row]) < most and not (ended and ended(new[row])):
                    kept.append(at)
            if len(kept) < len(rows) and kept:
                index = torch.tensor(kept, device=parts.device)
                cache.batch_select_indices(index)
                mask, picked = mask[index], picked[index]
            rows = [rows[at] for at in kept]
            tokens = picked[:, None]
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
    return new


def _next_tokens(
    hf: Any, accepts: Collection[str], tokens: Tensor, mask: Tensor, cache: Any
) -> Int[Tensor, " batch"]:
    """The likeliest next token of each row, after reading `tokens` into the cache."""
    arguments: dict[str, Any] = {
        "attention_mask": mask, "past_key_values": cache, "use_cache": True,
    }  # fmt: skip
    if "position_ids" in accepts:
        positions = (mask.cumsum(-1) - 1).clamp_min(0)
        arguments["position_ids"] = positions[:, -tokens.shape[1] :]
    if "logits_to_keep" in accepts:
        arguments["logits_to_keep"] = 1
    return hf(tokens, **arguments).logits[:, -1].argmax(-1)


def _left_padded(
    prompts: Sequence[Sequence[int]], device: Any
) -> tuple[Int[Tensor, "batch pos"], Int[Tensor, "batch pos"]]:
    """Token ids padded on the left, and their attention mask."""
    width = max(len(ids) for ids in prompts)
    tokens = torch.zeros(len(prompts), width, dtype=torch.long)
    mask = torch.zeros(len(prompts), width, dtype=torch.long)
    for row, ids in enumerate(prompts):
        tokens[row, width - len(ids) :] = torch.tensor(list(ids))
        mask[row, width - len(ids) :] = 1
    return tokens.to(device), mask.to(device)
