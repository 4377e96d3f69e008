"""One cell after another on prompts that stay: base and source runs are made once and kept."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from tlkit.engine.edits import Compiler
from tlkit.engine.packed_group import PackedGroup
from tlkit.engine.packed_values import CHUNK, GROUP_ROWS
from tlkit.engine.readout import Reading
from tlkit.engine.refusals import check_prompts, check_sites
from tlkit.engine.route import route_of
from tlkit.engine.sequences import Sequences
from tlkit.engine.sources import Captured, Place
from tlkit.engine.values import Job
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.spec.callables import as_metrics
from tlkit.spec.sweeps import AnyIntervention, Condition


class _Kept(PackedGroup):
    """A group that keeps the activations it has captured, of all layers at once."""

    def _capture(self, ids: list[list[int]], places: set[Place]) -> Captured:
        if not places:
            return super()._capture(ids, places)
        kept: dict[Any, Captured] = self.__dict__.setdefault("_kept", {})
        which = tuple(map(tuple, ids))
        missing = {component for component, layer in places if (which, component) not in kept}
        if missing:
            wanted = {(c, layer) for c in missing for layer in range(self.parts.n_layers)}
            found = super()._capture(ids, wanted)
            for component in missing:
                kept[which, component] = {
                    place: value for place, value in found.items() if place[0] == component
                }
        return {place: kept[which, place[0]][place] for place in places}


class Session:
    """Measures single conditions on fixed prompts, fast enough to click through them.

    Args:
        model: A loaded model that the packed engine serves.
        prompts: `tk.Prompts`.
        metrics: As for `tk.run`.
        on: The run that is changed (see `tk.run`).

    Raises:
        SpecError: The packed engine does not serve this model, or the prompts do not fit it.
    """

    def __init__(
        self,
        model: Any,
        prompts: Any,
        metrics: Any,
        on: Literal["clean", "corrupted"] | None = None,
    ) -> None:
        check_prompts(model, prompts)
        parts = Parts(model)
        route = route_of(parts)
        if not route.packed:
            raise SpecError(f"A session needs the packed engine: {route.reason}.")
        self.metrics = as_metrics(metrics)
        base = on or ("corrupted" if prompts.corrupted is not None else "clean")
        forced = any(getattr(metric, "teacher_forced", False) for metric in self.metrics)
        self.sequences = Sequences(prompts, base, forced)
        self.sequences.require(base)
        readings = [Reading(m, self.sequences, base, parts.device) for m in self.metrics]
        self._group = _Kept(parts, self.sequences, readings, range(len(prompts)))
        self._compiler = Compiler(self.sequences, parts.n_layers, parts.n_heads, parts.n_kv_heads)

    def baseline(self, run: Literal["clean", "corrupted"] | None = None) -> np.ndarray:
        """Values of an unchanged run (the one that is changed, if None): ``[metric, example]``."""
        return self._group.baseline(run or self.sequences.base)

    def values(self, interventions: Sequence[AnyIntervention]) -> np.ndarray:
        """Values under interventions: ``[metric, example]``; NaN where an example lacks them."""
        return self.several([interventions])[0]

    def idle(self, interventions: Sequence[AnyIntervention]) -> bool:
        """Whether token ids prove that interventions change nothing on any example."""
        condition = Condition("asked", tuple(interventions))
        examples = range(len(self.sequences.prompts))
        return all(self._compiler.work_out(condition, i).status == "free" for i in examples)

    def several(self, cells: Sequence[Sequence[AnyIntervention]]) -> np.ndarray:
        """Values under each of several sets of interventions: ``[cell, metric, example]``."""
        out = np.repeat(self.baseline()[None], len(cells), axis=0)
        count, jobs = len(self.sequences.prompts), []
        for cell, interventions in enumerate(cells):
            condition = Condition("asked", tuple(interventions))
            for example in range(count):
                worked = self._compiler.work_out(condition, example)
                check_sites(self._group.parts, [worked])
                if worked.status == "missing":
                    out[cell, :, example] = np.nan
                elif worked.status == "run":
                    jobs.append((cell * count + example, Job(cell, example, worked)))

        def finished(numbers: Sequence[int], values: np.ndarray) -> None:
            for number, own in zip(numbers, values.T, strict=True):
                out[number // count, :, number % count] = own

        if jobs:
            self._group.run(jobs, finished, CHUNK, GROUP_ROWS, lambda count: None)
        return out
