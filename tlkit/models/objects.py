"""Take models that are in memory already, in place."""

from typing import TYPE_CHECKING, NamedTuple

from tlkit.errors import SpecError
from tlkit.models.families import check_family, check_kind, check_quantisation
from tlkit.models.finite import check_finite
from tlkit.models.keywords import Request
from tlkit.models.sources import Source
from tlkit.models.tokenizers import (
    check_vocabulary,
    given_tokenizer,
    load_tokenizer,
    no_tokenizer,
)

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Prepared(NamedTuple):
    """A model ready to be hooked, its tokenizer, and the revision that it is of."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    revision: str | None = None


def move(model: "PreTrainedModel", dtype: "torch.dtype | None", device: str | None) -> None:
    """Cast weights as loading in that type does: buffers such as rotary frequencies stay fp32."""
    if device is not None:
        model.to(device)  # pyright: ignore[reportArgumentType]
    if dtype is None:
        return
    for weight in model.parameters():
        if weight.is_floating_point() and weight.dtype != dtype:
            weight.data = weight.data.to(dtype)
    model.config.dtype = dtype


def check_object(model: "PreTrainedModel", label: str) -> None:
    """Refuse a model object that has no head, no weights, or packed weights.

    Raises:
        SpecError: It is one of those.
    """
    check_kind(model.config.to_dict(), label)
    check_family(type(model).__name__, label)
    weights = list(model.parameters())
    if any(weight.is_meta for weight in weights):
        raise SpecError(f"{label} has no weights in memory (meta device); load it first.")
    settings = getattr(model.config, "quantization_config", None)
    packed = any(not w.is_floating_point() or w.dtype.itemsize < 2 for w in weights)
    if packed or (settings and "gguf" not in str(settings)):
        check_quantisation(settings or {"quant_method": "packed weights"}, label)


def from_object(source: Source, request: Request) -> Prepared:
    """Take a Hugging Face model as it is; it is hooked in place and keeps working."""
    model = source.value
    check_object(model, source.label)
    if request.tokenizer is not None:
        tokenizer = given_tokenizer(request.tokenizer, request.trust_remote_code)
    else:
        tokenizer = _tokenizer_of(model)
    check_vocabulary(tokenizer, model.get_input_embeddings().weight.shape[0], source.label)
    move(model, request.dtype, request.device)
    check_finite(model, source.label)
    return Prepared(model.eval(), tokenizer, getattr(model.config, "_commit_hash", None))


def _tokenizer_of(model: "PreTrainedModel") -> "PreTrainedTokenizerBase":
    """Find the tokenizer where an object says that it came from, on this machine only."""
    name = model.config.name_or_path
    label = f"This {type(model).__name__}"
    if not name:
        raise no_tokenizer(label)
    try:
        return load_tokenizer(name, source=label, local_files_only=True)
    except SpecError:
        raise no_tokenizer(label) from None
