"""Rows of indices as cells: which activations change, and into what."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
import torch
import transformer_lens.patching as tl
from torch import Tensor
from transformer_lens.utilities.components_utils import get_act_name

from tlkit.engine.edits import Compiler, Edit, Worked
from tlkit.engine.reference import hook_name
from tlkit.engine.sequences import Sequences
from tlkit.engine.sources import Captured, Place
from tlkit.engine.values import Job
from tlkit.errors import EngineError, SpecError
from tlkit.spec.interventions import Intervention, Patch
from tlkit.spec.sites import COMPONENTS, EDGES, HEADS, NEURONS, STREAM, Site
from tlkit.spec.sweeps import Condition
from tlkit.studies.act_patch_inputs import Inputs

SETTERS: dict[Any, tuple[tuple[str, ...], tuple[str, ...]]] = {
    tl.layer_pos_patch_setter: ((*STREAM, *HEADS, *NEURONS), ("pos",)),
    tl.layer_pos_head_vector_patch_setter: (HEADS, ("pos", "head")),
    tl.layer_head_vector_patch_setter: (HEADS, ("head",)),
    tl.layer_head_pattern_patch_setter: (("pattern",), ("head",)),
    tl.layer_head_pos_pattern_patch_setter: (("pattern",), ("head", "query")),
    tl.layer_head_dest_src_pos_pattern_patch_setter: (("pattern",), ("head", "query", "key")),
}
"""TransformerLens's setters: the sites that each makes sense for, and what its indices narrow."""


@dataclass(frozen=True, eq=False)
class Put(Intervention):
    """Put in an activation that is at hand."""

    activation: Any = None

    def edit(self, act: Tensor, source: Tensor | None) -> Tensor:
        """The activation."""
        return self.activation


@dataclass(frozen=True, eq=False)
class Rows:
    """Cells of one sweep.

    Attributes:
        setter: What is done to the activation (TransformerLens's ``patch_setter``).
        activation: Its short name.
        frame: One row of indices a cell, the layer first.
    """

    setter: Any
    activation: str
    frame: pd.DataFrame

    @cached_property
    def indices(self) -> list[list[int]]:
        """The rows as lists."""
        return self.frame.to_numpy().tolist()

    @property
    def component(self) -> str | None:
        """Our name of the activation; None for one that the packed engine does not edit."""
        name = get_act_name(self.activation, 0)
        known = (c for c in COMPONENTS if c not in ("embed", "attn_scores"))
        return next((c for c in known if hook_name(c, 0) == name), None)

    @property
    def places(self) -> set[Place]:
        """The sites that it reads of the clean run."""
        return {(self.component or "", int(row[0])) for row in self.indices}


def jobs_of(several: Sequence[Rows], inputs: Inputs) -> tuple[list[Job], Sequences]:
    """What must be run, cells counted through all sweeps, and the token sequences."""
    places = {place for rows in several for place in rows.places}
    sequences = Sequences(inputs.prompts(places), "corrupted")
    parts = inputs.parts
    compiler = Compiler(sequences, parts.n_layers, parts.n_heads, parts.n_kv_heads)
    jobs: list[Job] = []
    cell = 0
    for rows in several:
        component, fields = rows.component or "", SETTERS.get(rows.setter, ((), ()))
        own = None if component in fields[0] else _Set(rows, inputs)
        for index in rows.indices:
            for example in range(inputs.batch):
                if own is None:
                    site = _site(component, fields[1], index, inputs)
                    worked = compiler.work_out(Condition("", (Patch(site),)), example)
                else:
                    worked = own.work_out(index, example)
                if worked.status == "run" and not _unseen(worked):
                    jobs.append(Job(cell, example, worked))
            cell += 1
    return jobs, sequences


def _site(component: str, fields: Sequence[str], index: Sequence[int], inputs: Inputs) -> Site:
    """The site that a row of indices means.

    Raises:
        SpecError: An index is out of range, or there are too many or too few.
    """
    named = ("layer", *fields)
    if len(index) != len(named):
        raise SpecError(f"This patch setter takes {', '.join(named)}; got the row {list(index)}.")
    parts = inputs.parts
    heads = parts.n_kv_heads if component in ("k", "v") else parts.n_heads
    sizes = {"layer": parts.n_layers, "head": heads}
    found = {}
    for name, value in zip(named, index, strict=True):
        size = sizes.get(name, inputs.length)
        if not -size <= value < size:
            raise SpecError(f"There is no {name} {value} in {component}; there are {size}.")
        found[name] = int(value) % size
    return Site(component, **found)


def _unseen(worked: Worked) -> bool:
    """Whether it writes only weights of keys behind their queries, which are 0 in every run."""
    return all(
        edit.component in EDGES and min(edit.keys) > max(edit.positions) for edit in worked.edits
    )


class _Set:
    """A user's own setter: it is asked what it makes of the base run's activation."""

    def __init__(self, rows: Rows, inputs: Inputs) -> None:
        self.rows, self.inputs = rows, inputs
        self.base: Captured = inputs.own(rows.places)
        self._last: tuple[Sequence[int], Tensor, Tensor] | None = None

    def work_out(self, index: Sequence[int], example: int) -> Worked:
        """What changes in one example."""
        before, after = self._applied(index)
        changed = (before[example] != after[example]).flatten(1)
        component, layer = self.rows.component or "", int(index[0])
        keys: tuple[int, ...] = ()
        put = after[example]
        if component in EDGES:
            differs = before[example] != after[example]
            if bool(differs.triu(1).any()):
                raise EngineError("A patch setter lets queries attend to keys behind them.")
            changed = differs.any(0)
            keys = tuple(range(self.inputs.length))
        where = changed.any(-1).nonzero()[:, 0].tolist()
        if not where:
            return Worked((), "free")
        put = put[:, where] if component in EDGES else put[where]
        one = Put(Site(component, layer=layer), put)
        return Worked((Edit(one, component, layer, tuple(where), keys),), "run")

    def _applied(self, index: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The activation before and after, kept while one cell's examples are asked for."""
        if self._last is None or self._last[0] is not index:
            before = self.base[self.rows.component or "", int(index[0])]
            clean = self.inputs.read(get_act_name(self.rows.activation, int(index[0])))
            with torch.no_grad():
                after = self.rows.setter(before.clone(), list(index), clean.to(before.device))
            if not isinstance(after, Tensor) or after.shape != before.shape:
                raise SpecError(
                    f"The patch setter must return the activation, {tuple(before.shape)}; got "
                    f"{tuple(after.shape) if isinstance(after, Tensor) else type(after).__name__}."
                )
            self._last = (index, before, after)
        return self._last[1], self._last[2]
