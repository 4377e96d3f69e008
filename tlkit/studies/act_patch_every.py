"""Several of TransformerLens's patching functions in one run, stacked."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transformer_lens.patching as tl
from transformer_lens.patching import make_df_from_ranges

from tlkit.errors import SpecError
from tlkit.studies import act_patch
from tlkit.studies.act_patch_cells import Rows
from tlkit.studies.act_patch_run import Options, measured

HEADS: Mapping[str, str] = {"out": "z", "q": "q", "k": "k", "v": "v", "pattern": "pattern"}
BLOCKS: Mapping[str, str] = {"resid_pre": "resid_pre", "attn_out": "attn_out", "mlp_out": "mlp_out"}


def get_act_patch_attn_head_all_pos_every(
    model: Any, corrupted_tokens: Any, clean_cache: Any, metric: Any, **kwargs: Any
) -> Any:
    """Patch each head's output, queries, keys, values and pattern at all positions.

    Arguments are those of `generic_activation_patch`. Key/value heads that the model does not
    have are NaN.

    Returns:
        Values ``[5, layer, head]``, or a `PatchingResult` with that axis in front.
    """
    setters = {"pattern": tl.layer_head_pattern_patch_setter}
    sweeps = [
        (name, setters.get(name, tl.layer_head_vector_patch_setter)) for name in HEADS.values()
    ]
    axes = ("layer", "head")
    return _stacked(model, corrupted_tokens, clean_cache, metric, sweeps, axes, list(HEADS), kwargs)


def get_act_patch_attn_head_by_pos_every(
    model: Any, corrupted_tokens: Any, clean_cache: Any, metric: Any, **kwargs: Any
) -> Any:
    """Patch each head's output, queries, keys, values and pattern at each position.

    Arguments are those of `generic_activation_patch`. A pattern's position is that of its query.
    Key/value heads that the model does not have are NaN.

    Returns:
        Values ``[5, layer, pos, head]``, or a `PatchingResult` with that axis in front.
    """
    setters = {"pattern": tl.layer_head_pos_pattern_patch_setter}
    sweeps = [
        (name, setters.get(name, tl.layer_pos_head_vector_patch_setter))
        for name in HEADS.values()
    ]  # fmt: skip
    axes = ("layer", "pos", "head")
    return _stacked(model, corrupted_tokens, clean_cache, metric, sweeps, axes, list(HEADS), kwargs)


def get_act_patch_block_every(
    model: Any, corrupted_tokens: Any, clean_cache: Any, metric: Any, **kwargs: Any
) -> Any:
    """Patch the stream that enters each block, its attention's and its MLP's output.

    Arguments are those of `generic_activation_patch`.

    Returns:
        Values ``[3, layer, pos]``, or a `PatchingResult` with that axis in front.
    """
    sweeps = [(name, tl.layer_pos_patch_setter) for name in BLOCKS.values()]
    return _stacked(
        model, corrupted_tokens, clean_cache, metric, sweeps, ("layer", "pos"), list(BLOCKS), kwargs
    )


def _stacked(
    model: Any, tokens: Any, cache: Any, metric: Any, sweeps: Sequence[tuple[str, Any]],
    axes: tuple[str, ...], kinds: list[str], kwargs: dict[str, Any],
) -> Any:  # fmt: skip
    """All sweeps as one, then stacked; heads that a sweep does not have are NaN."""
    try:
        options = Options(**kwargs)
    except TypeError:
        known = ", ".join(Options.__dataclass_fields__)
        raise SpecError(f"Patching takes {known}; got {', '.join(kwargs)}.") from None
    frames = [act_patch._cells(model, tokens, name, axes, None) for name, _ in sweeps]
    several = []
    for (name, setter), (frame, _) in zip(sweeps, frames, strict=True):
        order = ["layer", "head", "pos"] if name == "pattern" and "pos" in axes else list(axes)
        several.append(Rows(setter, name, frame.reindex(columns=order)))
    found = measured(model, tokens, cache, metric, several, options)
    shape = frames[0][1]
    stacked = found.values.new_full(
        (len(found.values), len(sweeps), *shape, *found.values.shape[2:]), torch.nan
    )
    parts = found.values.split([len(frame) for frame, _ in frames], dim=1)
    for kind, (values, (_, own)) in enumerate(zip(parts, frames, strict=True)):
        stacked[(slice(None), kind, *[slice(size) for size in own])] = values.unflatten(1, own)
    if not (found.metrics.several or options.reduce == "none" or options.baseline):
        return stacked[0]
    named = ["patch_type", *axes]
    cells = make_df_from_ranges([len(sweeps), *shape], named)
    return act_patch.result(found, stacked, named, cells, baseline=options.baseline, kinds=kinds)
