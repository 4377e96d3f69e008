"""The slow twin: one hooked forward pass per condition and example, batch 1, no tricks.

It runs the TransformerLens bridge with plain hooks and shares no attention, packing or readout
code with the packed engine, so that either can be held against the other.
"""

from collections.abc import Iterable
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
    found = [_seen(parts, row, places, {}) for row in ids]
    return {place: [one[place] for one in found] for place in places}


def _seen(
    parts: Parts, ids: list[int], places: Iterable[Place], hooks: dict[str, list[Any]]
) -> dict[Place, Tensor]:
    """Activations ``[pos, ...]`` of one sequence under hooks, as the hooks leave them."""
    seen: dict[str, Tensor] = {}

    def keep(value: Tensor, hook: Any) -> None:
        seen[hook.requested] = value[0].detach().clone()

    needed: dict[Place, list[str]] = {}
    for component, layer in places:
        refuse(parts, component)
        sums = ("resid_pre", "attn_out") if component == "resid_mid" else (component,)
        needed[component, layer] = [hook_name(one, layer) for one in sums]
    names = {name for several in needed.values() for name in several}
    both = {name: [*hooks.get(name, []), *([keep] if name in names else [])]
            for name in [*hooks, *(names - set(hooks))]}  # fmt: skip
    _run(parts, ids, both)
    return {
        place: _headed(parts, place[0], torch.stack([seen[name] for name in several]).sum(0))
        for place, several in needed.items()
    }


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
        return _run(self.parts, ids, self._hooks(ids, edits, example))

    def sites(
        self, ids: list[int], edits: tuple[Edit, ...], example: int, places: Iterable[Place]
    ) -> dict[Place, Tensor]:
        """Activations ``[pos, ...]`` of one sequence, as the edits leave them."""
        return _seen(self.parts, ids, places, self._hooks(ids, edits, example))

    def _hooks(self, ids: list[int], edits: tuple[Edit, ...], example: int) -> dict[str, list[Any]]:
        """What makes the edits, by hook point."""
        hooks: dict[str, list[Any]] = {}
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
            factor = [getattr(edit.intervention, "factor", 0.0) is not None for edit in edits]
            order = sorted(range(len(edits)), key=lambda i: (edits[i].component != EDGE, factor[i]))
            for edit in (edits[i] for i in order):  # cuts of scores, then factors, then patches
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
