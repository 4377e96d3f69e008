"""Attention weights of one sequence, and the gradient of a loss at each of them.

The gradient is of the loss as a function of the weights after the softmax, each taken as free
(as in Wang et al. 2023, arXiv:2305.14160): what a change of one edge alone would do.
"""

import contextlib
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from tlkit.engine.record import Recorder, padded
from tlkit.engine.route import route_of
from tlkit.engine.seam import seam
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.models.streamed import need_memory


class _Reached(Exception):
    """Raised to leave out what comes behind the block that is read."""


class _Graph(Recorder):
    """Computes attention as the model would, and keeps patterns as nodes of the graph."""

    def __init__(self, parts: Parts, length: int) -> None:
        super().__init__(parts, [length], set(), full=False)
        self.patterns: list[Tensor] = []

    def seen(self, name: str, layer: int, value: Tensor) -> None:
        if name == "pattern":
            self.patterns.append(value)


def edge_gradients(
    parts: Parts, ids: list[int], layer: int, loss: Callable[[Tensor], Tensor]
) -> tuple[list[Float[Tensor, "head query key"]], list[Float[Tensor, "head query key"]]]:
    """Run one sequence up to a block, and differentiate a loss of the stream behind it.

    Args:
        parts: The model.
        ids: Token ids.
        layer: The block behind which the loss reads.
        loss: From the stream ``[pos, d_model]`` to one number.

    Returns:
        Patterns of blocks 0 to ``layer``, and the gradient at each.

    Raises:
        SpecError: The model's attention cannot be computed from outside.
    """
    need_memory(parts.bridge, "Saliency of attention edges", "leave saliency out")
    route = route_of(parts)
    if not route.packed:
        raise SpecError(f"{parts.name}: gradients at attention edges are not to be had here.")
    tokens, mask = padded([ids], parts.device)
    graph = _Graph(parts, len(ids))
    streams: list[Tensor] = []

    def begin(module: torch.nn.Module, args: tuple, out: Tensor) -> Tensor:
        return out.detach().requires_grad_()  # so that there is a graph: weights take no gradient

    def end(module: torch.nn.Module, args: tuple, out: Tensor | tuple) -> None:
        streams.append(out if isinstance(out, Tensor) else out[0])
        raise _Reached

    handles = [
        parts.embed.register_forward_hook(begin),
        parts.blocks[layer].register_forward_hook(end),
    ]
    try:
        with torch.enable_grad(), seam(parts, graph) as hf:
            with contextlib.suppress(_Reached):
                hf.base_model(tokens, attention_mask=mask, use_cache=False)
            value = loss(streams[0].reshape(-1, streams[0].shape[-1]))
            gradients = torch.autograd.grad(value, graph.patterns)
    finally:
        for handle in handles:
            handle.remove()
    return [one[0].detach() for one in graph.patterns], [one[0] for one in gradients]
