"""Load a Hugging Face model from a folder, a GGUF file or the hub, nothing of it left to chance."""

import contextlib
import copy
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tlkit.errors import SpecError
from tlkit.models.tokenizers import load_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_MALFORMED = (KeyError, TypeError, IndexError, AttributeError, ZeroDivisionError, OverflowError)
"""What libraries run into when a file's header says what cannot be."""


@dataclass(frozen=True)
class Place:
    """Where transformers finds a model.

    Attributes:
        name: A folder or a hub id.
        label: What the model is called in messages and results.
        options: What transformers needs to know beside the name.
    """

    name: str
    label: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_folder(cls, folder: Path, label: str | None = None, **options: Any) -> "Place":
        """A folder on this machine; the hub is never asked, and no code in it is run unasked.

        Without a word on code, transformers would ask on the terminal whether to run it.
        """
        settled = {"local_files_only": True, "trust_remote_code": False}
        return cls(str(folder), label or str(folder), {**settled, **options})

    @classmethod
    def of_gguf(cls, file: Path, label: str | None = None) -> "Place":
        """A GGUF file on this machine; its weights are dequantised."""
        return cls.of_folder(file.parent, label or str(file), gguf_file=file.name)

    @property
    def gguf(self) -> Path | None:
        """The GGUF file, if that is where the weights are."""
        name = self.options.get("gguf_file")
        return Path(self.name) / name if name else None


def _metadata_once(read: Any) -> Any:
    """Remember what a GGUF file's metadata say; tensors are read as before."""
    known: dict[str, Any] = {}

    def read_once(path: str, return_tensors: bool = False, **more: Any) -> Any:
        if return_tensors:
            return read(path, return_tensors=True, **more)
        if path not in known:
            known[path] = read(path)
        return copy.deepcopy(known[path])

    return read_once


@contextlib.contextmanager
def gguf_read_once(place: Place) -> Iterator[None]:
    """Let transformers do once what it does anew at every step of loading a GGUF file.

    Config, tokenizer and weights each parse the header, where a vocabulary of 50 000 words takes
    seconds, and the table of names is made again for every module. The bar that transformers draws
    over dequantisation is held back too.
    """
    if place.gguf is None:
        yield
        return
    import gguf
    from transformers import modeling_gguf_pytorch_utils as reading

    swaps: list[tuple[Any, str, Any]] = [
        (gguf, "GGUFReader", functools.lru_cache(maxsize=1)(gguf.GGUFReader)),
        (gguf, "get_tensor_name_map", functools.lru_cache(maxsize=4)(gguf.get_tensor_name_map)),
        (reading, "load_gguf_checkpoint", _metadata_once(reading.load_gguf_checkpoint)),
        (reading, "tqdm", functools.partial(getattr(reading, "tqdm"), disable=True)),  # noqa: B009
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in swaps]
    try:
        for module, name, value in swaps:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1]).strip().rstrip(".")


def load_config(place: Place) -> Any:
    """Load a model's config.

    Raises:
        SpecError: transformers cannot make sense of it.
    """
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(place.name, **place.options)  # nosec B615: pinned, in options
    except Exception as error:  # transformers raises whatever a strange value runs into
        raise SpecError(
            f"The config of {place.label} cannot be read: {_first_line(error)}."
        ) from error


def place_tokenizer(place: Place, config: Any) -> "PreTrainedTokenizerBase":
    """Load the tokenizer that comes with a model."""
    return load_tokenizer(place.name, source=place.label, config=config, **place.options)


def _placement(device: str, device_map: Any) -> dict[str, Any]:
    """Say to transformers where weights go; a plain CPU load needs no accelerate hooks."""
    if device_map is not None:
        return {"device_map": device_map}
    return {} if device == "cpu" else {"device_map": {"": device}}


def load_model(
    place: Place,
    *,
    dtype: "torch.dtype",
    config: Any = None,
    device: str = "cpu",
    device_map: Any = None,
) -> "PreTrainedModel":
    """Load a model with eager attention, in eval mode, every weight from its checkpoint.

    Args:
        place: Where it is.
        dtype: Type of the weights.
        config: Its config, if it is loaded already.
        device: Where the weights go.
        device_map: As transformers takes it, instead of a device.

    Raises:
        SpecError: The checkpoint is damaged, or lacks weights that the model needs.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, GgufConfig

    more: dict[str, Any] = _placement(device, device_map)
    if place.gguf is not None:
        more["quantization_config"] = GgufConfig(dequantize=True)
    if config is not None:
        more["config"] = config
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(  # nosec B615: pinned, in options
            place.name,
            dtype=dtype,
            attn_implementation="eager",
            output_loading_info=True,
            **place.options,
            **more,
        )
    except (SafetensorError, EOFError, OSError, RuntimeError, ValueError, *_MALFORMED) as error:
        raise SpecError(f"{place.label} cannot be loaded: {_first_line(error)}.") from error
    except Exception as error:
        if type(error).__name__ != "UnpicklingError":
            raise
        raise SpecError(
            f"{place.label} cannot be loaded: its .bin file holds more than weights, and nothing "
            f"else of it is read; convert it to safetensors where you trust it."
        ) from error
    model, report = loaded
    missing = sorted(report["missing_keys"])
    if missing:
        raise SpecError(
            f"{place.label} lacks {len(missing)} weight(s) that a {type(model).__name__} needs, "
            f"such as {missing[0]}; it may be a checkpoint of another kind of model."
        )
    if place.gguf is not None:
        scale_rotary(model, place.gguf)
    return model.eval()


def scale_rotary(model: "PreTrainedModel", gguf_file: Path) -> None:
    """Apply the rotary frequency factors that Llama 3 GGUF files store and transformers ignores.

    llama.cpp divides frequency i by factor i; the file has one factor per frequency.

    Raises:
        SpecError: The file has factors, and the model has nowhere to put them.
    """
    import gguf
    import torch

    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(str(gguf_file)).tensors}
    if "rope_freqs.weight" not in tensors:
        return
    factors = torch.from_numpy(tensors["rope_freqs.weight"].data.copy()).float()
    rotary = getattr(model.base_model, "rotary_emb", None)
    frequencies = getattr(rotary, "inv_freq", None)
    if rotary is None or frequencies is None or frequencies.shape != factors.shape:
        raise SpecError(f"{gguf_file} has rotary factors that do not fit a {type(model).__name__}.")
    rotary.inv_freq = frequencies / factors.to(frequencies.device)
    rotary.original_inv_freq = rotary.inv_freq.clone()
