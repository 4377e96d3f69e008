"""The slow twin: one hooked forward pass per condition and example, batch 1, no tricks.

It runs the TransformerLens bridge with plain hooks and shares no attention, packing or readout
code with the packed engine, so that either can be held against the other.
"""

from typing import Any

import torch
from torch import Tensor

from tlkit.engine.edits import EDGE, Edit
from tlkit.engine.sources import Captured, Place, Sources
from tlkit.errors import EngineError, SpecError
from tlkit.models.bridge import Parts
from tlkit.spec.sites import EDGES

_INSIDE_ATTENTION = ("z", "q", "k", "v", "pattern", "attn_scores")


def hook_name(component: str, layer: int) -> str:
    """TransformerLens's name of a site."""
    if component == "embed":
        return "embed.hook_out"
    if component in _INSIDE_ATTENTION:
        return f"blocks.{layer}.attn.hook_{component}"
    if component in ("mlp_pre", "mlp_post"):
        return f"blocks.{layer}.mlp.hook_{component[4:]}"
    return f"blocks.{layer}.hook_{component}"


def capture(parts: Parts, ids: list[list[int]], places: set[Place]) -> Captured:
    """Activations per place, one tensor per example, each example run alone."""
    for component, _ in places:
        refuse(parts, component)
    captured: Captured = {place: [] for place in places}
    for row in ids:
        seen: dict[str, Tensor] = {}
        names = {hook_name(c, layer) for c, layer in places if c != "resid_mid"}
        for component, layer in places:
            if component == "resid_mid":
                names |= {hook_name("resid_pre", layer), hook_name("attn_out", layer)}

        def keep(value: Tensor, hook: Any, seen: dict[str, Tensor] = seen) -> None:
            seen[hook.requested] = value[0].detach().clone()

        _run(parts, row, {name: [keep] for name in names})
        for component, layer in places:
            if component == "resid_mid":
                value = seen[hook_name("resid_pre", layer)] + seen[hook_name("attn_out", layer)]
            else:
                value = seen[hook_name(component, layer)]
            captured[component, layer].append(_headed(parts, component, value))
    return captured


def _headed(parts: Parts, component: str, value: Tensor) -> Tensor:
    """q, k, v and z with their axis of heads."""
    if component in ("q", "z", "k", "v") and value.ndim == 2:
        heads = parts.n_kv_heads if component in ("k", "v") else parts.n_heads
        return value.unflatten(-1, (heads, -1))
    return value


def refuse(parts: Parts, component: str) -> None:
    """Refuse a site that this model does not have.

    Raises:
        SpecError: With the reason.
    """
    reason = parts.unsupported(component)
    if reason:
        raise SpecError(f"{parts.name} has no site {component!r}: {reason}.")


class _Requested:
    """A hook point with the name by which it was asked for (aliases resolve to other names)."""

    def __init__(self, requested: str) -> None:
        self.requested = requested


def _run(parts: Parts, ids: list[int], hooks: dict[str, list[Any]]) -> Tensor:
    """Logits ``[pos, vocab]`` of one sequence under hooks, all of which must fire."""
    fired: set[str] = set()

    def wrapped(name: str, functions: list[Any]) -> Any:
        def hook(value: Tensor, hook: Any) -> Tensor:
            fired.add(name)
            for function in functions:
                changed = function(value, _Requested(name))
                value = value if changed is None else changed
            return value

        return hook

    tokens = torch.tensor(ids, device=parts.device)[None]
    with torch.no_grad():
        logits = parts.bridge.run_with_hooks(
            tokens, fwd_hooks=[(name, wrapped(name, some)) for name, some in hooks.items()]
        )
    silent = sorted(set(hooks) - fired)
    if silent:
        raise EngineError(f"{parts.name}: the hook {silent[0]} never fired, so nothing was done.")
    return logits[0].float()


