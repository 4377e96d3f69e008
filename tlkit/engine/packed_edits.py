"""Applying edits to a view's activations."""

from typing import Any

import torch
from torch import Tensor

from tlkit.engine.edits import EDGE, Edit, applied
from tlkit.engine.lanes import View
from tlkit.engine.record import Run
from tlkit.engine.sources import Sources


class Editor:
    """Edits activations of packed rows, in place."""

    def __init__(self, base: Run, sources: Sources) -> None:
        self.base, self.sources = base, sources

    def edit_scores(self, scores: Tensor, view: View) -> None:
        """Patch scores, or cut them, ``[lane, head, column, key]``, in place."""
        for index, edit in view.edits.get("attn_scores", ()):
            self._edit_edges(scores, view, index, edit)
        for index, edit in view.edits.get(EDGE, ()):
            if edit.intervention.factor is None:  # type: ignore[union-attr]
                scores[_edge_index(view, index, edit, scores)] = -torch.inf

    def edit_pattern(self, pattern: Tensor, view: View) -> None:
        """Scale or patch attention weights, ``[lane, head, column, key]``, in place."""
        for index, edit in view.edits.get(EDGE, ()):
            factor = edit.intervention.factor  # type: ignore[union-attr]
            if factor is not None:
                pattern[_edge_index(view, index, edit, pattern)] *= factor
        for index, edit in view.edits.get("pattern", ()):
            self._edit_edges(pattern, view, index, edit)

    def _edit_edges(self, weights: Tensor, view: View, index: int, edit: Edit) -> None:
        where = _edge_index(view, index, edit, weights)
        edited = self.edited(edit, view.lanes[index].example, weights[where])
        # What a query may not see stays unseen.
        seen = self.base.visible[edit.layer][list(edit.positions)][:, list(edit.keys)]
        weights[where] = torch.where(seen, edited.to(weights.dtype), weights[where])

    def edit_rows(self, component: str, value: Tensor, view: View) -> None:
        """Apply a component's edits to its activation, ``[row, ...]``, in place."""
        for index, edit in view.edits.get(component, ()):
            rows = view.at(index, edit.positions)
            kept = value[rows] if edit.head is None else value[rows, edit.head]
            edited = self.edited(edit, view.lanes[index].example, kept)
            if edit.head is None:
                value[rows] = edited
            else:
                value[rows, edit.head] = edited

    def edited(self, edit: Edit, example: int, act: Tensor) -> Tensor:
        """What an edit makes of an activation (see `applied`)."""
        return applied(edit, act, self.sources.get(edit, example))


def _edge_index(view: View, index: int, edit: Edit, weights: Tensor) -> tuple[Any, ...]:
    """Indices of an edit's heads, queries and keys in ``[lane, head, column, key]``."""
    columns = view.columns(index, edit.positions)
    if isinstance(columns, slice):
        columns = torch.arange(columns.start, columns.stop, device=weights.device)
    keys = torch.tensor(edit.keys, device=weights.device)
    if edit.head is not None:
        return (index, edit.head, columns[:, None], keys[None])
    heads = range(weights.shape[1]) if edit.heads is None else edit.heads
    chosen = torch.tensor(list(heads), device=weights.device)
    return (index, chosen[:, None, None], columns[None, :, None], keys[None, None])
