"""What workers are told, what they give back, and who gets what.

A share is one stream of jobs that the engine would run at once, with the examples whose recorded
runs it needs. Workers load the model themselves and are told only which jobs to run; their values
come back to one place, which keeps them as any run does. So a share that is carried out twice,
because a worker was lost on the way, changes nothing.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

Where = tuple[int, int]
"""A job: its cell and its example."""


@dataclass(frozen=True)
class Task:
    """What every worker is told once.

    Attributes:
        load: Loads the model.
        weight_hash: Of the weights that it must have.
        request: Prompts, sweep, metrics and the run that is changed, as `Work` takes them.
        engine: ``"packed"`` or ``"reference"``.
        budget: Bytes that each worker may take besides the weights.
    """

    load: Callable[[], Any]
    weight_hash: str
    request: tuple[Any, Any, Any, Any]
    engine: str
    budget: int | None


@dataclass(frozen=True)
class Share:
    """Jobs that are run at once, and the examples whose recorded runs they need."""

    examples: range
    jobs: tuple[Where, ...]


@dataclass(frozen=True)
class Outcome:
    """What came of a share.

    Attributes:
        share: The share.
        values: ``[metric, job]``.
        baselines: Per run, the unchanged values of the share's examples, ``[metric, example]``.
    """

    share: Share
    values: np.ndarray
    baselines: dict[str, np.ndarray]


@runtime_checkable
class Executor(Protocol):
    """Who carries shares out."""

    def workers_of(self) -> int:
        """How many workers there will be."""
        ...

    def load_of(self, model: Any) -> Callable[[], Any]:
        """What loads the model in a worker."""
        ...

    def carry_out(self, task: Task, shares: Sequence[Share]) -> Generator[Outcome, None, None]:
        """Carry out every share, in whatever order; each comes back once."""
        ...

    def close(self) -> None:
        """Let the workers go."""
        ...


class Queue:
    """Shares that nobody has; a worker goes on with the examples whose runs it has recorded."""

    def __init__(self, shares: Sequence[Share]) -> None:
        self._left: dict[range, list[Share]] = {}
        for share in shares:
            self._left.setdefault(share.examples, []).append(share)
        self._open: dict[Any, range] = {}

    def __len__(self) -> int:
        return sum(map(len, self._left.values()))

    def take(self, worker: Any) -> Share:
        """A share for a worker: of its own examples, of nobody's, of those with most left."""
        own, others = self._open.get(worker), set(self._open.values())
        if own not in self._left:
            free = [examples for examples in self._left if examples not in others]
            own = free[0] if free else max(self._left, key=lambda one: len(self._left[one]))
        self._open[worker] = own
        share = self._left[own].pop(0)
        if not self._left[own]:
            del self._left[own]
        return share

    def give_back(self, worker: Any, share: Share) -> None:
        """A share that a worker was lost with; the next free one gets it."""
        self._open.pop(worker, None)
        self._left = {share.examples: [share, *self._left.pop(share.examples, [])], **self._left}
