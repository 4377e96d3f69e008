"""Queries, keys and values that a block would compute from another stream."""

import torch
from jaxtyping import Float
from torch import Tensor

from tlkit.engine.record import Run, watch_slot
from tlkit.models.bridge import Parts, unbridged


class _Reached(Exception):
    """Raised to leave a block before its attention."""


def projection(
    parts: Parts, run: Run, layer: int, component: str, stream: Float[Tensor, "example pos d_model"]
) -> Float[Tensor, "example pos head d_head"]:
    """A block's ``"q"``, ``"k"`` or ``"v"``, before rotary and norms of their own.

    Args:
        parts: The model.
        run: A recorded run of these examples, for what else the block is given.
        layer: Which block.
        component: What of it.
        stream: The stream that enters it.
    """
    found: list[Tensor] = []

    def keep(component: str, layer: int, view: Tensor) -> None:
        found.append(view.clone())
        raise _Reached

    with torch.no_grad(), unbridged(parts.bridge):
        handle = watch_slot(parts, component, layer, keep)
        try:
            parts.blocks[layer](hidden_states=stream, **run.arguments[layer])
        except _Reached:
            pass
        finally:
            handle.remove()
    return found[0].unflatten(0, stream.shape[:2])
