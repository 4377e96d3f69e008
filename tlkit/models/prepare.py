"""From a source to a Hugging Face model and its tokenizer, checked before anything is heavy."""

from dataclasses import replace
from pathlib import Path

from tlkit.errors import SpecError
from tlkit.models.adapters import check_adapter, merge_adapter
from tlkit.models.embedded import EMBEDDED, embedded_folder
from tlkit.models.families import (
    check_family,
    check_raw_config,
    family_of,
    unsupported,
)
from tlkit.models.files import Place, gguf_read_once, load_config, load_model, place_tokenizer
from tlkit.models.finite import check_finite
from tlkit.models.gguf_file import GgufHead, read_head
from tlkit.models.hub import find_on_hub, has_tokenizer
from tlkit.models.keywords import Request
from tlkit.models.memory import check_memory, on_meta, weight_bytes
from tlkit.models.objects import Prepared, from_object, move
from tlkit.models.sisters import ABLITERATED, FOLDER, direction, take_out
from tlkit.models.sources import Source
from tlkit.models.tiny import tiny, tiny_tokenizer
from tlkit.models.tokenizers import (
    check_tokenizer_files,
    check_vocabulary,
    given_tokenizer,
    no_tokenizer,
)
from tlkit.models.validate import check_folder, check_weights


def default_device() -> str:
    """Choose the first GPU, or the CPU without one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _load(place: Place, request: Request, revision: str | None) -> Prepared:
    """Load what has passed the checks of its files; shape, memory and tokenizer come first."""
    import torch

    dtype, device = request.dtype or torch.float32, request.device or default_device()
    with gguf_read_once(place):
        config = load_config(place)
        check_family(family_of(config.to_dict()), place.label)
        skeleton = on_meta(config, request.trust_remote_code)
        if request.device_map is None:
            check_memory(place.label, weight_bytes(skeleton, dtype), dtype, device)
        if request.adapter is not None:
            check_adapter(request.adapter, skeleton, place.label)
        tokenizer = (
            place_tokenizer(place, config)
            if request.tokenizer is None
            else given_tokenizer(request.tokenizer, request.trust_remote_code)
        )
        check_vocabulary(tokenizer, config.get_text_config().vocab_size, place.label)
        model = load_model(
            place, dtype=dtype, config=config, device=device, device_map=request.device_map
        )
    if request.adapter is not None:
        model = merge_adapter(model, request.adapter, place.label)
    check_finite(model, place.label)
    return Prepared(model, tokenizer, revision)


def from_folder(
    folder: Path, request: Request, label: str | None = None, revision: str | None = None
) -> Prepared:
    """Load a model folder as transformers' `save_pretrained` writes it."""
    label = label or str(folder)
    check_raw_config(check_folder(folder), label, request.trust_remote_code)
    check_weights(folder)
    if request.tokenizer is None:
        check_tokenizer_files(folder)
    place = Place.of_folder(folder, label, trust_remote_code=request.trust_remote_code)
    return _load(place, request, revision)


def _check_head(head: GgufHead, file: Path) -> None:
    """Refuse GGUF files that transformers cannot read, or would read wrongly without a word."""
    from transformers.integrations.gguf.gguf_conversion_mapping import GGUF_ARCHS
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    family = head.architecture
    if "bert" in family:
        raise SpecError(
            f"{file} is an encoder-only model ({family}): it predicts no next token, which every "
            f"tlkit study needs."
        )
    if family not in {*GGUF_SUPPORTED_ARCHITECTURES, *GGUF_ARCHS}:
        raise unsupported(family or "model of no named family", str(file))
    scaling = head.values.get(f"{family}.rope.scaling.type", "none")
    try:
        factor = float(head.values.get(f"{family}.rope.scaling.factor", 1.0))
    except (TypeError, ValueError):
        raise SpecError(f"{file} has a rotary scaling factor that is no number.") from None
    if any("rope_factors" in name for name in head.shapes) or (scaling != "none" and factor != 1.0):
        raise SpecError(
            f"{file} scales its rotary positions ({scaling}, {factor:g}), which transformers does "
            f"not read from GGUF: its numbers would be wrong; load the safetensors model instead."
        )


def from_gguf(
    file: Path, request: Request, label: str | None = None, revision: str | None = None
) -> Prepared:
    """Load a GGUF file, its weights dequantised."""
    _check_head(read_head(file), file)
    return _load(Place.of_gguf(file, label), request, revision)


def from_embedded(request: Request) -> Prepared:
    """Load the embedded model from its copy in the user's cache."""
    path, version = embedded_folder()
    load = from_folder if path.is_dir() else from_gguf
    return load(path, request, EMBEDDED, version)


def from_sister(name: str, request: Request) -> Prepared:
    """Load the embedded model and put on it what makes it the sister."""
    ready = from_embedded(replace(request, adapter=FOLDER))
    if name == ABLITERATED:
        take_out(ready.model, direction())
    return ready


def from_hub(name: str, request: Request) -> Prepared:
    """Load a model of the hub, all of it from one commit."""
    found = find_on_hub(name, request.revision)
    if found.folder is not None:
        return from_folder(found.folder, request, found.name, found.commit)
    check_raw_config(found.raw, found.name, request.trust_remote_code)
    if request.tokenizer is None and not has_tokenizer(found):
        raise no_tokenizer(found.name)
    return _load(found.place(request.trust_remote_code), request, found.commit)


def from_tiny(family: str, request: Request) -> Prepared:
    """Build a tiny random model, in the type and place asked for."""
    model = tiny(family)
    move(model, request.dtype, request.device)
    tokenizer = request.tokenizer
    return Prepared(
        model,
        tiny_tokenizer() if tokenizer is None else given_tokenizer(tokenizer, False),
    )


def prepare(source: Source, request: Request) -> Prepared:
    """Load whatever a source is, short of hooking it."""
    match source.kind:
        case "tiny":
            return from_tiny(source.value, request)
        case "embedded":
            return from_embedded(request)
        case "sister":
            return from_sister(source.value, request)
        case "folder":
            return from_folder(source.value, request)
        case "gguf":
            return from_gguf(source.value, request)
        case "hub":
            return from_hub(source.value, request)
        case _:
            return from_object(source, request)
