"""Load a model by the name that users know: `tk.HookedTransformer.from_pretrained`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tlkit.errors import SpecError
from tlkit.models.info import ModelInfo, remember
from tlkit.models.keywords import Request, read_request, refuse
from tlkit.models.quiet import untouched
from tlkit.models.sources import Source, check_fit, find_source, is_bridge
from tlkit.models.streamed import need_memory

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge


class _AnyBridge(type):
    """Makes every TransformerLens model an instance of `HookedTransformer`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return is_bridge(instance)


class HookedTransformer(metaclass=_AnyBridge):
    """The name under which models are loaded.

    TransformerLens 4 has no class of this name any more. What `from_pretrained` returns is its
    successor, a `TransformerBridge` in raw mode, with the hook names that users know and with
    Hugging Face's own weights and numbers; `isinstance(model, tk.HookedTransformer)` holds for it.
    """

    def __new__(cls, *_: Any, **__: Any) -> Any:
        """Models are loaded, not made."""
        raise SpecError("Load a model with HookedTransformer.from_pretrained(source).")

    @classmethod
    def from_pretrained(
        cls,
        source: Any,
        *,
        tokenizer: Any = None,
        dtype: Any = None,
        device: Any = None,
        revision: str | None = None,
        device_map: Any = None,
        adapter: Any = None,
        trust_remote_code: bool = False,
        requires_grad: bool = False,
        stream: bool = False,
        **refused: Any,
    ) -> "TransformerBridge":
        """Load a model from wherever it is, and put TransformerLens's hooks on it.

        Text becomes tokens as the model's own tokenizer makes them, with a start token if and only
        if that one puts it. No global state changes, and nothing on this machine is looked up on
        the network.

        Args:
            source: A hub id, a folder, a `.gguf` file, a Hugging Face model or a TransformerLens
                model in memory (used in place), "smollm2-135m-instruct" (the embedded model;
                "…-refusing" and "…-abliterated" are its sisters) or "tiny:<family>" (random
                weights).
            tokenizer: A tokenizer, or the folder or hub id of one, instead of the model's own.
            dtype: Type of the weights, such as "bfloat16"; by default float32 for files and what
                it is for an object.
            device: "cpu", "cuda", "cuda:1", ...; by default the first GPU if there is one.
            revision: Branch, tag or commit of a hub model.
            device_map: As transformers takes it, to spread a model over devices.
            adapter: A folder with a LoRA adapter; it is merged into the weights.
            trust_remote_code: Whether Python code that comes with the model may run.
            requires_grad: Whether the weights take gradients.
            stream: Whether the weights stay in their safetensors files, one block in memory at a
                time and the next read ahead, for models that are larger than the memory.
            **refused: TransformerLens's old keywords, each refused with what to do instead.

        Returns:
            A `TransformerBridge` in eval mode, its logits those of Hugging Face's model to 1e-5.

        Raises:
            SpecError: The source is not there, damaged, too large for the memory, or of a kind
                that cannot be hooked; found out before the weights are read.
        """
        refuse(refused)
        found = find_source(source)
        with untouched(bars=found.kind == "hub"):
            request = read_request(
                tokenizer=tokenizer, dtype=dtype, device=device, revision=revision,
                device_map=device_map, adapter=adapter, trust_remote_code=trust_remote_code,
                requires_grad=requires_grad, stream=stream,
            )  # fmt: skip
            check_fit(found, request)
            if found.kind == "bridge":
                return _adopt(found, request)
            return _hook(found, request)


def _hook(source: Source, request: Request) -> "TransformerBridge":
    """Load a model that has no hooks yet, and give it hooks."""
    from tlkit.models.prepare import default_device, prepare
    from tlkit.models.wrap import wrap

    layers = None
    if request.stream:
        from tlkit.models.stream import prepare_streamed

        ready, layers = prepare_streamed(source, request, default_device())
    else:
        ready = prepare(source, request)
    bridge = wrap(
        ready.model,
        ready.tokenizer,
        name=source.label,
        trust_remote_code=request.trust_remote_code,
    )
    if layers is not None:
        layers.attach(bridge)
    about = ModelInfo.of(bridge, source=source.label, revision=ready.revision)
    if source.kind != "object":
        where = source.value.absolute() if isinstance(source.value, Path) else source.label
        about.again = (where, vars(request).copy())
    remember(bridge, about)
    return bridge.requires_grad_(request.requires_grad)


def _adopt(source: Source, request: Request) -> "TransformerBridge":
    """Take a TransformerLens model that a user made themselves."""
    from tlkit.models.finite import check_finite
    from tlkit.models.objects import check_object, move
    from tlkit.models.tokenizers import given_tokenizer, no_tokenizer
    from tlkit.models.wrap import attach_tokenizer, with_padding

    bridge = source.value
    if getattr(bridge, "compatibility_mode", False):
        raise SpecError(
            "This TransformerLens model is in compatibility mode, its weights folded and centred; "
            "tlkit needs raw weights: load it again without enable_compatibility_mode()."
        )
    if request.dtype is not None or request.device is not None:
        need_memory(bridge, "Another dtype or device", "load its folder again with them")
    tokenizer = request.tokenizer
    if tokenizer is not None:
        tokenizer = given_tokenizer(tokenizer, request.trust_remote_code)
    elif bridge.tokenizer is None:
        raise no_tokenizer(source.label)
    else:
        tokenizer = bridge.tokenizer
    check_object(bridge.original_model, source.label)
    move(bridge.original_model, request.dtype, request.device)
    check_finite(bridge.original_model, source.label)
    attach_tokenizer(bridge, with_padding(tokenizer))
    remember(bridge, ModelInfo.of(bridge, source=source.label))
    return bridge.eval().requires_grad_(request.requires_grad)
