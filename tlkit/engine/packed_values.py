"""The packed engine as a backend: groups of examples whose runs fit the memory budget."""

import sys
from collections.abc import Callable, Sequence

import numpy as np

from tlkit.engine.budget import out_of_memory
from tlkit.engine.lanes import Lane, make_lane
from tlkit.engine.packed_group import PackedGroup, order, split, token_layers
from tlkit.engine.readout import Reading
from tlkit.engine.sequences import Sequences
from tlkit.engine.values import Finished, Job, Progress
from tlkit.errors import EngineError
from tlkit.models.bridge import Parts
from tlkit.spec.readout import Metric

CHUNK = 1024
"""Tokens per call of a block: 1 024 to 2 048 were fastest on CPUs."""
DEFAULT_BUDGET = 4 * 2**30
GROUP_ROWS = 16384
"""Most packed tokens of a group."""
GROUPS = 16
"""About how many groups a large run has, so that what is finished is told, and kept, often."""


class PackedBackend:
    """Runs jobs packed along one token axis (see `tlkit.engine.packed`).

    Args:
        parts: The model.
        sequences: Token sequences.
        metrics: What is measured.
        budget: Bytes that the engine may take besides the weights.
    """

    name = "packed"

    def __init__(
        self, parts: Parts, sequences: Sequences, metrics: Sequence[Metric], *,
        budget: int | None = None,
    ) -> None:  # fmt: skip
        self.parts, self.sequences = parts, sequences
        self.budget = budget or DEFAULT_BUDGET
        self.readings = [
            Reading(metric, sequences, sequences.base, parts.device) for metric in metrics
        ]
        longest = max(map(len, sequences.runs[sequences.base]))
        self.chunk = self._first_chunk = chunk_of(parts, self.budget, longest)
        self.groups = [
            PackedGroup(parts, sequences, self.readings, examples) for examples in self._examples()
        ]

    def _examples(self) -> list[range]:
        """Neighbouring examples whose recorded runs take at most half of the budget."""
        size = 2 * run_bytes_per_token(self.parts)  # the base run, and as much for sources
        lengths = [max(map(len, both)) for both in zip(*self.sequences.runs.values(), strict=True)]
        groups, first = [], 0
        for i in range(len(lengths)):
            width = max(lengths[first : i + 1])
            each = size + working_bytes(self.parts, width)
            if i > first and (i + 1 - first) * width * each > self.budget // 2:
                groups.append(range(first, i))
                first = i
        return [*groups, range(first, len(lengths))]

    def baseline(self, run: str) -> np.ndarray:
        """Values of an unchanged run: ``[metric, example]``."""
        return np.concatenate([group.baseline(run) for group in self.groups], axis=1)

    def run(self, jobs: Sequence[Job], finished: Finished, progress: Progress | None) -> None:
        """Run jobs group by group; out of memory, with half the tokens at a time."""
        numbered = list(enumerate(jobs))
        lanes = self._lanes(jobs)
        often = self._often(lanes, GROUPS)
        total = sum(token_layers(lane, self.parts.n_layers) for lane in lanes)
        done = 0

        def told(count: int) -> None:
            nonlocal done
            done += count
            if progress:
                progress(done, total)

        for group in self.groups:
            left = {i: job for i, job in numbered if job.example in group.examples}
            self.run_group(group, left, often, finished, told)

    def run_group(
        self, group: PackedGroup, left: dict[int, Job], often: int, finished: Finished,
        told: Callable[[int], None],
    ) -> None:  # fmt: skip
        """Run numbered jobs of one group, at most ``often`` tokens to a stream."""

        def kept(indices: Sequence[int], values: np.ndarray) -> None:
            finished(indices, values)
            for index in indices:
                del left[index]

        while left:
            try:
                group.run(list(left.items()), kept, self.chunk, min(often, self._room()), told)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                if self.chunk <= 16:
                    raise EngineError(
                        "Out of memory even with 16 tokens at a time; use fewer or shorter "
                        "prompts, or a smaller dtype."
                    ) from error
                self.chunk //= 2

    def parts_of(self) -> list[range]:
        """All examples, those together whose runs are recorded together."""
        return [group.examples for group in self.groups]

    def shares(self, jobs: Sequence[Job], workers: int) -> list[tuple[range, list[int]]]:
        """The streams that `run` would make: each group's examples, and indices of jobs."""
        lanes = self._lanes(jobs)
        room = min(self._often(lanes, max(GROUPS, 4 * workers)), self._room())
        found = []
        for group in self.groups:
            own = sorted((lane for lane in lanes if lane.example in group.examples), key=order)
            found += [(group.examples, [lane.cell for lane in some]) for some in split(own, room)]
        return found

    def part(self, examples: range, jobs: Sequence[Job]) -> "PackedPart":
        """Some examples, whose jobs are run share by share."""
        return PackedPart(self, examples, jobs)

    def _lanes(self, jobs: Sequence[Job]) -> list[Lane]:
        return [make_lane(i, j.example, j.worked, self.sequences) for i, j in enumerate(jobs)]

    def _often(self, lanes: Sequence[Lane], groups: int) -> int:
        """Most tokens of a stream, so that what is finished is told often."""
        rows = sum(lane.rows for lane in lanes)
        return max(self.chunk, rows if self.parts.streamed else -(-rows // groups))

    def _room(self) -> int:
        """Packed tokens whose streams take at most a quarter of the budget."""
        return max(
            self.chunk, int(most_rows(self.parts, self.budget) * self.chunk / self._first_chunk)
        )


class PackedPart:
    """Some examples of a packed run; their recorded runs are kept from share to share.

    Args:
        backend: The whole run.
        examples: Which examples.
        jobs: All of their jobs.
    """

    def __init__(self, backend: PackedBackend, examples: range, jobs: Sequence[Job]) -> None:
        self.backend = backend
        every = [edit for job in jobs for edit in job.worked.edits]
        self.group = PackedGroup(
            backend.parts, backend.sequences, backend.readings, examples, every
        )

    def run(self, jobs: Sequence[Job], finished: Finished) -> None:
        """Run some of the jobs, all in one stream where that fits the memory."""
        self.backend.run_group(
            self.group, dict(enumerate(jobs)), sys.maxsize, finished, lambda _: None
        )

    def baseline(self, run: str) -> np.ndarray:
        """Values of an unchanged run: ``[metric, example]``."""
        return self.group.baseline(run)


def run_bytes_per_token(parts: Parts) -> int:
    """Bytes that a recorded run keeps of each token."""
    stream = (parts.n_layers + 2) * parts.d_model
    cached = 2 * parts.n_layers * parts.n_kv_heads * parts.d_head
    return (stream + cached) * parts.dtype.itemsize


def chunk_of(parts: Parts, budget: int | None, length: int) -> int:
    """Tokens per call of a block; fewer where weights are on disk and the budget is small."""
    each = working_bytes(parts, length)
    fit = (budget or DEFAULT_BUDGET) // 4 // each if each else CHUNK
    return max(16, min(CHUNK, fit))


def most_rows(parts: Parts, budget: int | None) -> int:
    """Packed tokens whose streams take at most a quarter of the budget.

    There is no other limit where each group reads the weights from disk anew.
    """
    room = (budget or DEFAULT_BUDGET) // 4 // (parts.d_model * parts.dtype.itemsize)
    return room if parts.streamed else min(GROUP_ROWS, room)


def working_bytes(parts: Parts, length: int) -> int:
    """Bytes of a token while a block is recorded, its row of attention weights with them.

    Counted where blocks come from disk, for there memory is short and groups are large.
    """
    if not parts.streamed:
        return 0
    size = parts.dtype.itemsize
    width = getattr(parts.config, "intermediate_size", None) or 4 * parts.d_model
    return 4 * width * size + length * parts.n_heads * (8 + size)
