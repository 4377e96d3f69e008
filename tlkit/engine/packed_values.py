"""The packed engine as a backend: base and source runs once, then every job in one pass."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tlkit.engine.edits import Edit
from tlkit.engine.lanes import Lane, make_lane
from tlkit.engine.packed import Packed
from tlkit.engine.readout import Reading, logits_of
from tlkit.engine.record import Run, record
from tlkit.engine.sequences import Sequences
from tlkit.engine.sources import Captured, Place, Sources
from tlkit.engine.values import Job, Progress
from tlkit.models.bridge import Parts
from tlkit.spec.metrics import Metric

LOGIT_BYTES = 256 * 2**20
"""Most bytes of logits that are alive at once."""


class PackedBackend:
    """Runs jobs packed along one token axis (see `Packed`).

    Args:
        parts: The model.
        sequences: Token sequences.
        metrics: What is measured.
        chunk: Tokens per call of a block.
        room: Bytes that the packed stream may take at once, or None for no limit.
    """

    name = "packed"

    def __init__(
        self, parts: Parts, sequences: Sequences, metrics: Sequence[Metric], *,
        chunk: int = 1024, room: int | None = None,
    ) -> None:  # fmt: skip
        self.parts, self.sequences, self.metrics = parts, sequences, metrics
        self.chunk, self.room = chunk, room
        self._last: dict[str, Tensor] = {}
        self.readings = [
            Reading(metric, sequences, sequences.base, parts.device) for metric in metrics
        ]

    @cached_property
    def base(self) -> Run:
        """The recorded base run, with token embeddings."""
        ids = self.sequences.runs[self.sequences.base]
        run = record(self.parts, ids, {("embed", 0)})
        self._last[self.sequences.base] = run.stream[-1]
        return run

    @cached_property
    def base_logits(self) -> list[Tensor]:
        """Per metric, the base run's logits ``[example, pos, vocab]``."""
        with torch.no_grad():
            return [r.base_logits(self.parts, self.base.stream[-1]) for r in self.readings]

    def capture(self, ids: list[list[int]], places: set[Place]) -> Captured:
        """Sites of a run; the last stream of a named run is kept for its baseline."""
        run = record(self.parts, ids, places | {("resid_post", self.parts.n_layers - 1)}, full=False)
        for name, known in self.sequences.runs.items():
            if known is ids:
                self._last[name] = run.sites["resid_post", self.parts.n_layers - 1]
        return run.sites

    def baseline(self, run: str) -> np.ndarray:
        """Values of an unchanged run: ``[metric, example]``."""
        examples = range(len(self.sequences.prompts))
        if run == self.sequences.base:
            self.base  # noqa: B018  records
            return self._measured([(r, b, b) for r, b in zip(self.readings, self.base_logits, strict=True)], examples)  # noqa: E501
        if run not in self._last:
            self.capture(self.sequences.runs[run], set())
        rows = []
        for metric, base in zip(self.metrics, self.base_logits, strict=True):
            reading = Reading(metric, self.sequences, run, self.parts.device)
            with torch.no_grad():
                logits = reading.base_logits(self.parts, self._last[run])
            rows.append((reading, logits, base))
        return self._measured(rows, examples)

    def _measured(self, rows: list[tuple[Reading, Tensor, Tensor]], examples: Any) -> np.ndarray:
        values = [
            reading.metric(reading.readout(tuple(examples), logits, base)).float().cpu().numpy()
            for reading, logits, base in rows
        ]
        return np.stack(values)

    def values(self, jobs: Sequence[Job], progress: Progress | None = None) -> np.ndarray:
        """Values of jobs: ``[metric, job]``."""
        lanes = [make_lane(i, j.example, j.worked, self.sequences) for i, j in enumerate(jobs)]
        order = sorted(range(len(lanes)), key=lambda i: _order(lanes[i]))
        lanes = [lanes[i] for i in order]
        edits: list[tuple[int, Edit]] = [(j.example, e) for j in jobs for e in j.worked.edits]
        self.base  # noqa: B018  before sources, so that peak memory is not both at once
        sources = Sources(self.capture, self.sequences, edits)
        out = np.full((len(self.metrics), len(jobs)), np.nan, dtype=np.float32)
        groups = list(self._groups(lanes))
        steps = len(groups) * (self.parts.n_layers + 1)
        for number, (first, last) in enumerate(groups):

            def told(layer: int, number: int = number) -> None:
                if progress:
                    progress(number * (self.parts.n_layers + 1) + layer + 1, steps)

            packed = Packed(self.parts, self.base, sources, lanes[first:last], chunk=self.chunk)
            stream = packed.run(told)
            for m in range(len(self.metrics)):
                out[m, order[first:last]] = self._read(m, lanes[first:last], packed.offsets, stream)
        return out

    def _groups(self, lanes: Sequence[Lane]) -> Any:
        """Lanes whose packed stream fits the room there is."""
        if not lanes:
            return
        bytes_per_row = self.parts.d_model * self.base.stream[0].element_size()
        most = max(self.chunk, (self.room or 2**62) // bytes_per_row)
        first, rows = 0, 0
        for index, lane in enumerate(lanes):
            if index > first and rows + lane.rows > most:
                yield first, index
                first, rows = index, 0
            rows += lane.rows
        yield first, len(lanes)

    def _read(
        self, m: int, lanes: Sequence[Lane], offsets: Sequence[int], stream: Tensor
    ) -> np.ndarray:
        """One metric's values of lanes, unembedding only what it reads."""
        reading, base = self.readings[m], self.base_logits[m]
        most = max(1, LOGIT_BYTES // (4 * base[0].numel()))
        values = []
        for begin in range(0, len(lanes), most):
            some = range(begin, min(begin + most, len(lanes)))
            rows, where = [], []
            for lane_index in some:
                lane = lanes[lane_index]
                for column, position in enumerate(reading.positions[lane.example]):
                    if position >= lane.start:
                        rows.append(offsets[lane_index] + position - lane.start)
                        where.append((lane_index - begin, column))
            examples = [lanes[i].example for i in some]
            logits = base[examples]
            if rows:
                at = torch.tensor(where, device=logits.device)
                with torch.no_grad():
                    fresh = logits_of(self.parts, stream[rows], reading.vocabulary)
                logits[at[:, 0], at[:, 1]] = fresh
            readout = reading.readout(examples, logits, base[examples])
            values.append(reading.metric(readout).float().cpu().numpy())
        return np.concatenate(values)


def _order(lane: Lane) -> tuple[Any, ...]:
    """By entry; within one, lanes that enter with all their tokens first; similar lengths together."""
    return (lane.entry, lane.touched is not None, lane.rows, lane.example)
