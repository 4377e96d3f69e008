"""How far bfloat16 weights move the logits, told from a copy."""

import copy
import math
from typing import Any

import torch
from torch import nn

from tlkit.checks.check import Check
from tlkit.checks.forward import Rows, own_logits
from tlkit.models.bridge import Parts, unbridged
from tlkit.models.memory import available_memory

NAME = "drift of bfloat16"


def drift(parts: Parts, rows: Rows) -> Check:
    """Compare logits of the weights in float32 and in bfloat16; the model itself stays as it is."""
    other = torch.float32 if parts.dtype == torch.bfloat16 else torch.bfloat16
    size = sum(weight.numel() for weight in parts.hf.parameters()) * other.itemsize
    if parts.dtype not in (torch.float32, torch.bfloat16):
        return Check(
            NAME, None, "", f"The weights are {parts.dtype}, neither float32 nor bfloat16."
        )
    if parts.streamed:
        return Check(NAME, None, "", "The weights stay on disk, and no copy of them is made.")
    # As much again is left for whoever else is on the machine.
    if 2 * size > available_memory(str(parts.device)):
        return Check(NAME, None, "", f"A copy takes {size / 1e9:.1f} GB, which is not free.")
    mine = own_logits(parts, rows)
    theirs = _copied_logits(parts, rows, other)
    wide, narrow = (mine, theirs) if other == torch.bfloat16 else (theirs, mine)
    spread = max(float(logits.max() - logits.min()) for logits in wide)
    gap = max(float((a - b).abs().max()) for a, b in zip(wide, narrow, strict=True))
    agreed = torch.cat([a.argmax(-1) == b.argmax(-1) for a, b in zip(wide, narrow, strict=True)])
    return Check(
        NAME,
        math.isfinite(gap),
        f"{gap:.2g} of a range of {spread:.3g} ({gap / spread:.1%})",
        f"Largest change of a logit from float32 to bfloat16; the most probable token stays the "
        f"same at {int(agreed.sum())} of {len(agreed)} positions.",
    )


def _copied_logits(parts: Parts, rows: Rows, dtype: torch.dtype) -> list[torch.Tensor]:
    """Logits of a copy of the model with weights of another type."""
    with unbridged(parts.bridge) as hf, torch.no_grad():
        twin = copy.deepcopy(hf, _converted(hf, dtype))
        for module in twin.modules():
            # TransformerLens patches some Falcon modules by functions bound to their originals.
            module.__dict__.pop("forward", None)
        return [
            twin(torch.tensor(list(row), device=parts.device)[None], use_cache=False)
            .logits[0]
            .float()
            for row in rows
        ]


def _converted(hf: nn.Module, dtype: torch.dtype) -> dict[int, Any]:
    """A memo for deepcopy with every weight in its new type, so that no second copy is made.

    Buffers beside weights (TransformerLens's zero bias of the unembedding) take their type;
    those of modules without weights (rotary frequencies) keep their own, as when loading.
    """
    memo: dict[int, Any] = {}
    for module in hf.modules():
        weights = list(module.parameters(recurse=False))
        for weight in weights:
            if id(weight) not in memo:
                memo[id(weight)] = nn.Parameter(weight.detach().to(dtype), requires_grad=False)
        for buffer in module.buffers(recurse=False):
            if weights and buffer.is_floating_point():
                memo[id(buffer)] = buffer.detach().to(dtype)
    return memo
