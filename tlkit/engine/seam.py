"""The way into a model's own attention: q, k and v after rotary and norms, z on the way out.

A function of ours is registered with transformers' `AttentionInterface`; modules that use it then
leave softmax(q k) v to a handler, and do everything else themselves. GPT-J has the same seam as a
method, ``_attn``.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from tlkit.errors import EngineError
from tlkit.models.bridge import Parts, unbridged

NAME, UNMASKED = "tlkit", "tlkit_unmasked"
_HARMLESS = {"position_ids", "cache_position", "position_embeddings"}


@runtime_checkable
class Handler(Protocol):
    """What computes attention for a run."""

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float,
        softcap: float | None,
    ) -> Tensor:  # fmt: skip
        """From q, k and v ``[batch, head, pos, d_head]``, z ``[batch, pos, head, d_head]``."""
        ...


def _interface(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    scaling: float | None = None, dropout: float = 0.0, softcap: float | None = None,
    sliding_window: int | None = None, **others: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    strange = [n for n, x in others.items() if torch.is_tensor(x) and n not in _HARMLESS]
    if strange:
        raise EngineError(f"{type(module).__name__} adds {', '.join(strange)} to its attention.")
    handler, layer, masks = module.__dict__["_tlkit"]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    window = sliding_window or getattr(module, "sliding_window", None)
    told = {} if masks else {"window": window}
    return handler.attend(layer, query, key, value, attention_mask, scale, softcap, **told), None


def _gptj(module: Any, handler: Handler, layer: int) -> Any:
    def attn(query: Tensor, key: Tensor, value: Tensor, attention_mask: Any = None) -> Any:
        # GPT-J computes its scores in float32 whatever the weights are.
        scale = 1.0 / float(module.scale_attn)
        z = handler.attend(layer, query.float(), key.float(), value, attention_mask, scale, None)
        return z.transpose(1, 2), None

    return attn


def _register() -> None:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, eager_mask

    AttentionInterface.register(NAME, _interface)
    AttentionMaskInterface.register(NAME, eager_mask)
    AttentionInterface.register(UNMASKED, _interface)
    AttentionMaskInterface.register(UNMASKED, _no_mask)


def _no_mask(*_: Any, **__: Any) -> None:
    """No mask, which would be of length x length."""


@contextlib.contextmanager
def seam(parts: Parts, handler: Handler, *, masks: bool = True) -> Iterator[Any]:
    """The model's own modules, their attention computed by ``handler``; undone on leaving.

    Without ``masks`` none is made, and ``attend`` is told of the sliding ``window`` instead.
    """
    _register()
    configs = parts.configs
    with unbridged(parts.bridge, parts.swaps) as hf:
        before = [(config, config._attn_implementation) for config in configs]
        try:
            for config in configs:
                config._attn_implementation = NAME if masks else UNMASKED
            for layer, attention in enumerate(parts.attentions):
                attention.__dict__["_tlkit"] = (handler, layer, masks)
                if hasattr(attention, "_attn") and hasattr(attention, "scale_attn"):
                    attention.__dict__["_attn"] = _gptj(attention, handler, layer)
            yield hf
        finally:
            for config, implementation in before:
                config._attn_implementation = implementation
            for attention in parts.attentions:
                attention.__dict__.pop("_tlkit", None)
                attention.__dict__.pop("_attn", None)


def grouped_scores(q: Tensor, k: Tensor, scale: float, softcap: float | None) -> Tensor:
    """Attention scores ``[batch, head, query, key]`` of grouped heads, without repeating keys."""
    batch, heads, queries, width = q.shape
    groups = k.shape[1]
    folded = (q * scale).reshape(batch, groups, heads // groups * queries, width)
    scores = torch.matmul(folded, k.transpose(-1, -2)).view(batch, heads, queries, k.shape[2])
    return scores if softcap is None else torch.tanh(scores / softcap) * softcap


def mixed_values(pattern: Tensor, v: Tensor) -> Tensor:
    """Pattern ``[batch, head, query, key]`` times v: ``[batch, query, head, d_head]``."""
    batch, heads, queries, keys = pattern.shape
    groups = v.shape[1]
    folded = pattern.reshape(batch, groups, heads // groups * queries, keys)
    return torch.matmul(folded, v).view(batch, heads, queries, v.shape[-1]).transpose(1, 2)
