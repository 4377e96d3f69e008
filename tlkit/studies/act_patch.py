"""TransformerLens's patching functions on the packed engine: same names, arguments and returns.

Where its values are wrong these differ: key/value heads that a grouped-query model does not have
are NaN in the ``*_every`` functions (there 0), patterns are patched on models whose patterns
TransformerLens cannot write, and ``resid_mid`` is the residual stream whether gradients are on or
off.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd
import torch
import transformer_lens.patching as tl
from transformer_lens.patching import PatchingResult, make_df_from_ranges

from tlkit.engine.values import Progress
from tlkit.errors import SpecError
from tlkit.studies.act_patch_cells import Rows
from tlkit.studies.act_patch_run import Measured, Options, measured

AXES = ("layer", "pos", "head", "head_index", "src_pos", "dest_pos")


def generic_activation_patch(
    model: Any,
    corrupted_tokens: Any,
    clean_cache: Any,
    patching_metric: Any,
    patch_setter: Any,
    activation_name: str,
    index_axis_names: Sequence[str] | None = None,
    index_df: pd.DataFrame | None = None,
    return_index_df: bool = False,
    *,
    reduce: str = "scalar",
    baseline: bool = False,
    clean_tokens: Any = None,
    budget: int | str | None = None,
    progress: Progress | None = None,
) -> Any:
    """Patch clean activations into a corrupted run, cell by cell, and measure each.

    Args:
        model: A TransformerLens bridge in eval mode.
        corrupted_tokens: Token ids ``[batch, pos]``.
        clean_cache: The clean run's `ActivationCache`, of as many tokens; one clean prompt may
            serve a whole batch.
        patching_metric: A function of logits ``[batch, pos, vocab]``, called once per cell, or a
            mapping of names to them. One that declares ``positions = -1`` (and ``vocabulary``)
            gets logits of just those, and costs only that.
        patch_setter: TransformerLens's ``(corrupted_activation, index, clean_activation)`` to the
            activation; its own ones, or any other.
        activation_name: What is patched: ``"resid_pre"``, ``"z"``, ``"pattern"``, …
        index_axis_names: Axes to run over: the layer first, then those that the setter takes.
        index_df: Or the cells themselves, one row each; the values are then flat.
        return_index_df: Give the cells too.
        reduce: ``"scalar"``: the metric returns a number; ``"mean"``: one per example, averaged;
            ``"none"``: kept.
        baseline: Measure the corrupted run too.
        clean_tokens: The clean run's ids ``[batch, pos]``. Cells at tokens that are equal in both
            runs then cost nothing; a cache that holds ``hook_embed`` says so by itself.
        budget: Memory that the engine may take besides the weights: bytes, or ``"4GiB"``.
        progress: Called with (done, total).

    Returns:
        The values, one axis per index axis; with them the cells if asked for; or, with
        ``reduce="none"``, ``baseline=True`` or a mapping, a TransformerLens `PatchingResult`.

    Raises:
        SpecError: Something does not fit; a ValueError, as in TransformerLens.
    """
    result_wanted = hasattr(patching_metric, "keys") or reduce == "none" or baseline
    if result_wanted and return_index_df:
        raise SpecError("A PatchingResult carries index_df; leave return_index_df out.")
    frame, shape = _cells(model, corrupted_tokens, activation_name, index_axis_names, index_df)
    options = Options(reduce, baseline, clean_tokens, budget, progress)
    rows = Rows(patch_setter, activation_name, frame)
    found = measured(model, corrupted_tokens, clean_cache, patching_metric, [rows], options)
    values = found.values.unflatten(1, shape)
    if not result_wanted:
        return (values[0], frame) if return_index_df else values[0]
    axes = [] if index_df is not None else list(index_axis_names or ())
    return result(found, values, axes, frame, baseline=baseline)


def result(
    found: Measured, values: torch.Tensor, axes: list[str], frame: pd.DataFrame, *,
    baseline: bool, kinds: list[str] | None = None,
) -> PatchingResult:  # fmt: skip
    """Values as TransformerLens returns them with their statistics."""
    return PatchingResult(
        values=values[found.axis], axis_names=axes, index_df=frame,
        metric_names=list(found.metrics.functions), reduced=found.metrics.reduce != "none",
        baseline=found.base[found.axis] if baseline else None,
        has_metric_axis=found.metrics.several, patch_type_names=kinds,
    )  # fmt: skip


def _cells(
    model: Any, tokens: Any, activation: str, axes: Sequence[str] | None,
    frame: pd.DataFrame | None,
) -> tuple[pd.DataFrame, tuple[int, ...]]:  # fmt: skip
    """The cells, one row each, and the shape of what is returned."""
    if (axes is None) == (frame is None):
        raise SpecError("Give index_axis_names or index_df: one of them.")
    if frame is not None:
        if len(frame) == 0:
            raise SpecError("index_df has no rows, so there is nothing to patch.")
        return frame, (len(frame),)
    axes = list(axes or ())
    for name in axes:
        if name not in AXES:
            raise SpecError(f"There is no index axis {name!r}; the axes are {', '.join(AXES)}.")
    if not isinstance(tokens, torch.Tensor):
        raise SpecError("corrupted_tokens must be token ids; model.to_tokens(text) makes them.")
    heads = model.cfg.n_heads
    if activation in ("k", "v") and model.cfg.n_key_value_heads is not None:
        heads = model.cfg.n_key_value_heads
    sizes = {"layer": model.cfg.n_layers, "head": heads, "head_index": heads}
    shape = tuple(sizes.get(name, tokens.shape[-1]) for name in axes)
    return make_df_from_ranges(shape, axes), shape


def _sweep(activation: str, setter: Any, axes: tuple[str, ...], what: str) -> Any:
    """A patching function with its site, setter and axes filled in."""
    function: Any = partial(
        generic_activation_patch,
        patch_setter=setter,
        activation_name=activation,
        index_axis_names=axes,
    )
    function.__doc__ = (
        f"Patch {what}.\n\nArguments and returns are those of `generic_activation_patch`; the "
        f"values' axes are {', '.join(axes)}."
    )
    return function


_POS = ("layer", "pos")
_POS_HEAD = ("layer", "pos", "head")
_HEAD = ("layer", "head")
_by_pos, _by_head = tl.layer_pos_head_vector_patch_setter, tl.layer_head_vector_patch_setter

get_act_patch_resid_pre = _sweep(
    "resid_pre", tl.layer_pos_patch_setter, _POS, "the residual stream that enters each block"
)
get_act_patch_resid_mid = _sweep(
    "resid_mid", tl.layer_pos_patch_setter, _POS, "the residual stream between attention and MLP"
)
get_act_patch_attn_out = _sweep(
    "attn_out", tl.layer_pos_patch_setter, _POS, "what each attention layer adds to the stream"
)
get_act_patch_mlp_out = _sweep(
    "mlp_out", tl.layer_pos_patch_setter, _POS, "what each MLP adds to the stream"
)
get_act_patch_attn_head_out_by_pos = _sweep("z", _by_pos, _POS_HEAD, "each head at each position")
get_act_patch_attn_head_q_by_pos = _sweep("q", _by_pos, _POS_HEAD, "each head's query vectors")
get_act_patch_attn_head_k_by_pos = _sweep("k", _by_pos, _POS_HEAD, "each key/value head's keys")
get_act_patch_attn_head_v_by_pos = _sweep("v", _by_pos, _POS_HEAD, "each key/value head's values")
get_act_patch_attn_head_out_all_pos = _sweep("z", _by_head, _HEAD, "each head at all positions")
get_act_patch_attn_head_q_all_pos = _sweep("q", _by_head, _HEAD, "each head's queries everywhere")
get_act_patch_attn_head_k_all_pos = _sweep("k", _by_head, _HEAD, "each head's keys everywhere")
get_act_patch_attn_head_v_all_pos = _sweep("v", _by_head, _HEAD, "each head's values everywhere")
get_act_patch_attn_head_pattern_all_pos = _sweep(
    "pattern", tl.layer_head_pattern_patch_setter, ("layer", "head_index"), "whole patterns"
)
get_act_patch_attn_head_pattern_by_pos = _sweep(
    "pattern",
    tl.layer_head_pos_pattern_patch_setter,
    ("layer", "head_index", "dest_pos"),
    "each pattern's rows",
)
get_act_patch_attn_head_pattern_dest_src_pos = _sweep(
    "pattern",
    tl.layer_head_dest_src_pos_pattern_patch_setter,
    ("layer", "head_index", "dest_pos", "src_pos"),
    "each pattern's single weights",
)
