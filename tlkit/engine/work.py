"""A request, checked and worked out for every cell and example."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tlkit.engine.edits import Compiler, Worked
from tlkit.engine.gradient import GradientBackend, refuse_estimates
from tlkit.engine.journal import Journal
from tlkit.engine.packed_values import PackedBackend
from tlkit.engine.reference_values import ReferenceBackend
from tlkit.engine.refusals import check_interventions, check_prompts, check_somewhere
from tlkit.engine.route import route_of
from tlkit.engine.sequences import Sequences
from tlkit.engine.values import Backend, Job, Progress
from tlkit.engine.verified import VerifiedBackend, Verify
from tlkit.models.bridge import Parts
from tlkit.models.streamed import need_memory
from tlkit.results.schema import build, token_coords
from tlkit.results.units import METRIC_UNITS
from tlkit.spec.readout import Metric
from tlkit.spec.sweeps import AnyIntervention, Condition, Sweep


class Work:
    """A request, checked and worked out for every cell and example."""

    def __init__(
        self, model: Any, prompts: Any, sweep: Sweep, metrics: Sequence[Metric], on: str | None
    ) -> None:
        check_prompts(model, prompts)
        self.model, self.parts = model, Parts(model)
        self.attrs: dict[str, Any] = {}
        self.estimated: set[int] = set()
        """Cells whose values are estimates on some example."""
        self.sweep, self.metrics, self.prompts = sweep, metrics, prompts
        base = on or ("corrupted" if prompts.corrupted is not None else "clean")
        forced = any(getattr(metric, "teacher_forced", False) for metric in metrics)
        for metric in metrics:
            metric.vocabulary(prompts)  # says early what the prompts lack
        self.sequences = Sequences(prompts, base, forced)
        self.sequences.require(base)
        self.conditions = sweep.conditions()
        if sweep.given:
            self.conditions = [
                Condition(c.name, (*sweep.given, *c.interventions)) for c in self.conditions
            ]
        compiler = self.compiler()
        examples = range(len(prompts))
        self.worked: list[list[Worked]] = [
            [compiler.work_out(condition, i) for i in examples] for condition in self.conditions
        ]
        given = Condition("given", sweep.given)
        self.given = [compiler.work_out(given, i) for i in examples] if sweep.given else None
        check_interventions(self.parts, self.sequences, self.interventions)
        check_somewhere(self.sequences, self.conditions, self.worked)

    def compiler(self, *, trusting: bool = True) -> Compiler:
        """What works conditions out; one that trusts nothing runs also what changes nothing."""
        parts = self.parts
        return Compiler(
            self.sequences, parts.n_layers, parts.n_heads, parts.n_kv_heads, trusting=trusting
        )

    @property
    def interventions(self) -> list[AnyIntervention]:
        """Every intervention of every cell, the ``given`` ones too."""
        return [one for condition in self.conditions for one in condition.interventions]

    @property
    def free(self) -> int:
        """How many jobs provably change nothing."""
        return sum(w.status == "free" for row in self.worked for w in row)

    def jobs(self) -> list[Job]:
        """What must be run; the ``given`` interventions alone are the last cell."""
        return [
            Job(cell, example, worked)
            for cell, row in enumerate([*self.worked, self.given or []])
            for example, worked in enumerate(row)
            if worked.status == "run"
        ]

    def will_pack(self, engine: str) -> bool:
        """Whether the packed engine is asked for and serves this model."""
        return engine == "packed" and route_of(self.parts).packed

    def backend(
        self, engine: str, budget: int | None, verify: Verify | None = None
    ) -> tuple[Backend, str]:
        """The engine that will do it, and why it is another than was asked for."""
        if engine in ("gradient", "verified"):
            return self._estimating(engine, budget, verify or Verify())
        if self.will_pack(engine):
            return PackedBackend(self.parts, self.sequences, self.metrics, budget=budget), ""
        reason = route_of(self.parts).reason if engine == "packed" else ""
        return ReferenceBackend(self.parts, self.sequences, self.metrics), reason

    def _estimating(self, engine: str, budget: int | None, verify: Verify) -> tuple[Backend, str]:
        need_memory(self.model, "An engine that estimates by gradients", "use engine='packed'")
        refuse_estimates(self.interventions, self.metrics, self.sweep.given)
        exact, reason = self.backend("packed", budget)
        gradient = GradientBackend(
            self.parts, self.sequences, self.metrics, exact, budget=budget
        )  # fmt: skip
        if engine == "gradient":
            return gradient, reason
        present = [sum(worked.status != "missing" for worked in row) for row in self.worked]
        return VerifiedBackend(gradient, exact, self.jobs(), present, verify), reason

    def measure(
        self, backend: Backend, progress: Progress | None, journal: Journal | None = None
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Values ``[metric, cell, example]`` and baselines ``[metric, example]``.

        Jobs that the journal already has are not run again. Where a run is interrupted, what it
        had finished is in the journal.
        """
        jobs = self.jobs()
        done = {} if journal is None else dict(journal.finished)
        todo = [job for job in jobs if (job.cell, job.example) not in done]

        def finished(indices: Sequence[int], values: np.ndarray) -> None:
            where = [(todo[i].cell, todo[i].example) for i in indices]
            if journal is not None:
                journal.add(where, values)
            done.update(zip(where, values.T, strict=True))

        if todo:
            backend.run(todo, finished, progress)
        estimates = getattr(backend, "estimates", {})
        self.estimated = {cell for cell, example in estimates if (cell, example) not in done}
        return self.collect({**estimates, **done}, self.baselines(backend))

    def baselines(self, backend: Backend) -> dict[str, np.ndarray]:
        """Values of each unchanged run."""
        return {name: backend.baseline(name) for name in self.sequences.runs}

    def collect(
        self, done: dict[tuple[int, int], np.ndarray], baselines: dict[str, np.ndarray]
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Finished jobs and free ones in one array; what is missing is NaN."""
        base = baselines[self.sequences.base].copy()
        for example in range(len(self.prompts)):
            if (len(self.worked), example) in done:
                base[:, example] = done[len(self.worked), example]
        values = np.full(
            (len(self.metrics), len(self.worked), len(self.prompts)), np.nan, dtype=np.float32
        )
        for cell, row in enumerate(self.worked):
            for example, worked in enumerate(row):
                if worked.status == "free":
                    values[:, cell, example] = base[:, example]
                elif (cell, example) in done:
                    values[:, cell, example] = done[cell, example]
        return values, {**baselines, "base": base}

    def dataset(
        self, values: np.ndarray, baselines: dict[str, np.ndarray], attrs: dict[str, Any]
    ) -> Any:
        """The result, labelled."""
        axes = {self.sweep.dimension(name): v for name, v in self.sweep.axes.items()}
        shape = (len(self.metrics), *self.sweep.shape, len(self.prompts))
        dims = ("metric", *axes, "example")
        value = values.reshape(shape)
        spread = (slice(None), *[None] * len(axes), slice(None))
        base = baselines["base"]
        variables = {
            "value": (dims, value),
            "effect": (dims, value - base[spread]),
            "exact": (tuple(axes), self._exact()),
            "base": (("metric", "example"), base, METRIC_UNITS),
        }
        if "corrupted" in baselines:
            variables["recovered"] = (dims, recovered(value, baselines, spread))
        for name in self.sequences.runs:
            variables[name] = (("metric", "example"), baselines[name])
        coords: dict[str, Any] = {name: [_label(x) for x in v] for name, v in axes.items()}
        coords["metric"] = [metric.name for metric in self.metrics]
        coords["metric_units"] = ("metric", [metric.unit for metric in self.metrics])
        where = axes.get("pos")
        if where and all(isinstance(p, int) and p >= 0 for p in where):
            coords |= self._tokens(where)
        return build(variables, coords, attrs, axes=tuple(axes))

    def _exact(self) -> np.ndarray:
        """Which cells were run, or needed no run, on every example."""
        exact = np.ones(len(self.worked), dtype=bool)
        exact[sorted(self.estimated)] = False
        return exact.reshape(self.sweep.shape)

    def _tokens(self, where: Sequence[int]) -> dict[str, Any]:
        """Labels of the base run's tokens, and of the tokens that are aligned with them."""
        base = self.sequences.base
        tokens = getattr(self.prompts, f"{base}_tokens")
        if not tokens:
            return {}
        if len(self.sequences.runs) < 2:
            return token_coords(tokens, positions=where)
        other = "clean" if base == "corrupted" else "corrupted"
        theirs = getattr(self.prompts, f"{other}_tokens")
        aligned = []
        for example, row in enumerate(tokens):
            at = [self.sequences.source_position(other, example, p) for p in range(len(row))]
            aligned.append([theirs[example][p] if p >= 0 else "" for p in at])
        return token_coords(tokens, aligned, positions=where)


def recovered(value: np.ndarray, baselines: dict[str, np.ndarray], spread: Any) -> np.ndarray:
    """(value - corrupted)/(clean - corrupted), NaN where the two are nearly the same.

    "Nearly": under 1e-3 of the metric's scale, its largest absolute baseline.
    """
    clean, corrupted = baselines["clean"], baselines["corrupted"]
    scale = np.maximum(np.abs(clean), np.abs(corrupted)).max(axis=1, keepdims=True)
    gap = clean - corrupted
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.where(np.abs(gap) < 1e-3 * scale, np.nan, gap)
        return ((value - corrupted[spread]) / gap[spread]).astype(np.float32)


def _label(value: Any) -> Any:
    if isinstance(value, tuple) and value and all(type(one) is int for one in value):
        first, last = value[0], value[-1]
        if value == tuple(range(first, last + 1)):  # layers 0 to k, say, are called "0-k"
            return str(first) if first == last else f"{first}-{last}"
    return value if isinstance(value, (int, float, str, bool)) else str(value)
