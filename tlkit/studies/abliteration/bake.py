"""A direction taken out of the weights themselves, checked against the hooks, and put back."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tlkit.errors import EngineError, SpecError
from tlkit.models.bridge import Parts
from tlkit.models.streamed import need_memory
from tlkit.models.writers import Weight, Write, norms_between, writes
from tlkit.spec.directions import Direction
from tlkit.studies.abliteration.forward import logits_of_rows
from tlkit.studies.abliteration.projection import (
    Strengths,
    as_direction,
    checked_basis,
    projected,
    strengths_of,
    without,
)

PROBES, PROBE_LENGTH = 8, 24
TOLERANCE, RELATIVE = 1e-4, 1.5e-5
"""Largest difference of a logit between baked weights and hooks, and as a share of the largest
logit. Streams hold a few very large dimensions, out of which the two take a direction in another
order; a write that is missed moves logits by a hundred times as much."""
ROUNDINGS = 16
"""For shorter floats: so many of their roundings, at the size of the largest logit."""


class Baked:
    """A model whose weights a direction was taken out of.

    Attributes:
        model: The model, edited in place.
        direction: What was taken out.
        strengths: How much, layer by layer.
        difference: The largest difference of a logit to the model under hooks.
        tolerance: What that difference may be; ``inf`` where the edit is an approximation.
        approximate: Whether norms stand behind the edited matrices.
        tensors: How many parameters were edited.
    """

    def __init__(self, model: Any, direction: Direction, strengths: Sequence[float]) -> None:
        self.model, self.direction, self.strengths = model, direction, list(strengths)
        self.difference, self.tolerance, self.approximate = float("nan"), TOLERANCE, False
        self.tensors = 0
        self._originals: list[tuple[nn.Module, str, Any]] = []
        self._configs: list[tuple[Any, bool]] = []

    def __enter__(self) -> "Baked":
        return self

    def __exit__(self, *error: object) -> None:
        self.undo()

    @property
    def tensors_in_place(self) -> bool:
        """Whether the edit holds: it has not been undone."""
        return bool(self._originals)

    def replace(self, weight: Weight, value: Tensor) -> None:
        """Put a new parameter in a weight's place, and keep the original."""
        old: Any = weight.value
        self._originals.append((weight.owner, weight.name, old))
        setattr(weight.owner, weight.name, nn.Parameter(value, requires_grad=old.requires_grad))
        self.tensors += 1

    def untie(self, config: Any) -> None:
        """Say in a configuration that embedding and unembedding are two matrices."""
        self._configs.append((config, config.tie_word_embeddings))
        config.tie_word_embeddings = False

    def undo(self) -> None:
        """Put the original parameters back, the very same tensors; twice does no harm."""
        while self._originals:
            owner, name, old = self._originals.pop()
            setattr(owner, name, old)
        while self._configs:
            config, tied = self._configs.pop()
            config.tie_word_embeddings = tied


def bake(
    model: Any,
    direction: Any,
    *,
    per_layer: Strengths = None,
    approximate: bool = False,
    probe: Sequence[Sequence[int]] | None = None,
) -> Baked:
    """Take a direction out of every weight that writes to the residual stream.

    W' = (I - strength * D^T D) W for embedding, learned positions, attention and MLP output
    matrices, every expert's, and their biases (Arditi et al. 2024, arXiv:2406.11717, section
    4.1). A tied unembedding becomes a matrix of its own first, which stays as it was. Afterwards
    the logits are compared with those under `projected`.

    Args:
        model: A loaded model; edited in place.
        direction: As `projected` takes it.
        per_layer: Strength by layer (see `strengths_of`); the embeddings go with layer 0.
        approximate: Whether models with a norm between an output matrix and the stream (Gemma 2
            and 3, OLMo 2; BLOOM's embedding) are edited all the same. Nothing of the direction
            is left then either, but the rest of the write changes by as much as the norm of its
            input did; ``difference`` says what that does to the logits.
        probe: Token ids on which logits are compared; random ones if None.

    Returns:
        `Baked`, whose ``undo()`` puts the original tensors back. As a context, it does on leaving.

    Raises:
        SpecError: The model cannot be edited so, or direction or strengths do not fit it.
        EngineError: Weights and hooks do not agree; the weights have been put back.
    """
    need_memory(model, "bake", "use projected(), which leaves the weights alone")
    parts = Parts(model)
    basis, strengths = checked_basis(parts, direction), strengths_of(per_layer, parts.n_layers)
    found = writes(parts)
    _check_editable(parts, found, approximate=approximate)
    rows = _probe(parts) if probe is None else [list(ids) for ids in probe]
    with projected(model, direction, strengths):
        hooked = logits_of_rows(parts, rows)
    baked = Baked(model, as_direction(direction), strengths)
    try:
        _edit(baked, parts, found, basis, strengths)
        _compare(baked, parts, rows, hooked, approximate=bool(norms_between(found)))
    except BaseException:
        baked.undo()
        raise
    return baked


