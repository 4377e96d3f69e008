"""Direct logit attribution: what each part of the model adds to a logit difference.

The last stream is the sum of what embeddings, heads and MLPs put in, and the logits are linear in
it once the final norm's scale is held at what it was (Elhage et al. 2021,
https://transformer-circuits.pub/2021/framework; Wang et al. 2022, arXiv:2211.00593).
TransformerLens's own tool asks for weights that were rewritten in place; this one reads raw ones.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tlkit.engine.refusals import check_prompts
from tlkit.engine.route import route_of
from tlkit.engine.sequences import Sequences
from tlkit.engine.states import States, states
from tlkit.errors import EngineError, SpecError
from tlkit.models.bridge import Parts
from tlkit.results.provenance import provenance
from tlkit.results.schema import build
from tlkit.spec.metrics import LogitDiff

TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
"""How far the parts' sum may be from the logit difference, of the largest part; 5 % below fp32."""


def direct_logit_attribution(
    model: Any,
    prompts: Any,
    *,
    on: Literal["clean", "corrupted"] = "clean",
) -> Any:
    """Attribute the logit difference at each prompt's last position to parts of the model.

    Args:
        model: A loaded model.
        prompts: `tk.Prompts` with answers of one token; without wrong answers it is the answer's
            logit that is attributed.
        on: Which run is read.

    Returns:
        An xarray Dataset, all in logits: ``attribution`` (site, layer, example), of ``attn_out``
        and ``mlp_out``; ``head_attribution`` (layer, head, example), of each head's part of
        attn_out; ``attn_bias`` (layer, example), the rest of attn_out, which no head wrote;
        ``embed_attribution`` (example), of the stream that enters the first block; ``bias``
        (example), of the final norm and the unembedding; ``logit_diff`` (example), their sum.
        Where the model caps its logits (Gemma 2) this is the difference before the cap.

    Raises:
        SpecError: There are no answers, or one has several tokens.
        EngineError: The parts do not add up to the model's own logit difference.
    """
    started = time.perf_counter()
    check_prompts(model, prompts)
    if prompts.answers is None:
        raise SpecError("Direct logit attribution needs answers: Prompts.from_texts(…, answers=…).")
    if prompts.wrong_answers is not None:
        LogitDiff().vocabulary(prompts)
    elif any(len(answer) != 1 for answer in prompts.answers):
        raise SpecError("Direct logit attribution needs answers of one token.")
    parts, sequences = Parts(model), Sequences(prompts, on)
    sequences.require(on)
    found = _states(parts, sequences)
    with torch.no_grad():
        rows = [_attributed(parts, prompts, found, i) for i in range(len(prompts))]
    stacked = {
        name: torch.stack([row[name] for row in rows], -1).float().cpu().numpy() for name in rows[0]
    }
    return _dataset(parts, prompts, stacked, on, round(time.perf_counter() - started, 3))


def _states(parts: Parts, sequences: Sequences) -> States:
    """All parts of the last stream, at each prompt's last position."""
    layers = range(parts.n_layers)
    places = [("resid_pre", 0), ("resid_post", parts.n_layers - 1)]
    places += [(c, layer) for c in ("attn_out", "mlp_out", "z") for layer in layers]
    ends = [(len(ids) - 1,) for ids in sequences.runs[sequences.base]]
    return states(parts, sequences, ends, places, {}, packed=route_of(parts).packed)["base"]


def _attributed(
    parts: Parts, prompts: Any, found: States, example: int
) -> dict[str, Float[Tensor, "*part"]]:
    """One example's attributions, held to the model's own logits."""
    at = {place: rows[example][0] for place, rows in found.items()}
    layers = range(parts.n_layers)
    last = at["resid_post", parts.n_layers - 1]
    right = prompts.answers[example][0]
    wrong = None if prompts.wrong_answers is None else prompts.wrong_answers[example][0]
    direction, bias = _unembedding(parts, right, wrong)
    norm = Frozen.at(parts.final_norm, last)
    pulled, constant = norm.pulled(direction), norm.bias @ direction + bias
    found_by = {
        "attribution": torch.stack([
            torch.stack([at[site, layer] @ pulled for layer in layers])
            for site in ("attn_out", "mlp_out")
        ]),
        "head_attribution": torch.stack([
            _heads(parts, layer, at["z", layer], at["attn_out", layer]) @ pulled
            for layer in layers
        ]),
        "embed_attribution": at["resid_pre", 0] @ pulled,
        "bias": constant,
    }  # fmt: skip
    heads = found_by["head_attribution"].sum(-1)
    found_by["attn_bias"] = found_by["attribution"][0] - heads
    found_by["logit_diff"] = parts.final_norm(last).float() @ direction.float() + bias.float()
    _check_sum(parts, found_by, last.dtype)
    return found_by


