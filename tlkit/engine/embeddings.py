"""From edited token embeddings to the stream that enters the first block."""

from typing import Any

import torch
from torch import Tensor

from tlkit.models.bridge import Parts


class _Reached(Exception):
    """Raised to stop a forward pass at the first block."""


def stream_of_embeddings(parts: Parts, embeddings: list[Tensor]) -> list[Tensor]:
    """The stream ``[pos, d_model]`` that the model makes of each ``[pos, d_embed]``.

    The model's own code adds positions and whatever else it does before its first block. Its own
    modules must be in place (inside `seam`).
    """
    width = max(len(rows) for rows in embeddings)
    padded = embeddings[0].new_zeros(len(embeddings), width, embeddings[0].shape[-1])
    mask = torch.zeros(len(embeddings), width, dtype=torch.long, device=padded.device)
    for i, rows in enumerate(embeddings):
        padded[i, : len(rows)] = rows
        mask[i, : len(rows)] = 1
    reached: list[Tensor] = []

    def stop(module: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        reached.append(args[0] if args else kwargs["hidden_states"])
        raise _Reached

    handle = parts.blocks[0].register_forward_pre_hook(stop, with_kwargs=True)
    try:
        parts.hf.base_model(inputs_embeds=padded, attention_mask=mask, use_cache=False)
    except _Reached:
        pass
    finally:
        handle.remove()
    return [reached[0][i, : len(rows)] for i, rows in enumerate(embeddings)]
