"""Cells and what each engine must give for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

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


class Backend(Protocol):
    """An engine, set up for prompts and metrics."""

    def baseline(self, run: str) -> np.ndarray:
        """Values of an unchanged run: ``[metric, example]``."""
        ...

    def values(self, jobs: Sequence[Job], progress: Progress | None = None) -> np.ndarray:
        """Values of jobs: ``[metric, job]``."""
        ...