class Reference:
    """Runs one condition on one example with hooks."""

    def __init__(self, parts: Parts, sources: Sources) -> None:
        self.parts, self.sources = parts, sources

    def logits(self, ids: list[int], edits: tuple[Edit, ...], example: int) -> Tensor:
        """Logits ``[pos, vocab]``, float32, of one sequence under edits."""
        hooks: dict[str, list[Any]] = {}
        late: dict[int, tuple[list[Edit], list[Edit]]] = {}
        for edit in edits:
            if edit.component in (EDGE, "pattern"):
                late.setdefault(edit.layer, ([], []))[0].append(edit)
            elif edit.component == "z":
                late.setdefault(edit.layer, ([], []))[1].append(edit)
            elif edit.component == "resid_mid":
                self._add_middle(hooks, edit, example)
            else:
                self._add(hooks, edit, example)
        for layer, (weights, mixed) in sorted(late.items()):
            if weights:
                self._add_patterns(hooks, layer, weights, example, ids)
            for edit in mixed:
                self._add(hooks, edit, example)
        return _run(self.parts, ids, hooks)

    def _add(self, hooks: dict[str, list[Any]], edit: Edit, example: int) -> None:
        refuse(self.parts, edit.component)
        name = hook_name(edit.component, edit.layer)
        hooks.setdefault(name, []).append(self._writer(edit, example))

    def _writer(self, edit: Edit, example: int) -> Any:
        def write(value: Tensor, hook: Any) -> Tensor:
            new = value.clone()
            rows = _headed(self.parts, edit.component, new[0])
            if edit.component in EDGES:
                self._patch_edges(rows, edit, example)
            else:
                where: Any = list(edit.positions)
                kept = rows[where] if edit.head is None else rows[where, edit.head]
                edited = self._edited(edit, example, kept)
                if edit.head is None:
                    rows[where] = edited
                else:
                    rows[where, edit.head] = edited
            return new

        return write

    def _edited(self, edit: Edit, example: int, act: Tensor) -> Tensor:
        source = self.sources.get(edit, example)
        return edit.intervention.edit(act, source).to(act.dtype)  # type: ignore[union-attr]

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
        self, hooks: dict[str, list[Any]], layer: int, edits: list[Edit], example: int,
        ids: list[int],
    ) -> None:  # fmt: skip
        """Write a layer's pattern, or, where that has no effect, z = new pattern times v.

        Families whose pattern is read-only show it only after z, so it comes from a pass of its
        own, under the edits of the layers below.
        """

        def change(weights: Tensor) -> Tensor:
            # Cuts come before patches, as scores come before weights.
            for edit in sorted(edits, key=lambda one: one.component != EDGE):
                if edit.component == EDGE:
                    self._cut_edges(weights, edit)
                else:
                    self._patch_edges(weights, edit, example)
            return weights

        def write(value: Tensor, hook: Any) -> Tensor:
            return change(value[0].clone())[None]

        name = hook_name("pattern", layer)
        if self.parts.writable_patterns:
            hooks.setdefault(name, []).append(write)
            return
        state: dict[str, Tensor] = {}

        def keep(value: Tensor, hook: Any) -> None:
            state[hook.requested] = value[0].clone()

        _run(self.parts, ids, {**hooks, name: [keep]})
        weights = change(state[name])

        def write_z(value: Tensor, hook: Any) -> Tensor:
            v = _headed(self.parts, "v", state[hook_name("v", layer)])
            v = v.repeat_interleave(self.parts.n_heads // self.parts.n_kv_heads, dim=1)
            return torch.einsum("hqk,khd->qhd", weights, v).reshape(value.shape)

        hooks.setdefault(hook_name("v", layer), []).append(keep)
        hooks.setdefault(hook_name("z", layer), []).append(write_z)

    def _add_middle(self, hooks: dict[str, list[Any]], edit: Edit, example: int) -> None:
        """Move the stream between attention and MLP by changing what attention adds to it."""
        refuse(self.parts, "resid_mid")
        state: dict[str, Tensor] = {}

        def keep(value: Tensor, hook: Any) -> None:
            state["stream"] = value.clone()

        def write(value: Tensor, hook: Any) -> Tensor:
            middle = (value + state["stream"])[0]
            where = list(edit.positions)
            middle[where] = self._edited(edit, example, middle[where])
            return middle[None] - state["stream"]

        hooks.setdefault(hook_name("resid_pre", edit.layer), []).append(keep)
        hooks.setdefault(hook_name("attn_out", edit.layer), []).append(write)
