"""What `from_pretrained` is asked for, read and checked before any work."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tlkit.errors import SpecError

if TYPE_CHECKING:
    import torch

KEYWORDS = (
    "tokenizer",
    "dtype",
    "device",
    "revision",
    "device_map",
    "adapter",
    "trust_remote_code",
    "requires_grad",
    "stream",
)
_REWRITES_WEIGHTS = (
    "fold_ln",
    "center_writing_weights",
    "center_unembed",
    "fold_value_biases",
    "refactor_factored_attn_matrices",
)
# TransformerLens's other keywords, and what to write instead.
_INSTEAD = {
    "n_devices": "give device_map='auto'",
    "max_memory": "give device_map as transformers takes it",
    "hf_model": "give the model itself as the source",
    "model_class": "give the model itself as the source",
    "checkpoint_index": "give revision='step1000' or the like",
    "checkpoint_value": "give revision='step1000' or the like",
    "default_prepend_bos": "text is read as the model's own tokenizer reads it",
    "default_padding_side": "tlkit pads where it makes no difference to the numbers",
    "move_to_device": "give device=",
    "torch_dtype": "give dtype=",
    "local_files_only": "a folder or a file is never looked up on the hub",
    "gguf_file": "give the .gguf file as the source",
    "quantization_config": "tlkit works on weights that are plain numbers",
    "load_in_4bit": "tlkit works on weights that are plain numbers",
    "load_in_8bit": "tlkit works on weights that are plain numbers",
}
_DTYPES = {
    "float32": "float32", "fp32": "float32", "float": "float32",
    "float16": "float16", "fp16": "float16", "half": "float16",
    "bfloat16": "bfloat16", "bf16": "bfloat16",
    "float64": "float64", "fp64": "float64", "double": "float64",
}  # fmt: skip


@dataclass(frozen=True)
class Request:
    """How a model is to be loaded, all of it checked.

    Attributes:
        tokenizer: A tokenizer, where to load one from, or None for the model's own.
        dtype: Type of the weights; None keeps an object's and means fp32 for files.
        device: Where the weights go; None keeps an object's place.
        device_map: As transformers takes it, instead of a device.
        revision: Of a hub model: a branch, tag or commit.
        adapter: A LoRA folder that is merged into the weights.
        trust_remote_code: Whether code that comes with the model may run.
        requires_grad: Whether weights take gradients.
        stream: Whether blocks' weights stay on disk.
    """

    tokenizer: Any = None
    dtype: "torch.dtype | None" = None
    device: str | None = None
    device_map: Any = None
    revision: str | None = None
    adapter: Path | None = None
    trust_remote_code: bool = False
    requires_grad: bool = False
    stream: bool = False


def refuse(unknown: Mapping[str, Any]) -> None:
    """Refuse keywords that are not ours, saying what to write instead.

    Raises:
        SpecError: There is one.
    """
    for name in unknown:
        if name in _REWRITES_WEIGHTS:
            raise SpecError(
                f"{name} is not taken: tlkit keeps the raw weights, because folding or centring "
                f"rewrites them in place and doubles the memory while logits, patching and "
                f"ablation come out the same without it; leave {name} out."
            )
        if name in _INSTEAD:
            raise SpecError(f"{name} is not taken: {_INSTEAD[name]}.")
        raise SpecError(f"from_pretrained takes no {name}; it takes {', '.join(KEYWORDS)}.")


def read_dtype(value: Any) -> "torch.dtype | None":
    """Read a type of weights from a torch dtype or a name such as "bf16".

    Raises:
        SpecError: It is none of the types that models compute in.
    """
    if value is None:
        return None
    import torch

    name = _DTYPES.get(str(value).removeprefix("torch.").lower())
    if name is None:
        raise SpecError(f"dtype {value!r} is not one of float32, bfloat16, float16, float64.")
    return getattr(torch, name)


def read_device(value: Any) -> str | None:
    """Read a device, and check that this machine has it.

    Raises:
        SpecError: It has not, or the name is no device.
    """
    if value is None:
        return None
    import torch

    try:
        device = torch.device(value)
    except (RuntimeError, TypeError):
        raise SpecError(f"device {value!r} is no device; give 'cpu', 'cuda' or 'cuda:0'.") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise SpecError(
            f"device {value!r} is not there: PyTorch sees {torch.cuda.device_count()} GPU(s)."
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise SpecError("device 'mps' is not there: PyTorch sees no Apple GPU.")
    return str(device)


def read_adapter(value: Any) -> Path | None:
    """Read where an adapter is; what it holds is checked against the model later."""
    if value is None:
        return None
    if not isinstance(value, str | Path):
        raise SpecError(f"adapter must be a folder, not a {type(value).__name__}.")
    return Path(value).expanduser()


def read_request(
    *,
    tokenizer: Any,
    dtype: Any,
    device: Any,
    revision: str | None,
    device_map: Any,
    adapter: Any,
    trust_remote_code: bool,
    requires_grad: bool,
    stream: bool,
) -> Request:
    """Check every keyword of `from_pretrained` for itself and against the others.

    Raises:
        SpecError: One cannot be met.
    """
    if device is not None and device_map is not None:
        raise SpecError("device and device_map say the same thing twice; give one of them.")
    if stream and adapter is not None:
        raise SpecError(
            "stream=True reads weights as they lie on disk, and an adapter is merged in memory; "
            "merge it once (peft's merge_and_unload), save the model, and stream that folder."
        )
    if stream and device_map is not None:
        raise SpecError(
            "stream=True and device_map are two ways to hold a model that does not fit; give one."
        )
    if stream and requires_grad:
        raise SpecError("stream=True keeps weights on disk, where they take no gradients.")
    return Request(
        tokenizer=tokenizer,
        dtype=read_dtype(dtype),
        device=read_device(device),
        device_map=device_map,
        revision=revision,
        adapter=read_adapter(adapter),
        trust_remote_code=bool(trust_remote_code),
        requires_grad=bool(requires_grad),
        stream=bool(stream),
    )
