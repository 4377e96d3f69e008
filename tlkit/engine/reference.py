"""The slow twin: one hooked forward pass per condition and example, batch 1, no tricks.

It runs the TransformerLens bridge with plain hooks and shares no attention, packing or readout
code with the packed engine, so that either can be held against the other.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tlkit.engine.edits import EDGE, Edit, applied
from tlkit.engine.hooked import (
    Hooks,
    capture,
    headed,
    hook_name,
    keep_value,
    refuse,
    run_hooked,
    seen_sites,
)
from tlkit.engine.sources import Place, Sources
from tlkit.models.bridge import Parts
from tlkit.spec.sites import EDGES

__all__ = ["Reference", "capture", "hook_name", "refuse"]


class Reference:
    """Runs one condition on one example with hooks."""

    def __init__(self, parts: Parts, sources: Sources) -> None:
        self.parts, self.sources = parts, sources

    def logits(self, ids: list[int], edits: tuple[Edit, ...], example: int) -> Tensor:
        """Logits ``[pos, vocab]``, float32, of one sequence under edits."""
        return run_hooked(self.parts, ids, self._hooks(ids, edits, example))

    def sites(
        self, ids: list[int], edits: tuple[Edit, ...], example: int, places: Iterable[Place]
    ) -> dict[Place, Tensor]:
        """Activations ``[pos, ...]`` of one sequence, as the edits leave them."""
        return seen_sites(self.parts, ids, places, self._hooks(ids, edits, example))

    def patterns(
        self, ids: list[int], edits: tuple[Edit, ...], example: int, layers: Iterable[int]
    ) -> dict[int, Tensor]:
        """Attention weights ``[head, query, key]`` of one sequence, as the edits leave them."""
        sites = self.sites(ids, edits, example, [("pattern", layer) for layer in layers])
        found = {layer: value for (_, layer), value in sites.items()}
        for layer, value in found.items():
            own = [e for e in edits if e.layer == layer and e.component in (EDGE, "pattern")]
            if own and not self.parts.writable_patterns:  # hooks show what was there before
                found[layer] = self._changed(value, own, example)
        return found

    def _hooks(self, ids: list[int], edits: tuple[Edit, ...], example: int) -> Hooks:
        """What makes the edits, by hook point."""
        hooks: Hooks = {}
        late: dict[int, tuple[list[Edit], list[Edit]]] = {}
        for edit in edits:
            if edit.component in (EDGE, "pattern"):
                late.setdefault(edit.layer, ([], []))[0].append(edit)
            elif edit.component == "z":
                late.setdefault(edit.layer, ([], []))[1].append(edit)
            elif edit.component != "resid_mid":
                self._add(hooks, edit, example)
        for edit in edits:  # last, since they read what enters the block and attention's output
            if edit.component == "resid_mid":
                self._add_middle(hooks, edit, example)
        for layer, (weights, mixed) in sorted(late.items()):
            if weights:
                self._add_patterns(hooks, layer, weights, example, ids)
            for edit in mixed:
                self._add(hooks, edit, example)
        return hooks

    def _add(self, hooks: Hooks, edit: Edit, example: int) -> None:
        refuse(self.parts, edit.component)
        name = hook_name(edit.component, edit.layer)
        hooks.setdefault(name, []).append(partial(self._write, edit, example))

    def _write(self, edit: Edit, example: int, value: Tensor, name: str) -> Tensor:
        new = value.clone()
        rows = headed(self.parts, edit.component, new[0])
        if edit.component in EDGES:
            self._patch_edges(rows, edit, example)
            return new
        where: Any = list(edit.positions)
        kept = rows[where] if edit.head is None else rows[where, edit.head]
        edited = self._edited(edit, example, kept)
        if edit.head is None:
            rows[where] = edited
        else:
            rows[where, edit.head] = edited
        return new

    def _edited(self, edit: Edit, example: int, act: Tensor) -> Tensor:
        return applied(edit, act, self.sources.get(edit, example))

    def _cut_edges(self, weights: Tensor, edit: Edit) -> None:
        """Scale or cut edges of a pattern ``[head, query, key]``; cut rows are renormalised."""
        factor = edit.intervention.factor  # type: ignore[union-attr]
        for query in edit.positions:
            seen = [key for key in edit.keys if key <= query]
            for head in range(len(weights)) if edit.heads is None else edit.heads:
                row = weights[head, query]
                row[seen] *= 0.0 if factor is None else factor
                if factor is None:
                    row /= row.sum().clamp_min(torch.finfo(row.dtype).tiny)

    def _patch_edges(self, weights: Tensor, edit: Edit, example: int) -> None:
        where = torch.tensor(edit.positions)[:, None], torch.tensor(edit.keys)[None]
        before = weights[:, where[0], where[1]]
        kept = before if edit.head is None else before[edit.head]
        edited = self._edited(edit, example, kept)
        # A masked weight is 0 in a pattern and the dtype's minimum in scores: it stays.
        unseen = kept == 0 if edit.component == "pattern" else kept < -1e30
        edited = torch.where(unseen, kept, edited)
        if edit.head is None:
            weights[:, where[0], where[1]] = edited
        else:
            weights[edit.head, where[0], where[1]] = edited

    def _add_patterns(
        self, hooks: Hooks, layer: int, edits: list[Edit], example: int, ids: list[int]
    ) -> None:
        """Write a layer's pattern, or, where that has no effect, z = new pattern times v.

        Families whose pattern is read-only show it only after z, so it comes from a pass of its
        own, under the edits of the layers below.
        """
        name = hook_name("pattern", layer)
        if self.parts.writable_patterns:
            hooks.setdefault(name, []).append(partial(self._write_pattern, edits, example))
            return
        state: dict[str, Tensor] = {}
        keep = partial(keep_value, state)
        run_hooked(self.parts, ids, {**hooks, name: [keep]})
        weights = self._changed(state[name], edits, example)
        hooks.setdefault(hook_name("v", layer), []).append(keep)
        mix = partial(self._write_mixed, weights, state, hook_name("v", layer))
        hooks.setdefault(hook_name("z", layer), []).append(mix)

    def _changed(self, weights: Tensor, edits: list[Edit], example: int) -> Tensor:
        """A pattern ``[head, query, key]`` under edits: cuts, then factors, then patches."""
        weights = weights.clone()
        for edit in sorted(edits, key=_moment):
            if edit.component == EDGE:
                self._cut_edges(weights, edit)
            else:
                self._patch_edges(weights, edit, example)
        return weights

    def _write_pattern(self, edits: list[Edit], example: int, value: Tensor, name: str) -> Tensor:
        return self._changed(value[0], edits, example)[None]

    def _write_mixed(
        self, weights: Tensor, state: dict[str, Tensor], values: str, value: Tensor, name: str
    ) -> Tensor:
        v = headed(self.parts, "v", state[values])
        v = v.repeat_interleave(self.parts.n_heads // self.parts.n_kv_heads, dim=1)
        return torch.einsum("hqk,khd->qhd", weights, v).reshape(value.shape)

    def _add_middle(self, hooks: Hooks, edit: Edit, example: int) -> None:
        """Move the stream between attention and MLP by changing what attention adds to it."""
        refuse(self.parts, "resid_mid")
        state: dict[str, Tensor] = {}
        before, after = (hook_name(one, edit.layer) for one in ("resid_pre", "attn_out"))
        hooks.setdefault(before, []).append(partial(keep_value, state))
        move = partial(self._write_middle, edit, example, state, before)
        hooks.setdefault(after, []).append(move)

    def _write_middle(
        self, edit: Edit, example: int, state: dict[str, Tensor], before: str, value: Tensor,
        name: str,
    ) -> Tensor:  # fmt: skip
        stream = state[before]
        middle = value[0] + stream
        where = list(edit.positions)
        middle[where] = self._edited(edit, example, middle[where])
        return (middle - stream)[None]


def _moment(edit: Edit) -> int:
    """Cuts act on scores, factors on the weights after them, patches on what comes of both."""
    if edit.component != EDGE:
        return 2
    return 0 if edit.intervention.factor is None else 1  # type: ignore[union-attr]
