"""Metrics that see all examples at once: a cell's lanes are gathered before it is measured."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tlkit.engine.lanes import Lane
from tlkit.engine.packed_group import LOGIT_BYTES, PackedGroup
from tlkit.engine.packed_values import PackedBackend
from tlkit.engine.readout import logits_of
from tlkit.engine.record import Run
from tlkit.engine.reference import Reference
from tlkit.engine.sequences import Sequences
from tlkit.engine.sources import Captured, Place, Sources
from tlkit.engine.values import Job
from tlkit.models.bridge import Parts

Capture = Callable[[set[Place]], Captured]
"""Gives the activations that patches put in."""


@dataclass(frozen=True, eq=False)
class BatchMetric:
    """What a function of logits ``[example, pos, vocab]`` reads, and the function.

    Attributes:
        function: Gives a tensor, of the same shape for every cell.
        positions: The positions that it reads; it gets just these.
        vocabulary: The token ids that it reads, or None for all; it gets just these.
    """

    function: Callable[[Tensor], Tensor]
    positions: tuple[int, ...]
    vocabulary: tuple[int, ...] | None = None

    @property
    def reads(self) -> tuple[Any, ...]:
        """What it reads, to share logits with metrics that read the same."""
        return self.positions, self.vocabulary

    def cut(self, logits: Tensor) -> Tensor:
        """What it reads of whole logits."""
        kept = logits[:, list(self.positions)]
        return kept if self.vocabulary is None else kept[..., list(self.vocabulary)]


class CellReader:
    """Measures cells once the last stream of all their examples has come.

    Args:
        parts: The model.
        last: The base run's last stream ``[example, pos, d_model]``.
        metrics: What is measured.
        jobs: All jobs; a cell is whole when all of its jobs have come, and an example without one
            is the base run's.
    """

    def __init__(
        self, parts: Parts, last: Tensor, metrics: Sequence[BatchMetric], jobs: Sequence[Job]
    ) -> None:
        self.parts, self.metrics, self.jobs = parts, metrics, jobs
        self.values: dict[int, list[Tensor]] = {}
        self._missing = Counter(job.cell for job in jobs)
        self._rows: dict[int, list[tuple[int, int, Tensor]]] = {}
        self._reads = list(dict.fromkeys(metric.reads for metric in metrics))
        self._ids = [
            None if ids is None else torch.tensor(ids, device=last.device) for _, ids in self._reads
        ]
        with torch.no_grad():
            self._base = [
                logits_of(parts, last[:, list(positions)], ids)
                for (positions, _), ids in zip(self._reads, self._ids, strict=True)
            ]
        self.base = self._measured(self._base)

    def add(self, lanes: Sequence[Lane], offsets: Sequence[int], stream: Tensor) -> None:
        """Keep what is read of some lanes' last stream, and measure the cells that are whole."""
        read = sorted({p for positions, _ in self._reads for p in positions})
        whole = []
        for lane, offset in zip(lanes, offsets, strict=False):
            cell = self.jobs[lane.cell].cell
            kept = [p for p in read if p >= lane.start]
            rows = stream[[offset + p - lane.start for p in kept]]
            self._rows.setdefault(cell, []).append((lane.example, len(read) - len(kept), rows))
            self._missing[cell] -= 1
            if self._missing[cell] == 0:
                whole.append(cell)
        most = max(1, LOGIT_BYTES // max(4 * base.numel() for base in self._base))
        for begin in range(0, len(whole), most):
            self._measure(whole[begin : begin + most], read)

    def _measure(self, cells: Sequence[int], read: Sequence[int]) -> None:
        """Unembed several cells together, then measure one after the other."""
        kept = [self._rows.pop(cell) for cell in cells]
        logits = [self._logits(kept, read, which) for which in range(len(self._reads))]
        for index, cell in enumerate(cells):
            self.values[cell] = self._measured([one[index] for one in logits])

    def _logits(self, kept: Sequence[Any], read: Sequence[int], which: int) -> list[Tensor]:
        """Per cell, the logits ``[example, pos, vocab]`` of one kind of reading."""
        columns = [read.index(p) for p in self._reads[which][0]]
        cells = [self._base[which].clone() for _ in kept]
        chosen, where = [], []
        for cell, entries in zip(cells, kept, strict=True):
            for example, skipped, rows in entries:
                changed = [to for to, column in enumerate(columns) if column >= skipped]
                if changed:
                    chosen.append(rows[[columns[to] - skipped for to in changed]])
                    where.append((cell, example, changed))
        if chosen:
            with torch.no_grad():
                fresh = logits_of(self.parts, torch.cat(chosen), self._ids[which])
            for (cell, example, to), rows in zip(
                where, fresh.split([len(rows) for rows in chosen]), strict=True
            ):
                cell[example, to] = rows
        return cells

    def _measured(self, logits: Sequence[Tensor]) -> list[Tensor]:
        return [metric.function(logits[self._reads.index(metric.reads)]) for metric in self.metrics]


class WholeBatch(PackedBackend):
    """Runs jobs packed, and measures each cell on all examples together.

    Args:
        parts: The model.
        sequences: Token sequences, of equal length.
        metrics: What is measured.
        jobs: What is run.
        given: What patches put in.
        budget: Bytes that the engine may take besides the weights.
        base: The recorded base run, if it is at hand.
    """

    def __init__(
        self, parts: Parts, sequences: Sequences, metrics: Sequence[BatchMetric],
        jobs: Sequence[Job], given: Capture, *, budget: int | None = None,
        base: Run | None = None,
    ) -> None:  # fmt: skip
        super().__init__(parts, sequences, (), budget=budget)
        self.group = _Group(parts, sequences, metrics, jobs, given)
        if base is not None:
            self.group.base = base
        self.groups, self.jobs = [self.group], jobs

    def measure(self, cells: int, progress: Any = None) -> tuple[list[list[Tensor]], list[Tensor]]:
        """Values of each cell, and of the base run: one tensor a metric."""
        if self.jobs:
            self.run(self.jobs, lambda indices, values: None, progress)
        reader = self.group.reader
        return [reader.values.get(cell, reader.base) for cell in range(cells)], reader.base


class _Group(PackedGroup):
    """All examples; sources are given, and values belong to cells."""

    def __init__(
        self, parts: Parts, sequences: Sequences, metrics: Sequence[BatchMetric],
        jobs: Sequence[Job], given: Capture,
    ) -> None:  # fmt: skip
        super().__init__(parts, sequences, (), range(len(sequences.prompts)))
        self._metrics, self._jobs, self._given = metrics, jobs, given

    @cached_property
    def reader(self) -> CellReader:
        """What gathers and measures cells."""
        return CellReader(self.parts, self.base.stream[-1], self._metrics, self._jobs)

    def _capture(self, ids: list[list[int]], places: set[Place]) -> Captured:
        return self._given(places)

    def _values(self, lanes: Sequence[Lane], offsets: Sequence[int], stream: Tensor) -> np.ndarray:
        self.reader.add(lanes, offsets, stream)
        return np.zeros((0, len(lanes)), dtype=np.float32)


def by_reference(
    parts: Parts, sequences: Sequences, metrics: Sequence[BatchMetric], jobs: Sequence[Job],
    given: Capture, cells: int, progress: Any = None,
) -> tuple[list[list[Tensor]], list[Tensor]]:  # fmt: skip
    """The same as `WholeBatch.measure` by hooked forward passes, one per job."""
    edits = [edit for job in jobs for edit in job.worked.edits]
    reference = Reference(parts, Sources(lambda ids, places: given(places), sequences, edits))
    rows = sequences.runs[sequences.base]
    base = torch.stack([reference.logits(ids, (), i) for i, ids in enumerate(rows)])

    def measured(logits: Tensor) -> list[Tensor]:
        return [metric.function(metric.cut(logits)) for metric in metrics]

    unchanged = measured(base)
    values = [unchanged] * cells
    for done, (cell, some) in enumerate(groupby(jobs, key=lambda job: job.cell)):
        logits = base.clone()
        for job in some:
            logits[job.example] = reference.logits(rows[job.example], job.worked.edits, job.example)
        values[cell] = measured(logits)
        if progress:
            progress(done + 1, cells)
    return values, unchanged