def _edit(
    baked: Baked, parts: Parts, found: Sequence[Write], basis: Tensor, strengths: Sequence[float]
) -> None:
    if strengths[0]:
        _untie(baked, parts)
    for one in found:
        strength = strengths[one.layer]
        if not strength:
            continue
        rows = basis if one.norm is None else _before(one.norm, basis)
        for weight in one.weights:
            value = weight.value.detach().movedim(weight.axis, -1)
            edited = without(value, rows.to(value.device), strength).movedim(-1, weight.axis)
            baked.replace(weight, edited.contiguous())
        if one.norm is not None and getattr(one.norm, "bias", None) is not None:
            bias = Weight(one.norm, "bias", 0)
            baked.replace(bias, without(bias.value.detach(), basis, strength))


def _untie(baked: Baked, parts: Parts) -> None:
    """Where embedding and unembedding are one tensor, the edit gives the embedding its own."""
    if parts.head.weight is not parts.embed.weight:
        return
    for config in {id(one): one for one in (parts.hf.config, parts.config)}.values():
        baked.untie(config)


def _before(norm: Any, basis: Tensor) -> Float[Tensor, "rank d_model"]:
    """What must be missing before a norm so that the basis is missing after it.

    A norm multiplies by a gain g and by one number for each token, so d · norm(x) is (g d) · x
    times that number; LayerNorm also takes the mean away.
    """
    width = basis.shape[-1]
    if isinstance(norm, nn.LayerNorm):
        rows = basis * norm.weight.float()
        rows = rows - rows.mean(-1, keepdim=True)
    else:
        with torch.no_grad():
            ones = torch.ones(1, width, device=basis.device, dtype=next(norm.parameters()).dtype)
            rows = basis * norm(ones).float()
    return torch.linalg.qr(rows.T)[0].T


def _check_editable(parts: Parts, found: Sequence[Write], *, approximate: bool) -> None:
    for one in found:
        for weight in one.weights:
            value = weight.value
            if value.is_meta:
                raise SpecError(
                    f"{parts.name} keeps weights out of memory (layer {one.layer}, {one.part}); "
                    f"load it whole to edit them."
                )
            if not value.is_floating_point() or value.dtype.itemsize < 2:
                raise SpecError(
                    f"{parts.name} is quantised: its packed weights cannot be edited; load the "
                    f"unquantised model, or use abliteration.projected, which edits no weight."
                )
    behind = norms_between(list(found))
    if behind and not approximate:
        raise SpecError(
            f"{parts.name} has a norm between its {behind[0].part} weights and the residual "
            f"stream, so the projection cannot be baked exactly; use abliteration.projected, or "
            f"give approximate=True and read the difference."
        )


def _probe(parts: Parts) -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    length = min(PROBE_LENGTH, parts.context)
    embed: Any = parts.embed
    vocabulary = int(embed.weight.shape[0])
    return torch.randint(vocabulary, (PROBES, length), generator=generator).tolist()


def _compare(
    baked: Baked, parts: Parts, rows: list[list[int]], hooked: list[Tensor], *, approximate: bool
) -> None:
    """Keep the largest difference to the hooks, and refuse one that is too large."""
    weights = logits_of_rows(parts, rows)
    pairs = list(zip(weights, hooked, strict=True))
    baked.difference = max(float((one - other).abs().max()) for one, other in pairs)
    baked.approximate = approximate
    scale = max(1.0, *(float(one.abs().max()) for one in hooked))
    rounding = ROUNDINGS * torch.finfo(parts.dtype).eps * scale
    baked.tolerance = float("inf") if approximate else max(TOLERANCE, RELATIVE * scale, rounding)
    if not baked.difference <= baked.tolerance:
        raise EngineError(
            f"{parts.name}: baked weights and hooks differ by {baked.difference:.2g} in a logit "
            f"(at most {baked.tolerance:.2g} is rounding), so something that writes to the stream "
            f"was missed; the weights are as they were."
        )
