"""A model's sizes from its config alone: what a plan needs, without a weight being read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tlkit.errors import SpecError
from tlkit.models.families import check_family, check_raw_config, family_of
from tlkit.models.files import Place, load_config, place_tokenizer
from tlkit.models.memory import on_meta
from tlkit.models.quiet import untouched
from tlkit.models.validate import read_json


@dataclass(frozen=True, eq=False)
class Outline:
    """What is known of a model that is not loaded; the names are those of `Parts`.

    Attributes:
        name: What the model is called.
        n_layers: Blocks.
        n_heads: Query heads.
        d_head: Width of a head.
        d_model: Width of the stream.
        blocks: The blocks, without memory for their weights.
        config: Hugging Face's config of the text model.
        dtype: The type that the weights would have.
        device: Where products are timed.
        weights: Parameters in all.
        tokenizer: The tokenizer, None where the folder has none.
    """

    name: str
    n_layers: int
    n_heads: int
    d_head: int
    d_model: int
    blocks: list[Any]
    config: Any
    dtype: Any
    device: Any
    weights: int
    tokenizer: Any


def has_outline(source: Any) -> bool:
    """Whether a source is a folder whose config tells all sizes."""
    return isinstance(source, str | Path) and (Path(source) / "config.json").is_file()


def outline(folder: str | Path, *, dtype: Any = None, device: str | None = None) -> Outline:
    """Read a model's sizes from its folder's config; no weights need be there.

    Args:
        folder: A folder with a ``config.json``, perhaps with a tokenizer.
        dtype: The type that the weights would have, such as ``"bfloat16"``; float32 if None.
        device: Where a product is timed; the first GPU if there is one.

    Raises:
        SpecError: There is no such config, or it is of no model that can be hooked.
    """
    import torch

    folder = Path(folder)
    if not has_outline(folder):
        raise SpecError(f"{folder} has no config.json, which says how large its model is.")
    check_raw_config(read_json(folder / "config.json"), str(folder), False)
    place = Place.of_folder(folder)
    with untouched():
        whole = load_config(place)
        check_family(family_of(whole.to_dict()), place.label)
        skeleton = on_meta(whole)
        tokenizer = _tokenizer(place, whole)
    config = whole.get_text_config()
    heads = int(config.num_attention_heads)
    width = int(config.hidden_size)
    return Outline(
        name=str(folder), n_layers=int(config.num_hidden_layers), n_heads=heads,
        d_head=int(getattr(config, "head_dim", None) or width // heads), d_model=width,
        blocks=blocks_of(skeleton, int(config.num_hidden_layers)), config=config,
        dtype=getattr(torch, dtype) if isinstance(dtype, str) else dtype or torch.float32,
        device=device or ("cuda" if torch.cuda.is_available() else "cpu"),
        weights=sum(weight.numel() for weight in skeleton.parameters()), tokenizer=tokenizer,
    )  # fmt: skip


def blocks_of(skeleton: Any, count: int) -> list[Any]:
    """The list of as many modules as there are blocks that holds the most weights."""
    from torch import nn

    lists = [m for m in skeleton.modules() if isinstance(m, nn.ModuleList) and len(m) == count]
    if not lists:
        raise SpecError(f"{type(skeleton).__name__}: its {count} blocks were not found.")
    return list(max(lists, key=lambda m: sum(weight.numel() for weight in m.parameters())))


def _tokenizer(place: Place, config: Any) -> Any:
    """The folder's tokenizer, or None where it has none."""
    try:
        return place_tokenizer(place, config)
    except SpecError:
        return None
