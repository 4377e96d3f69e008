"""Edits of blocks 0 to k, for every k, read at the end of the model.

Each k is a condition of its own, for the blocks behind k must run on what k left. But the runs of
k and of k + 1 are the same up to block k: so one lane per example has all the edits, and the lane
of k branches off it behind block k. That halves the work of separate runs.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tlkit.engine.edits import Worked
from tlkit.engine.lanes import Lane, make_lane
from tlkit.engine.packed import Packed
from tlkit.engine.packed_group import PackedGroup
from tlkit.engine.packed_values import CHUNK, GROUP_ROWS, most_rows
from tlkit.engine.readout import Reading
from tlkit.engine.reference_values import ReferenceBackend
from tlkit.engine.sequences import Sequences
from tlkit.engine.states import example_groups
from tlkit.engine.values import Job, Progress
from tlkit.models.bridge import Parts
from tlkit.spec.readout import Metric


def cumulative(
    parts: Parts,
    sequences: Sequences,
    metric: Metric,
    conditions: Sequence[Sequence[Worked]],
    layers: Sequence[int],
    *,
    others: Sequence[Sequence[Worked]] = (),
    packed: bool = True,
    budget: int | None = None,
    progress: Progress | None = None,
) -> "Found":
    """Measure a metric under each condition's edits of blocks up to and with k.

    Args:
        parts: The model.
        sequences: Token sequences; the base run is edited.
        metric: What is measured.
        conditions: Per condition and example its edits in all blocks.
        layers: The values of k, rising.
        others: Per condition and example edits that are not cumulative, run on the same base run.
        packed: Whether to run packed, or one hooked forward pass per condition, k and example.
        budget: Bytes that may be taken besides the weights.
        progress: Called with (examples done, examples in all).

    Returns:
        Values ``[condition, k, example]``, those of the others ``[other, example]``, and the base
        run's ``[example]``. Where a condition has no edit (up to k) the value is the base run's;
        where it is missing, NaN.
    """
    count = len(sequences.prompts)
    found = Found(
        np.full((len(conditions), len(layers), count), np.nan, dtype=np.float32),
        np.full((len(others), count), np.nan, dtype=np.float32),
        np.zeros(count, dtype=np.float32),
    )
    if not packed:
        _slowly(parts, sequences, metric, conditions, layers, others, found, progress)
        return found
    reading = Reading(metric, sequences, sequences.base, parts.device)
    for examples in example_groups(parts, sequences, 1, budget):
        group = _Branches(parts, sequences, [reading], examples)
        group.most = most_rows(parts, budget)
        here = slice(examples.start, examples.stop)
        group.fill(conditions, layers, found)
        group.fill_others(others, found)
        found.base[here] = group.baseline(sequences.base)[0]
        for values, where in group.free:
            values[where] = found.base[where[-1]]
        if progress:
            progress(examples.stop, count)
    return found


class Found(NamedTuple):
    """Values ``[condition, k, example]``, ``[other, example]``, and the base run's."""

    values: np.ndarray
    others: np.ndarray
    base: np.ndarray


def _upto(worked: Worked, k: int) -> Worked:
    """The edits of blocks 0 to k alone."""
    edits = tuple(edit for edit in worked.edits if edit.layer <= k)
    return Worked(edits, worked.status if edits or worked.status != "run" else "free")


def _slowly(
    parts: Parts, sequences: Sequences, metric: Metric, conditions: Sequence[Sequence[Worked]],
    layers: Sequence[int], others: Sequence[Sequence[Worked]], found: Found,
    progress: Progress | None,
) -> None:  # fmt: skip
    """The same, each condition, k and example a hooked forward pass of its own."""
    backend = ReferenceBackend(parts, sequences, [metric])
    found.base[:] = backend.baseline(sequences.base)[0]
    todo: list[tuple[np.ndarray, tuple[int, ...], Worked]] = [
        (found.values, (cell, at, example), _upto(whole, k))
        for cell, several in enumerate(conditions)
        for example, whole in enumerate(several)
        for at, k in enumerate(layers)
    ]
    todo += [
        (found.others, (cell, example), worked)
        for cell, several in enumerate(others)
        for example, worked in enumerate(several)
    ]
    jobs, places = [], []
    for array, place, worked in todo:
        if worked.status == "free":
            array[place] = found.base[place[-1]]
        elif worked.status == "run":
            places.append((array, place))
            jobs.append(Job(place[0], place[-1], worked))

    def finished(indices: Sequence[int], values: np.ndarray) -> None:
        for index, value in zip(indices, values[0], strict=True):
            array, place = places[index]
            array[place] = value

    backend.run(jobs, finished, progress)


