"""Attention of packed rows: each lane on the base run's keys before it and on its own."""

import torch
from torch import Tensor

from tlkit.engine.edits import EDGE
from tlkit.engine.lanes import View
from tlkit.engine.packed_edits import Editor
from tlkit.engine.record import Run
from tlkit.engine.seam import grouped_scores, mixed_values


def attention(
    view: View, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float,
    softcap: float | None, base: Run, editor: Editor,
) -> Tensor:  # fmt: skip
    """Z of a view's rows ``[row, head, d_head]``, with the layer's edits.

    Args:
        view: How the rows are laid out.
        layer: The layer.
        q: ``[1, head, row, d_head]``, after rotary and norms.
        k: ``[1, kv_head, row, d_head]``.
        v: The same.
        scale: What scores are multiplied by.
        softcap: Cap on scores, if the model has one.
        base: The base run, whose keys and values stand before each lane.
        editor: Applies edits.
    """
    queries = _laid_out(q[0].transpose(0, 1), view)
    keys = base.keys[layer][view.example, : view.keys]
    values = base.values[layer][view.example, : view.keys]
    if view.own:
        keys[view.lane, view.position] = k[0].transpose(0, 1)
        values[view.lane, view.position] = v[0].transpose(0, 1)
    scores = grouped_scores(queries, keys.transpose(1, 2), scale, softcap)
    scores += _bias(view, layer, scores.dtype, base)
    editor.edit_scores(scores, view)
    pattern = scores.softmax(-1, dtype=torch.float32)
    if "attn_scores" in view.edits or EDGE in view.edits:
        # A query with no key left attends to nothing; NaN of the model's own stays NaN.
        pattern = pattern.masked_fill(scores.isneginf().all(-1, keepdim=True), 0.0)
    editor.edit_pattern(pattern, view)
    z = mixed_values(pattern.to(values.dtype), values.transpose(1, 2))
    z = z[view.lane, view.column]
    editor.edit_rows("z", z, view)
    return z


def _laid_out(rows: Tensor, view: View) -> Tensor:
    """Rows ``[row, head, d_head]`` as ``[lane, head, column, d_head]``."""
    if len(rows) == len(view.lanes) * view.width:
        return rows.reshape(len(view.lanes), view.width, *rows.shape[1:]).transpose(1, 2)
    laid = rows.new_zeros(len(view.lanes), view.width, *rows.shape[1:])
    laid[view.lane, view.column] = rows
    return laid.transpose(1, 2)


def _bias(view: View, layer: int, dtype: torch.dtype, base: Run) -> Tensor:
    """0 where a query sees a key, minus infinity elsewhere, ``[lane, 1, column, key]``."""
    visible = base.visible[layer]
    if id(visible) not in view.biases:
        seen = visible[view.queries][..., : view.keys]
        bias = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
        view.biases[id(visible)] = bias.masked_fill_(~seen, -torch.inf)[:, None]
    return view.biases[id(visible)]
