"""Tell what a source is - a name, a folder, a file, an object - without opening it."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tlkit.errors import SpecError
from tlkit.models.embedded import EMBEDDED
from tlkit.models.keywords import Request
from tlkit.models.sisters import SISTERS

Kind = Literal["tiny", "embedded", "sister", "folder", "gguf", "hub", "object", "bridge"]
KINDS = (
    "a hub id, a folder, a .gguf file, a Hugging Face model, a TransformerLens model, "
    f"{EMBEDDED!r} (also with -refusing or -abliterated) or 'tiny:<family>'"
)
_UNSTREAMED = {
    "gguf": "a GGUF file",
    "object": "in memory already",
    "bridge": "in memory already",
    "tiny": "made in memory",
    "sister": "made in memory out of two sets of weights",
}
_INSTEAD_OF_STREAM = {
    True: "give the folder of the same model in safetensors, or leave stream out",
    False: "leave stream out, or save it with save_pretrained() and give that folder",
}
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[\w.-]{1,96})?")


@dataclass(frozen=True)
class Source:
    """What a source is, and what it is called in results.

    Attributes:
        kind: The way in which it is loaded.
        value: A path, a name or an object, by kind.
        label: What results say it was.
    """

    kind: Kind
    value: Any
    label: str


def is_bridge(value: Any) -> bool:
    """Say whether something is a TransformerLens model, without importing TransformerLens."""
    module = sys.modules.get("transformer_lens.model_bridge.transformer_bridge")
    return module is not None and isinstance(value, module.TransformerBridge)


def _is_hf_model(value: Any) -> bool:
    module = sys.modules.get("transformers.modeling_utils")
    return module is not None and isinstance(value, module.PreTrainedModel)


def _from_object(value: Any) -> Source:
    if is_bridge(value):
        return Source("bridge", value, str(value.cfg.model_name))
    if _is_hf_model(value):
        return Source("object", value, value.config.name_or_path or type(value).__name__)
    if type(value).__name__.startswith("Peft"):
        raise SpecError(
            "A peft model is wrapped twice; give what its merge_and_unload() returns, or the base "
            "model with adapter=<folder>."
        )
    raise SpecError(f"A {type(value).__name__} is no model that can be loaded; give {KINDS}.")


def _from_path(path: Path, text: str) -> Source:
    if path.is_dir():
        return Source("folder", path, str(path))
    if path.is_file():
        if path.suffix.lower() == ".gguf":
            return Source("gguf", path, str(path))
        raise SpecError(f"{path} is a file; give its folder, or a .gguf file.")
    what = "file" if path.suffix.lower() == ".gguf" else "folder"
    raise SpecError(f"There is no {what} {text}; give {KINDS}.")


def _is_a_path(text: str) -> bool:
    """Say whether a text can only be meant as a path, so that the hub is not asked for it."""
    return (
        text.startswith((".", "/", "~", "\\"))
        or text.count("/") > 1
        or "\\" in text
        or text.lower().endswith(".gguf")
        or text.endswith("/")
    )


def find_source(source: Any) -> Source:
    """Tell what a source is; a folder or file that exists comes before the hub.

    Raises:
        SpecError: It is nothing that can be loaded, or a path where nothing is.
    """
    if not isinstance(source, str | Path):
        return _from_object(source)
    text = str(source)
    if text == EMBEDDED:
        return Source("embedded", text, text)
    if text in SISTERS:
        return Source("sister", text, text)
    if text.startswith("tiny:"):
        return Source("tiny", text.removeprefix("tiny:"), text)
    path = Path(text).expanduser()
    if not text:
        raise SpecError(f"The source is an empty text; give {KINDS}.")
    if isinstance(source, Path) or path.exists() or _is_a_path(text):
        return _from_path(path, text)
    if not _HUB_ID.fullmatch(text):
        raise SpecError(f"{text!r} is neither a path that exists nor a hub id; give {KINDS}.")
    return Source("hub", text, text)


def check_fit(source: Source, request: Request) -> None:
    """Refuse keywords that a kind of source cannot honour.

    Raises:
        SpecError: There is one.
    """
    if request.revision is not None and source.kind != "hub":
        raise SpecError(f"revision is for models of the hub, and {source.label} is none.")
    if source.kind == "sister" and request.adapter is not None:
        raise SpecError(f"{source.label} takes no adapter; give it with {EMBEDDED}.")
    if source.kind == "tiny" and (request.adapter, request.device_map) != (None, None):
        raise SpecError("Tiny random models take no adapter and no device_map.")
    if request.stream and source.kind not in ("folder", "embedded", "hub"):
        raise SpecError(
            f"stream=True reads a folder with safetensors files, and {source.label} is "
            f"{_UNSTREAMED[source.kind]}; {_INSTEAD_OF_STREAM[source.kind == 'gguf']}."
        )
    if source.kind not in ("object", "bridge"):
        return
    if request.adapter is not None:
        raise SpecError(
            "adapter is merged while loading from files; merge it into the object yourself "
            "(peft's merge_and_unload) or give the base model's folder."
        )
    if request.device_map is not None:
        raise SpecError("device_map is for loading from files; the object has its place already.")