class _Branches(PackedGroup):
    """Some examples, and lanes that branch off one another.

    Attributes:
        free: Arrays and indices of values that are the base run's, which is run along with the
            first lanes where blocks come from disk.
        most: Most packed tokens at once.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.free: list[tuple[np.ndarray, tuple[int, ...]]] = []
        self.most = GROUP_ROWS

    def fill_others(self, others: Sequence[Sequence[Worked]], found: Found) -> None:
        """Put in the values of these examples under conditions that are not cumulative."""
        jobs: list[Job] = []
        for cell, several in enumerate(others):
            for example in self.examples:
                worked = several[example]
                if worked.status == "free":
                    self.free.append((found.others, (cell, example)))
                elif worked.status == "run":
                    jobs.append(Job(cell, example, worked))

        def finished(indices: Sequence[int], values: np.ndarray) -> None:
            for index, value in zip(indices, values[0], strict=True):
                found.others[jobs[index].cell, jobs[index].example] = value

        if jobs:
            self.run(list(enumerate(jobs)), finished, CHUNK, self.most, lambda _: None)

    def fill(
        self, conditions: Sequence[Sequence[Worked]], layers: Sequence[int], found: Found
    ) -> None:
        """Put in the values of these examples under cumulative conditions."""
        todo: list[Lane] = []
        for cell, several in enumerate(conditions):
            for example in self.examples:
                worked = _upto(several[example], max(layers))
                if worked.status == "free":
                    self.free += [(found.values, (cell, at, example)) for at in range(len(layers))]
                elif worked.status == "run":
                    todo.append(make_lane(cell, example, worked, self.sequences))
        todo.sort(key=lambda lane: (lane.rows, lane.example))
        some: list[Lane] = []
        for lane in todo:
            if some and (sum(one.rows for one in some) + lane.rows) * len(layers) > self.most:
                self._rise(some, layers, found)
                some = []
            some.append(lane)
        if some:
            self._rise(some, layers, found)

    def _rise(self, wholes: Sequence[Lane], layers: Sequence[int], found: Found) -> None:
        """Run lanes with all edits, and their branches behind every other k."""
        lanes: list[tuple[Lane, int, Lane | None]] = [
            (one, len(layers) - 1, None) for one in wholes
        ]
        for at, k in enumerate(layers[:-1]):
            for one in wholes:
                if k < one.entry:  # nothing is edited yet
                    self.free.append((found.values, (one.cell, at, one.example)))
                    continue
                branch = Lane(one.cell, one.example, one.start, one.stop, k + 1, None)
                lanes.append((branch, at, one))
        lanes.sort(key=lambda row: (row[0].entry, row[0].touched is not None, row[0].rows))
        index = {id(lane): at for at, (lane, _, _) in enumerate(lanes)}
        parents = [None if trunk is None else index[id(trunk)] for _, _, trunk in lanes]

        def after(layer: int, packed: Packed) -> None:
            for at, parent in enumerate(parents):
                if parent is not None and packed.lanes[at].entry == layer:
                    begin, end = packed.offsets[parent], packed.offsets[parent + 1]
                    rows = slice(packed.offsets[at], packed.offsets[at + 1])
                    packed.stream[rows] = packed.stream[begin:end]

        own = [lane for lane, _, _ in lanes]
        edits = [edit for lane in own for several in lane.edits.values() for edit in several]
        for packed in self.rise([own], edits, CHUNK, after):
            values = self._values(own, packed.offsets, packed.stream)[0]
            for (lane, at, _), value in zip(lanes, values, strict=True):
                found.values[lane.cell, at, lane.example] = value
