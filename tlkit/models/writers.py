"""Every weight of a model that writes to its residual stream, and where its write can be seen."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from tlkit.errors import SpecError
from tlkit.models.bridge import Parts

# Block attributes of the norms that stand between an output matrix and the stream: of attention,
# of the MLP (Gemma 2 and 3, OLMo 2; GLM 4). A block has both or neither.
_POST_NORMS = (
    ("post_attention_layernorm", "post_feedforward_layernorm"),
    ("post_self_attn_layernorm", "post_mlp_layernorm"),
)
_OUTPUTS = {"down_proj", "w2", "fc2", "c_proj", "dense_4h_to_h", "output_linear", "wo"}
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


@dataclass(frozen=True, eq=False)
class Weight:
    """One parameter that writes.

    Args:
        owner: The module that holds it.
        name: Its name there.
        axis: The axis that is the residual stream's.
    """

    owner: nn.Module
    name: str
    axis: int

    @property
    def value(self) -> Tensor:
        """The parameter."""
        return self.owner._parameters[self.name]  # pyright: ignore[reportReturnType]


@dataclass(frozen=True, eq=False)
class Write:
    """What one part adds to the stream.

    Args:
        part: ``"embed"``, ``"pos_embed"``, ``"attn_out"`` or ``"mlp_out"``.
        layer: The block; 0 for embeddings.
        module: The module whose output is added.
        weights: The parameters behind it.
        norm: A norm between the weights and the stream, if there is one.
        wrapper: TransformerLens's stand-in for the module, which may compute without calling it.
    """

    part: str
    layer: int
    module: nn.Module
    weights: tuple[Weight, ...]
    norm: nn.Module | None = None
    wrapper: nn.Module | None = None


def writes(parts: Parts) -> list[Write]:
    """Find everything that is added to a model's residual stream.

    Raises:
        SpecError: Something that writes cannot be found or cannot be edited: a stream that is
            itself normed, an embedding of another width, experts without a known output matrix.
    """
    if getattr(parts.config, "do_layer_norm_before", True) is False:
        raise SpecError(
            f"{parts.name} norms the residual stream itself after every block, which brings a "
            f"removed direction back; choose a model whose norms stand before its blocks."
        )
    found = _embeddings(parts)
    for layer in range(parts.n_layers):
        attention, mlp = _post_norms(parts.blocks[layer])
        output = parts.bridge.blocks[layer].attn.o.original_component
        found.append(_write("attn_out", layer, output, _matrix(output, parts), attention))
        found.append(_mlp(parts, layer, mlp))
    return found


def norms_between(found: list[Write]) -> list[Write]:
    """The writes that a norm changes on their way to the stream."""
    return [one for one in found if one.norm is not None]


def _write(
    part: str, layer: int, module: nn.Module, weights: tuple[Weight, ...], norm: Any
) -> Write:
    """A write, seen behind its norm if it has one; norms may be TransformerLens's stand-ins."""
    if norm is None:
        return Write(part, layer, module, weights)
    own = _original(norm)
    if own is None:
        return Write(part, layer, norm, weights, norm)
    return Write(part, layer, own, weights, own, norm)


def _embeddings(parts: Parts) -> list[Write]:
    embed: Any = parts.embed
    width = embed.weight.shape[-1]
    if width != parts.d_model:
        raise SpecError(
            f"{parts.name} embeds tokens in {width} dimensions and its stream has {parts.d_model}, "
            f"so a direction of the stream cannot be taken out of its embedding."
        )
    norm = getattr(parts.bridge, "embed_ln", None)
    found = [_write("embed", 0, parts.embed, (Weight(parts.embed, "weight", 1),), norm)]
    learned = _original(getattr(parts.bridge, "pos_embed", None))
    if isinstance(learned, nn.Embedding):
        found.append(Write("pos_embed", 0, learned, (Weight(learned, "weight", 1),)))
    return found


def _post_norms(block: Any) -> tuple[nn.Module | None, nn.Module | None]:
    for attention, mlp in _POST_NORMS:
        if hasattr(block, mlp):
            return getattr(block, attention), getattr(block, mlp)
    return None, None


def _mlp(parts: Parts, layer: int, norm: nn.Module | None) -> Write:
    output = _original(getattr(parts.bridge.blocks[layer].mlp, "out", None))
    if output is not None:
        return _write("mlp_out", layer, output, _matrix(output, parts), norm)
    whole: nn.Module = parts.bridge.blocks[layer].mlp.original_component
    return _write("mlp_out", layer, whole, _experts(whole, parts, layer), norm)


def _matrix(module: Any, parts: Parts) -> tuple[Weight, ...]:
    """An output matrix and its bias; GPT-2's Conv1D holds its matrix the other way round."""
    if not isinstance(getattr(module, "weight", None), nn.Parameter) or module.weight.ndim != 2:
        raise SpecError(f"{parts.name} has a {type(module).__name__} that tlkit cannot edit.")
    axis = 0 if isinstance(module, nn.Linear) else 1
    if module.weight.shape[axis] != parts.d_model:
        raise SpecError(
            f"{parts.name} has a {type(module).__name__} whose output is not the stream's width; "
            f"its weights may be packed: load the unquantised model."
        )
    bias = [Weight(module, "bias", 0)] if getattr(module, "bias", None) is not None else []
    return (Weight(module, "weight", axis), *bias)


def _experts(whole: nn.Module, parts: Parts, layer: int) -> tuple[Weight, ...]:
    """The output matrices of every expert, stacked in one parameter or a module each."""
    found, routed = list[Weight](), 0
    for name, module in whole.named_modules():
        linear = _original(module) or module
        if name.rpartition(".")[2] in _OUTPUTS and isinstance(linear, nn.Linear):
            found += _matrix(linear, parts)
            routed += "shared" not in name
        for own, weight in module.named_parameters(recurse=False):
            if own in _OUTPUTS and weight.ndim == 3:
                found.append(Weight(module, own, _stacked_axis(module, weight, parts)))
                routed += weight.shape[0]
            if own.removesuffix("_bias") in _OUTPUTS and own.endswith("_bias"):
                found.append(Weight(module, own, weight.ndim - 1))
    expected = next((n for key in _EXPERTS if (n := getattr(parts.config, key, None))), None)
    # A dense block among mixtures has one matrix.
    if not found or (expected is not None and routed not in (1, expected)):
        raise SpecError(
            f"Layer {layer} of {parts.name} has {expected or 'some'} experts and tlkit finds the "
            f"output matrices of {routed}; it edits all of them or none."
        )
    return tuple(found)


def _stacked_axis(module: nn.Module, weight: Tensor, parts: Parts) -> int:
    """Which axis of ``[expert, …, …]`` is the stream's."""
    fits = [axis for axis in (1, 2) if weight.shape[axis] == parts.d_model]
    if len(fits) == 1:
        return fits[0]
    if not fits or not hasattr(module, "is_transposed"):
        raise SpecError(
            f"{parts.name} stacks its experts as {tuple(weight.shape)}, which does not tell the "
            f"stream's axis from the neurons'."
        )
    return 2 if module.is_transposed else 1


def _original(component: Any) -> Any:
    return getattr(component, "original_component", None)
