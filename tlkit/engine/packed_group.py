"""Some examples of a packed run: their base run, their sources, their lanes and metrics."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tlkit.engine.edits import Edit
from tlkit.engine.lanes import Lane, make_lane
from tlkit.engine.packed import Packed
from tlkit.engine.readout import Reading, logits_of
from tlkit.engine.record import Run, record
from tlkit.engine.route import route_of
from tlkit.engine.sequences import Sequences
from tlkit.engine.sources import Captured, Place, Sources
from tlkit.engine.together import Start
from tlkit.engine.values import Finished, Job
from tlkit.models.bridge import Parts

LOGIT_BYTES = 256 * 2**20
"""Most bytes of logits that are alive at once."""


class PackedGroup:
    """Runs jobs of some neighbouring examples (see `Packed`).

    Args:
        parts: The model.
        sequences: All token sequences.
        readings: What metrics read of the base run.
        examples: Which examples.
        every: All edits of these examples, where their jobs come in several calls of `run`: what
            they read is then recorded once and kept.
    """

    def __init__(
        self, parts: Parts, sequences: Sequences, readings: Sequence[Reading], examples: range,
        every: Sequence[Edit] | None = None,
    ) -> None:  # fmt: skip
        self.parts, self.sequences = parts, sequences
        self.readings, self.examples, self.every = readings, examples, every
        self._sources: Sources | None = None
        self._ends: dict[str, Captured] = {}
        self._recorded: Callable[..., Run] = partial(record, parts)

    @cached_property
    def base(self) -> Run:
        """The recorded base run, with token embeddings."""
        return record(self.parts, self._ids(self.sequences.base), {("embed", 0)})

    @cached_property
    def base_logits(self) -> list[Tensor]:
        """Per metric, the base run's logits ``[example, pos, vocab]``."""
        last = self.base.stream[-1]
        with torch.no_grad():
            return [r.base_logits(self.parts, last, self.examples) for r in self.readings]

    def _ids(self, run: str) -> list[list[int]]:
        return self.sequences.runs[run][self.examples.start : self.examples.stop]

    def _capture(self, ids: list[list[int]], places: set[Place]) -> Captured:
        """Sites of a run; the last stream of a named run is kept for its baseline."""
        run = self._recorded(ids, places | {self._end}, full=False)
        for name in self.sequences.runs:
            if ids == self._ids(name):
                self._ends[name] = run.sites
        return run.sites

    @property
    def _end(self) -> Place:
        """Where the stream leaves the last block."""
        return "resid_post", self.parts.n_layers - 1

    def baseline(self, run: str) -> np.ndarray:
        """Values of an unchanged run: ``[metric, example]``."""
        if run == self.sequences.base:
            return self._measured(self.readings, self.base_logits)
        if run not in self._ends:
            self._capture(self._ids(run), set())
        device = self.parts.device
        readings = [Reading(r.metric, self.sequences, run, device) for r in self.readings]
        with torch.no_grad():
            logits = [
                reading.base_logits(self.parts, self._ends[run][self._end], self.examples)
                for reading in readings
            ]
        return self._measured(readings, logits)

    def _measured(self, readings: Sequence[Reading], logits: Sequence[Tensor]) -> np.ndarray:
        examples = tuple(self.examples)
        return np.stack([
            reading.metric(reading.readout(examples, own, base)).float().cpu().numpy()
            for reading, own, base in zip(readings, logits, self.base_logits, strict=True)
        ])  # fmt: skip

    def run(
        self, jobs: Sequence[tuple[int, Job]], finished: Finished, chunk: int, room: int,
        told: Callable[[int], None],
    ) -> None:  # fmt: skip
        """Run numbered jobs, a packed stream of at most ``room`` tokens at a time."""
        lanes = [make_lane(i, j.example, j.worked, self.sequences) for i, j in jobs]
        lanes.sort(key=order)
        edits = [edit for _, job in jobs for edit in job.worked.edits]
        for packed in self.rise(split(lanes, room), edits, chunk):
            some = packed.lanes
            values = self._values(some, packed.offsets, packed.stream)
            finished([lane.cell for lane in some], values)
            told(sum(token_layers(lane, self.parts.n_layers) for lane in some))

    def rise(
        self, several: Sequence[Sequence[Lane]], edits: Sequence[Edit], chunk: int,
        after: Callable[[int, Packed], None] | None = None,
    ) -> Iterator[Packed]:  # fmt: skip
        """Let groups of lanes rise one after another, on the base run and what edits read.

        Where blocks come from disk, these are recorded along with the first group, so that all of
        it is one pass over the weights.
        """
        start = Start(self.parts, self._outputs())
        edits = edits if self.every is None else self.every
        if self._sources is not None:
            base, sources = self.base, self._sources
        elif start.outputs is None:
            base = self.base  # before the sources, so that peak memory is not both at once
            sources = Sources(self._capture, self.sequences, edits, self.examples)
        else:
            base, sources = self._waiting(start, edits)
        for lanes in several:
            packed = Packed(
                self.parts, base, sources, lanes, chunk=chunk, origin=self.examples.start,
                after=after,
            )  # fmt: skip
            start.rise(packed)
            self.base = base
            if self.every is not None:
                self._sources = sources
            yield packed

    def _waiting(self, start: Start, edits: Sequence[Edit]) -> tuple[Run, Sources]:
        """The base run, what edits read and the named runs, recorded along with the lanes."""
        self._ends.clear()  # of an attempt that ran out of memory
        base = start.record(self._ids(self.sequences.base), {("embed", 0)}, full=True)
        self._recorded = start.record
        try:
            sources = Sources(self._capture, self.sequences, edits, self.examples)
            for run in self.sequences.runs:
                if run != self.sequences.base and run not in self._ends:
                    self._capture(self._ids(run), set())
        finally:
            self._recorded = partial(record, self.parts)
        return base, sources

    def _outputs(self) -> int | None:
        """How blocks give back the stream, where everything can be recorded in step with lanes."""
        own = type(self)._capture is PackedGroup._capture
        fresh = self.parts.streamed and "base" not in self.__dict__
        return route_of(self.parts).outputs if own and fresh else None

    def _values(self, lanes: Sequence[Lane], offsets: Sequence[int], stream: Tensor) -> np.ndarray:
        """Every metric's values ``[metric, lane]`` of lanes that have risen."""
        return np.stack([
            self._read(m, lanes, offsets, stream) for m in range(len(self.readings))
        ])  # fmt: skip

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
            own = base[[example - self.examples.start for example in examples]]
            logits = own.clone()
            if rows:
                at = torch.tensor(where, device=logits.device)
                with torch.no_grad():
                    fresh = logits_of(self.parts, stream[rows], reading.vocabulary)
                logits[at[:, 0], at[:, 1]] = fresh
            readout = reading.readout(examples, logits, own)
            values.append(reading.metric(readout).float().cpu().numpy())
        return np.concatenate(values)


def token_layers(lane: Lane, n_layers: int) -> int:
    """How many times a token of a lane goes through a block."""
    inside = n_layers - lane.entry
    if lane.touched is None or inside <= 0:
        return lane.rows * max(inside, 0)
    return len(lane.touched) + lane.rows * (inside - 1)


def split(lanes: Sequence[Lane], room: int) -> list[Sequence[Lane]]:
    """Lanes in groups of at most ``room`` tokens (one lane at least)."""
    groups: list[Sequence[Lane]] = []
    first, rows = 0, 0
    for index, lane in enumerate(lanes):
        if index > first and rows + lane.rows > room:
            groups.append(lanes[first:index])
            first, rows = index, 0
        rows += lane.rows
    return [*groups, lanes[first:]] if lanes else []


def order(lane: Lane) -> tuple[Any, ...]:
    """By entry; within one, lanes that enter with all their tokens first; like lengths together."""
    return (lane.entry, lane.touched is not None, lane.rows, lane.example)