def _check_sum(parts: Parts, found: dict[str, Tensor], dtype: torch.dtype) -> None:
    pieces = [found["attribution"].flatten(), found["embed_attribution"][None], found["bias"][None]]
    every = torch.cat([piece.float() for piece in pieces])
    gap = float((every.sum() - found["logit_diff"]).abs())
    if not gap <= TOLERANCE.get(dtype, 5e-2) * max(1.0, float(every.abs().max())):
        raise EngineError(
            f"{parts.name}: the parts of the stream add up to a logit difference that is off by "
            f"{gap:.2g}; it scales or norms them in a way that is not known here."
        )


def _unembedding(parts: Parts, right: int, wrong: int | None) -> tuple[Tensor, Tensor]:
    """The direction of the stream that raises the logit difference, and its bias."""
    biases = parts.bridge.b_U
    read = [right] if wrong is None else [right, wrong]
    if parts.streamed:  # only these rows are read
        head: Any = parts.head
        columns = head.weight[torch.tensor(read, device=parts.device)]
    else:
        columns = parts.bridge.W_U[:, read].T
    if wrong is None:
        return columns[0], biases[right]
    return columns[0] - columns[1], biases[right] - biases[wrong]


def _heads(parts: Parts, layer: int, z: Tensor, out: Tensor) -> Tensor:
    """What each head adds to the stream, ``[head, d_model]``."""
    written = torch.einsum("hd,hdm->hm", z, parts.bridge.blocks[layer].attn.W_O.to(z))
    slot = parts.slot("attn_out", layer)
    if slot.module in list(parts.attentions[layer].modules()):
        return written
    # A norm stands between heads and stream (Gemma 2 and 3): its scale is held, too.
    return Frozen.at(slot.module, written.sum(0)).apply(written)


@dataclass(frozen=True, eq=False)
class Frozen:
    """A layer norm or RMS norm with its scale held at what one vector gave: then it is linear.

    Attributes:
        weight: Of each feature, divided by the scale.
        bias: What is added.
        centred: Whether the mean is taken off first.
    """

    weight: Tensor
    bias: Tensor
    centred: bool

    @classmethod
    def at(cls, norm: nn.Module, vector: Tensor) -> "Frozen":
        """The norm as it acts on a vector, found by trying it out.

        Raises:
            EngineError: It is neither a layer norm nor an RMS norm.
        """
        features = vector.shape[-1]
        signs = vector.new_ones(features)
        signs[1::2] = -1.0
        large = 1e3 * signs  # mean 0 and far above the norm's epsilon
        bias = norm(torch.zeros_like(vector))
        weight = (norm(large) - bias) * signs
        shifted = norm(vector + vector.abs().max())
        out = norm(vector)
        centred = bool((shifted - out).abs().max() < 1e-2 * out.abs().max())
        inner = (vector - vector.mean() if centred else vector) * weight
        scale = (inner @ inner) / (inner @ (out - bias))
        gap = (inner / scale + bias - out).abs().max()
        if not gap <= TOLERANCE.get(vector.dtype, 5e-2) * out.abs().max():
            raise EngineError(f"{type(norm).__name__} is neither a layer norm nor an RMS norm.")
        return cls(weight / scale, bias, centred)

    def apply(self, vectors: Tensor) -> Tensor:
        """Vectors ``[…, feature]`` through the norm, without its bias."""
        inner = vectors - vectors.mean(-1, keepdim=True) if self.centred else vectors
        return inner * self.weight

    def pulled(self, direction: Tensor) -> Tensor:
        """The direction before the norm that a direction behind it reads."""
        weighted = direction * self.weight
        return weighted - weighted.mean() if self.centred else weighted


def _dataset(
    parts: Parts, prompts: Any, stacked: dict[str, np.ndarray], on: str, seconds: float
) -> Any:
    dims: dict[str, Sequence[str]] = {
        "attribution": ("site", "layer", "example"),
        "head_attribution": ("layer", "head", "example"),
        "attn_bias": ("layer", "example"),
        "embed_attribution": ("example",),
        "bias": ("example",),
        "logit_diff": ("example",),
    }
    variables = {name: (tuple(dims[name]), stacked[name], "logits") for name in dims}
    attrs = provenance(
        parts.bridge, prompts, study="direct_logit_attribution", on=on, seconds=seconds
    )
    return build(variables, {"site": ["attn_out", "mlp_out"]}, attrs)
