"""Load a model whose weights stay on disk: `from_pretrained(..., stream=True)`."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from tlkit.errors import SpecError
from tlkit.models.embedded import EMBEDDED, embedded_folder
from tlkit.models.families import check_family, check_raw_config, family_of
from tlkit.models.files import Place, load_config, place_tokenizer
from tlkit.models.hub import find_on_hub
from tlkit.models.keywords import Request
from tlkit.models.layers import Held, Layers
from tlkit.models.memory import check_memory
from tlkit.models.naming import Names
from tlkit.models.objects import Prepared
from tlkit.models.outline import blocks_of
from tlkit.models.sources import Source
from tlkit.models.stored import Stored, parameter
from tlkit.models.tokenizers import check_tokenizer_files, check_vocabulary, given_tokenizer
from tlkit.models.validate import check_folder, check_weights
from tlkit.models.weight_files import WeightFiles

LAYERS_IN_MEMORY = 2.5
"""One that runs, one that is read ahead, and the pieces in which they are read."""


def prepare_streamed(source: Source, request: Request, default: str) -> tuple[Prepared, Layers]:
    """Build a model without its blocks, and what brings them.

    Args:
        source: A folder, the embedded model, or a hub model that was fetched before.
        request: How it is to be loaded.
        default: The device, where none was asked for.

    Raises:
        SpecError: The folder holds no such model, or one whose files must be rearranged.
    """
    folder, label, revision = _folder(source, request)
    check_raw_config(check_folder(folder), label, request.trust_remote_code)
    if request.tokenizer is None:
        check_tokenizer_files(folder)
    check_weights(folder)
    files = WeightFiles(folder)
    place = Place.of_folder(folder, label, trust_remote_code=request.trust_remote_code)
    config = load_config(place)
    check_family(family_of(config.to_dict()), label)
    tokenizer = (
        place_tokenizer(place, config)
        if request.tokenizer is None
        else given_tokenizer(request.tokenizer, request.trust_remote_code)
    )
    check_vocabulary(tokenizer, config.get_text_config().vocab_size, label)
    device = request.device or default
    model = _skeleton(config, request, folder, device)
    layers = _filled(model, files, request.dtype or torch.float32, device, label)
    return Prepared(model.eval(), tokenizer, revision), layers


def _folder(source: Source, request: Request) -> tuple[Path, str, str | None]:
    """Where the files lie, what the model is called, and its revision."""
    if source.kind == "embedded":
        path, version = embedded_folder()
        if not path.is_dir():
            raise SpecError(
                f"{EMBEDDED} has no safetensors copy to stream from, as its cache folder cannot be "
                f"written to; set TLKIT_CACHE to one that can."
            )
        return path, EMBEDDED, version
    if source.kind == "folder":
        return source.value, str(source.value), None
    found = find_on_hub(source.value, request.revision)
    if found.folder is None:
        raise SpecError(
            f"stream=True reads files on this machine; fetch {found.name} with: hf download "
            f"{found.name}, and give the folder that this prints."
        )
    return found.folder, found.name, found.commit


def _skeleton(config: Any, request: Request, folder: Path, device: str) -> Any:
    """The model as transformers builds it, weights on the meta device and buffers filled."""
    from transformers import AutoModelForCausalLM, GenerationConfig

    dtype = request.dtype or torch.float32
    config.name_or_path = str(folder)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation="eager",
            trust_remote_code=request.trust_remote_code,
        )  # fmt: skip
    model.tie_weights()
    for module in model.modules():
        for name in module._non_persistent_buffers_set:
            buffer = module._buffers.get(name)
            if buffer is not None and buffer.is_meta:
                module._buffers[name] = torch.empty_like(buffer, device=device)
        module.__dict__.pop("_is_hf_initialized", None)
    model.initialize_weights()  # computes the buffers; weights on the meta device take nothing
    if model.can_generate() and (folder / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(folder, local_files_only=True)
    return model


def _filled(
    model: Any, files: WeightFiles, dtype: torch.dtype, device: str, label: str
) -> Layers:  # fmt: skip
    """Put every weight in its place: tables and blocks as notes of where they lie."""
    count = int(model.config.get_text_config().num_hidden_layers)
    blocks = blocks_of(model, count)
    inside = {id(module): i for i, block in enumerate(blocks) for module in block.modules()}
    names = Names(model, files, dtype, label)
    tables = _tables(model)
    check_memory(label, _needed(model, blocks, tables), dtype, device)
    held: list[list[Held]] = [[] for _ in blocks]
    made: dict[int, Stored] = {}
    outside: dict[int, nn.Parameter] = {}
    for path, module in model.named_modules():
        for own, weight in list(module._parameters.items()):
            if weight is None:
                continue
            if id(weight) not in made:
                key, kind = names.place(f"{path}.{own}" if path else own, weight)
                made[id(weight)] = Stored(files, key, weight.shape, kind, device)
            stored = made[id(weight)]
            if id(module) in inside:
                held[inside[id(module)]].append((module, own, stored))
                # One zero in the weight's shape, for TransformerLens to wrap (and to cut up).
                hollow = torch.zeros((), dtype=stored.dtype, device=device).expand(stored.shape)
                module._parameters[own] = parameter(hollow)
                continue
            if id(weight) not in outside:  # tied weights stay one object
                kept = stored if id(weight) in tables else stored.whole()
                outside[id(weight)] = parameter(kept)
            module._parameters[own] = outside[id(weight)]
        for own, buffer in list(module._buffers.items()):
            if buffer is not None and buffer.is_meta:
                name = f"{path}.{own}" if path else own
                module._buffers[own] = names.buffer(name, buffer).to(device)
    return Layers(files, blocks, held, device)


def _needed(model: Any, blocks: list[nn.Module], tables: set[int]) -> float:
    """Bytes: blocks that are in memory at a time, and what stays there."""
    sizes = [sum(w.numel() * w.itemsize for w in block.parameters()) for block in blocks]
    inside = {id(weight) for block in blocks for weight in block.parameters()}
    kept = [w for w in model.parameters() if id(w) not in inside and id(w) not in tables]
    return LAYERS_IN_MEMORY * max(sizes) + sum(w.numel() * w.itemsize for w in kept)


def _tables(model: Any) -> set[int]:
    """Weights that have a row for each token or position, of which few are read at a time."""
    tables = [m.weight for m in model.modules() if isinstance(m, nn.Embedding)]
    head = model.get_output_embeddings()
    return {id(weight) for weight in [*tables, getattr(head, "weight", None)]}
