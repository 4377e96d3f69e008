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
        columns = [
            self._measure(run, example, self._unchanged(run, example))
            for example in range(len(self.sequences.prompts))
        ]
        return np.stack(columns, axis=1)

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
