"""Conditions worked out for one example: which activations change, where, into what."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import Tensor

from tlkit.engine.sequences import Sequences
from tlkit.errors import EngineError, SpecError
from tlkit.spec.attention import EdgeIntervention
from tlkit.spec.interventions import Intervention, Patch, Skip
from tlkit.spec.sites import EDGES, Positions, Site, positions
from tlkit.spec.sweeps import AnyIntervention, Condition

EDGE = "edges"
NOWHERE = sys.maxsize
SPREADING = ("embed", "resid_pre", "k", "v")
"""Sites whose edit at one position reaches later positions within the same block."""


@dataclass(frozen=True, eq=False)
class Edit:
    """One intervention at one layer of one example.

    ``positions`` are query positions for patterns, scores and edges. ``sources`` are the
    positions to read in the source run. ``reached``: from this position on, another edit of the
    condition may change what stands here, so that token ids prove nothing about it.
    """

    intervention: AnyIntervention
    component: str
    layer: int
    positions: tuple[int, ...]
    keys: tuple[int, ...] = ()
    heads: tuple[int, ...] | None = None
    head: int | None = None
    run: str | None = None
    sources: tuple[int, ...] = ()
    reached: int = NOWHERE

    @property
    def spreading(self) -> bool:
        """Whether other positions change in the same block."""
        return self.component in SPREADING


Status = Literal["run", "free", "missing"]


@dataclass(frozen=True, eq=False)
class Worked:
    """A condition's edits on one example.

    ``free``: it provably changes nothing; ``missing``: the example lacks the position, span or
    aligned token that it asks for, so its value is NaN.
    """

    edits: tuple[Edit, ...]
    status: Status


class Compiler:
    """Turns conditions into edits for a model of given size."""

    def __init__(
        self, sequences: Sequences, n_layers: int, n_heads: int, n_kv_heads: int, *,
        trusting: bool = True,
    ) -> None:  # fmt: skip
        self.sequences = sequences
        self.trusting = trusting  # whether token ids may prove that nothing changes
        self.n_layers = n_layers
        self.heads = {"k": n_kv_heads, "v": n_kv_heads}
        self.n_heads = n_heads

    def work_out(self, condition: Condition, example: int) -> Worked:
        """The edits of a condition on one example.

        Raises:
            SpecError: A layer, head, span or run does not exist.
        """
        if len(condition.interventions) == 1 and self._is_early(
            condition.interventions[0], example
        ):
            return Worked((), "free")
        edits: list[Edit] = []
        for one in condition.interventions:
            found = self._edits(one, example)
            if found is None:
                return Worked((), "missing")
            edits += found
        if len(edits) > 1:
            edits = self._with_reach(edits, example)
        live = [edit for edit in edits if not self._is_noop(edit, example)]
        return Worked(tuple(live), "run" if live else "free")

    def _is_early(self, one: AnyIntervention, example: int) -> bool:
        """Whether this patches one position left of the first difference (most cells do)."""
        if type(one) is not Patch or not self.trusting:
            return False
        sequences, site, pos = self.sequences, one.site, one.site.pos
        if not isinstance(pos, int):
            return False
        sequences.require(one.source)
        if site.component != "embed":
            self._layers(site)
        if site.head is not None:
            self._check(site.head, self.heads.get(site.component, self.n_heads), "head", site)
        return 0 <= pos < sequences.first_difference[example]

    def _edits(self, one: AnyIntervention, example: int) -> list[Edit] | None:
        if isinstance(one, EdgeIntervention):
            return self._edge_edits(one, example)
        if isinstance(one, Skip):
            parts = [self._edits(part, example) for part in one.parts()]
            return None if None in parts else [edit for part in parts for edit in part or []]
        return self._site_edits(one, example)

    def _edge_edits(self, one: EdgeIntervention, example: int) -> list[Edit] | None:
        run = self.sequences.base
        prompt = self.sequences.prompt_length(run, example)
        length = self.sequences.length(run, example)
        queries, keys = one.edges(prompt, length, self.sequences.spans(run), example)
        if not keys:
            return None
        heads = one.heads if one.heads is None else _tuple(one.heads)
        for head in heads or ():
            self._check(head, self.n_heads, "head", one)
        layers = range(self.n_layers) if one.layers is None else _tuple(one.layers)
        for layer in layers:
            self._check(layer, self.n_layers, "layer", one)
        if not queries:
            return []
        return [Edit(one, EDGE, layer, queries, keys, heads) for layer in layers]

    def _site_edits(self, one: Intervention, example: int) -> list[Edit] | None:
        site = one.site
        where = self._positions(site.query if site.component in EDGES else site.pos, example)
        keys = self._positions(site.key, example) if site.component in EDGES else ()
        if not where or (site.component in EDGES and not keys):
            return None
        if site.head is not None:
            self._check(site.head, self.heads.get(site.component, self.n_heads), "head", site)
        run = getattr(one, "source", None) if one.needs == "run" else None
        sources: tuple[int, ...] = where
        if run is not None:
            self.sequences.require(run)
            pairs = [(p, self.sequences.source_position(run, example, p)) for p in where]
            mapped = [(p, s) for p, s in pairs if s >= 0]
            if not mapped:
                return None
            if site.component in EDGES and mapped != [(p, p) for p in where]:
                raise SpecError(
                    f"Patching {site.component} needs pairs of equal length; example {example} "
                    f"is aligned with gaps or shifts."
                )
            where, sources = (tuple(column) for column in zip(*mapped, strict=True))
        layers = [0] if site.component == "embed" else self._layers(site)
        return [
            Edit(one, site.component, layer, where, keys, None, site.head, run, sources)
            for layer in layers
        ]

    def _layers(self, site: Site) -> list[int]:
        if site.layer is None:
            return list(range(self.n_layers))
        self._check(site.layer, self.n_layers, "layer", site)
        return [site.layer]

    def _positions(self, wanted: Positions, example: int) -> tuple[int, ...]:
        base = self.sequences.base
        prompt = self.sequences.prompt_length(base, example)
        if wanted is None:
            return tuple(range(self.sequences.length(base, example)))
        return positions(wanted, prompt, self.sequences.spans(base), example)

    @staticmethod
    def _check(index: int, size: int, what: str, asked: Any) -> None:
        if not 0 <= index < size:
            raise SpecError(f"{asked}: this model has {what}s 0 to {size - 1}.")

    def _with_reach(self, edits: Sequence[Edit], example: int) -> list[Edit]:
        """The edits, each with the first position at which another one may change it."""
        prefix = self.sequences.first_difference[example]
        starts: list[tuple[Edit, int]] = []
        for edit in edits:
            if not self._is_noop(edit, example):
                begin = prefix if _puts_back(edit) else 0
                starts.append((edit, min(p for p in edit.positions if p >= begin)))
        return [
            replace(edit, reached=min(
                (start for other, start in starts
                 if other is not edit and other.layer <= edit.layer), default=NOWHERE,
            ))
            for edit in edits
        ]  # fmt: skip

    def _is_noop(self, edit: Edit, example: int) -> bool:
        """Whether token ids alone prove that a patch puts back what is there (never floats)."""
        if not self.trusting or not _puts_back(edit) or max(edit.positions) >= edit.reached:
            return False
        if edit.run == self.sequences.base:
            return True
        prefix = self.sequences.first_difference[example]
        if all(p < prefix for p in edit.positions):
            return True
        run = edit.run
        if run is None or edit.layer > 0 or edit.component not in (*SPREADING, "q"):
            return False
        return all(self.sequences.same_token(run, example, p) for p in edit.positions)


def _puts_back(edit: Edit) -> bool:
    """Whether an edit puts another run's activation in as it is; a user's own may do anything."""
    return edit.run is not None and type(edit.intervention).edit is Patch.edit  # type: ignore[union-attr]


def applied(edit: Edit, act: Tensor, source: Tensor | None) -> Tensor:
    """What an edit makes of an activation, in its type.

    Raises:
        EngineError: The intervention returned another shape.
    """
    edited = edit.intervention.edit(act, source)  # type: ignore[union-attr]
    if not isinstance(edited, Tensor):
        raise EngineError(
            f"{type(edit.intervention).__name__}.edit returned {edited!r}; it must return the "
            f"activation that stands in place of what it got."
        )
    if edited.shape != act.shape:
        raise EngineError(
            f"{type(edit.intervention).__name__}.edit returned {tuple(edited.shape)} for an "
            f"activation of {tuple(act.shape)} at {edit.component} of layer {edit.layer}."
        )
    return edited.to(act.dtype)


def narrowed(edit: Edit, sequences: Sequences, example: int) -> Edit:
    """A patch without the leading positions where both runs are the same."""
    if not _puts_back(edit) or edit.run == sequences.base:
        return edit
    prefix = min(sequences.first_difference[example], edit.reached)
    kept = [(p, s) for p, s in zip(edit.positions, edit.sources, strict=True) if p >= prefix]
    where, sources = (tuple(column) for column in zip(*kept, strict=True))
    return Edit(
        edit.intervention, edit.component, edit.layer, where, edit.keys, edit.heads, edit.head,
        edit.run, sources, edit.reached,
    )  # fmt: skip


def _tuple(several: Any) -> tuple[int, ...]:
    return (several,) if isinstance(several, int) else tuple(several)
