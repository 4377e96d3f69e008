"""Activation redistribution (ARM): small activations of an early MLP, made larger at random.

Shi et al. 2025 (arXiv:2510.01032, section 4). What the paper writes and what its code does differ;
both are here. The tensor that is changed is the activation function's output, before the gate's
other half is multiplied in. The whole tensor counts, so that an example's numbers depend on its
batch, and a decoding step has statistics of its own token alone.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tlkit.errors import SpecError
from tlkit.models.bridge import Parts

MAD = 1.4826
"""Makes the median absolute deviation of normal numbers their standard deviation."""


@dataclass(frozen=True)
class ARM:
    """How activations are redistributed.

    Attributes:
        c: Width of the band around 0, in (normalised) median absolute deviations.
        percentile: Positive activations get values up to this percentile, 0 to 100.
        least, most: Bounds of the share that is changed.
        layer: Which block's MLP.
        variant: ``"code"`` replaces a small activation; ``"paper"`` adds to it.
        seed: Draws what they become.
    """

    c: float = 0.15
    percentile: float = 99.5
    least: float = 0.02
    most: float = 0.25
    layer: int = 0
    variant: str = "code"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.variant not in ("code", "paper"):
            raise SpecError(f"ARM(variant={self.variant!r}) is not known; use 'code' or 'paper'.")
        if not (self.c > 0 and 0 < self.percentile <= 100):
            raise SpecError("ARM needs c above 0 and a percentile up to 100.")
        if not 0 <= self.least <= self.most <= 1:
            raise SpecError("ARM's least and most are shares, the first not above the second.")

    def share(self, act: Tensor) -> float:
        """The share of activations that is changed."""
        size = act.abs().flatten()
        middle = size.median() if self.variant == "code" else act.flatten().median()
        apart = (size if self.variant == "code" else act.flatten()) - middle
        band = MAD * apart.abs().median().clamp(min=1e-12) * self.c
        inside = float((size < band).double().mean())
        return min(max(inside, self.least), self.most)

    def redistribute(self, act: Tensor, generator: torch.Generator) -> Tensor:
        """The activations with the smallest ones made larger; their signs stay.

        Args:
            act: Any shape.
            generator: Draws the new values, on the CPU.
        """
        flat = act.float().flatten()
        count = int(self.share(flat) * flat.numel())
        if count == 0:
            return act
        where = flat.abs().topk(count, largest=False).indices
        small = flat[where]
        drawn = torch.rand(count, generator=generator).to(flat.device)
        high = torch.quantile(flat, self.percentile / 100) if flat.numel() <= 2**24 else _quantile(
            flat, self.percentile / 100
        )  # fmt: skip
        positive = small >= 0
        new = torch.where(positive, drawn * high, drawn * flat.min().clamp(max=0))
        if self.variant == "paper":
            new = small + new
        out = flat.clone()
        out[where] = new
        return out.view_as(act).to(act.dtype)


def _quantile(flat: Tensor, share: float) -> Tensor:
    """The nearest quantile of a tensor that is too large for torch's own."""
    return flat.kthvalue(max(1, round(share * flat.numel()))).values


def activation_module(parts: Parts, layer: int) -> nn.Module:
    """The module of a block's MLP that is its activation function.

    Raises:
        SpecError: There is no such layer, or the block has no such module.
    """
    if not 0 <= layer < parts.n_layers:
        raise SpecError(f"There is no layer {layer}; this model has 0 to {parts.n_layers - 1}.")
    block: Any = parts.blocks[layer]
    for owner in (getattr(block, "mlp", None), block):
        for name in ("act_fn", "act", "activation_fn"):
            module = getattr(owner, name, None)
            if isinstance(module, nn.Module):
                return module
    raise SpecError(f"{parts.name} has no activation function of its own in layer {layer}.")


@contextlib.contextmanager
def redistributed(model: Any, arm: ARM) -> Iterator[None]:
    """The model with ARM in every forward pass, in prefill and in decoding; undone on leaving.

    Args:
        model: A loaded model.
        arm: Which layer's activations are redistributed, and how.

    Raises:
        SpecError: That layer does not exist, or its MLP has no activation function of its own.
    """
    generator = torch.Generator().manual_seed(arm.seed)
    module = activation_module(Parts(model), arm.layer)

    def change(_module: Any, _args: Any, out: Tensor) -> Tensor:
        return arm.redistribute(out, generator)

    handle = module.register_forward_hook(change)
    try:
        yield
    finally:
        handle.remove()
