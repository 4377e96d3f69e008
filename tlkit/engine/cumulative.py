"""Edits of blocks 0 to k, for every k, read at the end of the model.

Each k is a condition of its own, for the blocks behind k must run on what k left. But the runs of
k and of k + 1 are the same up to block k: so one lane per example has all the edits, and the lane
of k branches off it behind block k. That halves the work of separate runs.
"""

from collections.abc import Sequence

import numpy as np
import torch

from tlkit.engine.edits import Worked
from tlkit.engine.lanes import Lane, make_lane
from tlkit.engine.packed import Packed
from tlkit.engine.packed_group import PackedGroup
from tlkit.engine.packed_values import CHUNK, GROUP_ROWS
from tlkit.engine.readout import Reading
from tlkit.engine.reference_values import ReferenceBackend
from tlkit.engine.sequences import Sequences
from tlkit.engine.sources import Sources
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
    packed: bool = True,
    budget: int | None = None,
    progress: Progress | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Measure a metric under each condition's edits of blocks up to and with k.

    Args:
        parts: The model.
        sequences: Token sequences; the base run is edited.
        metric: What is measured.
        conditions: Per condition and example its edits in all blocks.
        layers: The values of k, rising.
        packed: Whether to run packed, or one hooked forward pass per condition, k and example.
        budget: Bytes that may be taken besides the weights.
        progress: Called with (examples done, examples in all).

    Returns:
        Values ``[condition, k, example]`` and the base run's ``[example]``. Where a condition has
        no edit up to k the value is the base run's; where it is missing, NaN.
    """
    count = len(sequences.prompts)
    values = np.full((len(conditions), len(layers), count), np.nan, dtype=np.float32)
    base = np.zeros(count, dtype=np.float32)
    if not packed:
        _slowly(parts, sequences, metric, conditions, layers, values, base, progress)
        return values, base
    reading = Reading(metric, sequences, sequences.base, parts.device)
    for examples in example_groups(parts, sequences, 1, budget):
        group = _Branches(parts, sequences, [reading], examples)
        here = slice(examples.start, examples.stop)
        base[here] = group.baseline(sequences.base)[0]
        group.fill(conditions, layers, values, base)
        if progress:
            progress(examples.stop, count)
    return values, base


def _upto(worked: Worked, k: int) -> Worked:
    """The edits of blocks 0 to k alone."""
    edits = tuple(edit for edit in worked.edits if edit.layer <= k)
    return Worked(edits, worked.status if edits or worked.status != "run" else "free")


def _slowly(
    parts: Parts, sequences: Sequences, metric: Metric, conditions: Sequence[Sequence[Worked]],
    layers: Sequence[int], values: np.ndarray, base: np.ndarray, progress: Progress | None,
) -> None:  # fmt: skip
    """The same, each condition, k and example a hooked forward pass of its own."""
    backend = ReferenceBackend(parts, sequences, [metric])
    base[:] = backend.baseline(sequences.base)[0]
    jobs, places = [], []
    for cell, several in enumerate(conditions):
        for example, whole in enumerate(several):
            for at, k in enumerate(layers):
                worked = _upto(whole, k)
                if worked.status == "free":
                    values[cell, at, example] = base[example]
                elif worked.status == "run":
                    places.append((cell, at, example))
                    jobs.append(Job(cell, example, worked))

    def finished(indices: Sequence[int], found: np.ndarray) -> None:
        for index, value in zip(indices, found[0], strict=True):
            values[places[index]] = value

    backend.run(jobs, finished, progress)


class _Branches(PackedGroup):
    """Some examples, and lanes that branch off one another."""

    def fill(
        self, conditions: Sequence[Sequence[Worked]], layers: Sequence[int], values: np.ndarray,
        base: np.ndarray,
    ) -> None:  # fmt: skip
        """Put in the values of these examples."""
        todo: list[Lane] = []
        for cell, several in enumerate(conditions):
            for example in self.examples:
                worked = _upto(several[example], max(layers))
                if worked.status == "free":
                    values[cell, :, example] = base[example]
                elif worked.status == "run":
                    todo.append(make_lane(cell, example, worked, self.sequences))
        todo.sort(key=lambda lane: (lane.rows, lane.example))
        some: list[Lane] = []
        for lane in todo:
            if some and (sum(one.rows for one in some) + lane.rows) * len(layers) > GROUP_ROWS:
                self._rise(some, layers, values)
                some = []
            some.append(lane)
        if some:
            self._rise(some, layers, values)

    def _rise(self, wholes: Sequence[Lane], layers: Sequence[int], values: np.ndarray) -> None:
        """Run lanes with all edits, and their branches behind every other k."""
        lanes: list[tuple[Lane, int, Lane | None]] = [
            (one, len(layers) - 1, None) for one in wholes
        ]
        for at, k in enumerate(layers[:-1]):
            for one in wholes:
                if k < one.entry:  # nothing is edited yet
                    values[one.cell, at, one.example] = self._base_value(one.example)
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
        sources = Sources(self._capture, self.sequences, edits, self.examples)
        packed = Packed(
            self.parts, self.base, sources, own, chunk=CHUNK, origin=self.examples.start,
            after=after,
        )  # fmt: skip
        with torch.no_grad():
            found = self._values(own, packed.offsets, packed.run())[0]
        for (lane, at, _), value in zip(lanes, found, strict=True):
            values[lane.cell, at, lane.example] = value

    def _base_value(self, example: int) -> float:
        return float(self.baseline(self.sequences.base)[0, example - self.examples.start])
