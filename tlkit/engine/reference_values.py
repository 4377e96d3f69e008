"""The reference engine as a backend: one hooked forward pass per job."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tlkit.engine.readout import Reading
from tlkit.engine.reference import Reference, capture
from tlkit.engine.sequences import Sequences
from tlkit.engine.sources import Captured, Place, Sources
from tlkit.engine.values import Finished, Job, Progress
from tlkit.models.bridge import Parts
from tlkit.spec.readout import Metric

SHARE = 8
"""Passes that a worker makes before it tells of them."""


class ReferenceBackend:
    """Runs jobs one by one (see `tlkit.engine.reference`)."""

    name = "reference"

    def __init__(self, parts: Parts, sequences: Sequences, metrics: Sequence[Metric]) -> None:
        self.parts, self.sequences, self.metrics = parts, sequences, metrics
        self._plain: dict[tuple[str, int], Tensor] = {}

    def capture(self, ids: list[list[int]], places: set[Place]) -> Captured:
        """Sites of a run, one example at a time."""
        return capture(self.parts, ids, places)

    def baseline(self, run: str) -> np.ndarray:
        """Values of an unchanged run: ``[metric, example]``."""
        return self.baseline_of(run, range(len(self.sequences.prompts)))

    def baseline_of(self, run: str, examples: range) -> np.ndarray:
        """The same for some examples."""
        columns = [self._measure(run, i, self._unchanged(run, i)) for i in examples]
        return np.stack(columns, axis=1)

    def parts_of(self) -> list[range]:
        """Every example for itself."""
        return [range(i, i + 1) for i in range(len(self.sequences.prompts))]

    def shares(self, jobs: Sequence[Job], workers: int) -> list[tuple[range, list[int]]]:
        """Jobs of one example, a few at a time: its number as a range, and indices of jobs."""
        found = []
        for examples in self.parts_of():
            own = [i for i, job in enumerate(jobs) if job.example in examples]
            found += [(examples, own[at : at + SHARE]) for at in range(0, len(own), SHARE)]
        return found

    def part(self, examples: range, jobs: Sequence[Job]) -> "ReferencePart":
        """Some examples, whose jobs are run share by share."""
        return ReferencePart(self, examples)

    def run(self, jobs: Sequence[Job], finished: Finished, progress: Progress | None) -> None:
        """Run jobs one after the other."""
        edits = [edit for job in jobs for edit in job.worked.edits]
        reference = Reference(self.parts, Sources(self.capture, self.sequences, edits))
        base = self.sequences.base
        for number, job in enumerate(jobs):
            ids = self.sequences.runs[base][job.example]
            logits = reference.logits(ids, job.worked.edits, job.example)
            finished([number], self._measure(base, job.example, logits)[:, None])
            if progress:
                progress(number + 1, len(jobs))

    def _unchanged(self, run: str, example: int) -> Tensor:
        key = (run, example)
        if key not in self._plain:
            ids = torch.tensor(self.sequences.runs[run][example], device=self.parts.device)
            with torch.no_grad():
                self._plain[key] = self.parts.bridge(ids[None])[0].float()
        return self._plain[key]

    def _measure(self, run: str, example: int, logits: Tensor) -> np.ndarray:
        values = []
        for metric in self.metrics:
            own, base = (
                self._cut(metric, which, example, rows)
                for which, rows in (
                    (run, logits),
                    (self.sequences.base, self._unchanged(self.sequences.base, example)),
                )
            )
            reading = Reading(metric, self.sequences, run, logits.device)
            values.append(float(metric(reading.readout([example], own, base))[0]))
        return np.array(values, dtype=np.float32)

    def _cut(self, metric: Metric, run: str, example: int, logits: Tensor) -> Tensor:
        """The positions and vocabulary that a metric reads, ``[1, pos, vocab]``."""
        reading = Reading(metric, self.sequences, run, logits.device)
        rows = logits[list(reading.positions[example])]
        if reading.vocabulary is not None:
            rows = rows[:, reading.vocabulary]
        out = rows.new_zeros(1, reading.width, rows.shape[-1])
        out[0, : len(rows)] = rows
        return out


class ReferencePart:
    """Some examples of a run by the reference engine.

    Args:
        backend: The whole run.
        examples: Which examples.
    """

    def __init__(self, backend: ReferenceBackend, examples: range) -> None:
        self.backend, self.examples = backend, examples

    def run(self, jobs: Sequence[Job], finished: Finished) -> None:
        """Run some of the jobs, one after the other."""
        self.backend.run(jobs, finished, None)

    def baseline(self, run: str) -> np.ndarray:
        """Values of an unchanged run: ``[metric, example]``."""
        return self.backend.baseline_of(run, self.examples)
