"""Cells and what each engine must give for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from tlkit.engine.edits import Worked

Progress = Callable[[int, int], None]
"""Called with how many units of work are done, and how many there are."""


@dataclass(frozen=True, eq=False)
class Job:
    """A condition on one example that must be run.

    Attributes:
        cell: Index of the condition.
        example: Index of the example.
        worked: Its edits.
    """

    cell: int
    example: int
    worked: Worked


Finished = Callable[[Sequence[int], np.ndarray], None]
"""Called with the indices of jobs that are done and their values ``[metric, job]``."""


@runtime_checkable
class Backend(Protocol):
    """An engine, set up for prompts and metrics."""

    def baseline(self, run: str) -> np.ndarray:
        """Values of an unchanged run: ``[metric, example]``."""
        ...

    @property
    def name(self) -> str:
        """What it is called in results."""
        ...

    def run(self, jobs: Sequence[Job], finished: Finished, progress: Progress | None) -> None:
        """Run jobs, in whatever order and groups, telling of each group when it is done."""
        ...


@runtime_checkable
class Part(Protocol):
    """Some examples of a run, whose jobs come share by share."""

    def run(self, jobs: Sequence[Job], finished: Finished) -> None:
        """Run some of their jobs."""
        ...

    def baseline(self, run: str) -> np.ndarray:
        """Values of an unchanged run: ``[metric, example]``."""
        ...


@runtime_checkable
class Shared(Backend, Protocol):
    """An engine whose work can be shared out."""

    def parts_of(self) -> list[range]:
        """All examples, those together whose runs are recorded together."""
        ...

    def shares(self, jobs: Sequence[Job], workers: int) -> list[tuple[range, list[int]]]:
        """Jobs that belong together: the examples of which they need the runs, and indices."""
        ...

    def part(self, examples: range, jobs: Sequence[Job]) -> Part:
        """Some examples, of which these are all jobs."""
        ...
