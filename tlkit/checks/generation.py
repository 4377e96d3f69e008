"""Generating with a cache of keys and values, held to generating without one."""

from typing import Any

import torch

from tlkit.checks.check import Check, number
from tlkit.checks.forward import Rows, bridge_logits, largest_gap
from tlkit.checks.samples import tolerance
from tlkit.models.bridge import Parts

NEW = 8
"""Tokens that are generated."""


def cached_generation(parts: Parts, rows: Rows) -> Check:
    """Generate greedily from one row with the cache, and compare with whole forward passes."""
    row = list(rows[0])
    plain = list(row)
    for _ in range(NEW):
        plain.append(int(bridge_logits(parts, [plain])[0][-1].argmax()))
    cached = generate(parts.bridge, row, NEW)
    gap, scale = largest_gap([_stepped(parts, plain)], [bridge_logits(parts, [plain])[0][-1]])
    same = sum(a == b for a, b in zip(cached[len(row) :], plain[len(row) :], strict=True))
    return Check(
        "cached generation equals uncached",
        same == NEW and gap <= tolerance(parts.dtype, scale),
        f"{same} of {NEW} tokens, logits within {number(gap)}",
        f"Greedy tokens with and without the cache, and logits of a cached last step, of "
        f"logits up to {scale:.3g}.",
    )


def generate(bridge: Any, row: list[int], count: int) -> list[int]:
    """The row and ``count`` greedy tokens, by TransformerLens's own cached generation."""
    tokens = torch.tensor(row, device=bridge.cfg.device)[None]
    with torch.no_grad():
        out = bridge.generate(
            tokens, max_new_tokens=count, do_sample=False, stop_at_eos=False,
            use_past_kv_cache=True, return_type="tokens", verbose=False,
        )  # fmt: skip
    return [int(token) for token in out[0]]


def _stepped(parts: Parts, row: list[int]) -> torch.Tensor:
    """Logits of a row's last token, given to the cache of the tokens before it."""
    tokens = torch.tensor(row, device=parts.device)[None]
    with torch.no_grad():
        _, cache = parts.bridge(tokens[:, :-1], return_type="logits_and_cache", use_cache=True)
        logits = parts.bridge(tokens[:, -1:], past_key_values=cache, use_cache=True)
    return logits[0, -1].float()
