"""A worker: a model that was loaded once, and the shares that are carried out with it."""

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from tlkit.engine.shares import Outcome, Share, Task
from tlkit.engine.values import Part, Shared
from tlkit.engine.work import Work
from tlkit.errors import EngineError, SpecError
from tlkit.models.info import info
from tlkit.models.load import HookedTransformer


class Worker:
    """Loads a model once and carries out shares with it."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._work: Work | None = None
        self._open: tuple[range, Part] | None = None
        self._baselines: dict[str, np.ndarray] = {}

    def ready(self) -> None:
        """Load the model, if that has not been done.

        Raises:
            SpecError: It cannot be loaded, or is not the one that the run is about.
        """
        if self._work is not None:
            return
        task, model = self.task, self.task.load()
        if info(model).weight_hash != task.weight_hash:
            raise SpecError(
                "A worker loaded other weights than those of the model that was given: it was "
                "changed after loading, or its source was; save it and load it from there."
            )
        work = Work(model, *task.request)
        backend, _ = work.backend(task.engine, task.budget)
        if backend.name != task.engine or not isinstance(backend, Shared):
            raise EngineError(
                f"The engine {task.engine!r} serves this model here and not at a worker."
            )
        self._backend = backend
        self._jobs = {(job.cell, job.example): job for job in work.jobs()}
        self._work = work

    def carry_out(self, share: Share) -> Outcome:
        """Run a share's jobs."""
        self.ready()
        assert self._work is not None
        part, work = self._part(share.examples), self._work
        values = np.full((len(work.metrics), len(share.jobs)), np.nan, dtype=np.float32)

        def finished(indices: Sequence[int], some: np.ndarray) -> None:
            values[:, list(indices)] = some

        if share.jobs:
            part.run([self._jobs[where] for where in share.jobs], finished)
        if not self._baselines:
            self._baselines = {run: part.baseline(run) for run in work.sequences.runs}
        return Outcome(share, values, self._baselines)

    def _part(self, examples: range) -> Part:
        """The examples' recorded runs; those of the share before are let go."""
        if self._open is None or self._open[0] != examples:
            self._open, self._baselines = None, {}
            own = [job for job in self._jobs.values() if job.example in examples]
            self._open = (examples, self._backend.part(examples, own))
        return self._open[1]


class Here:
    """The plain twin of many workers: one, in this process, with the model that is there."""

    def workers_of(self) -> int:
        """One."""
        return 1

    def load_of(self, model: Any) -> Callable[[], Any]:
        """Give the model itself."""
        return lambda: model

    def carry_out(self, task: Task, shares: Sequence[Share]) -> Generator[Outcome, None, None]:
        """One share after another."""
        worker = Worker(task)
        for share in shares:
            yield worker.carry_out(share)

    def close(self) -> None:
        """Nothing to let go."""


class Again:
    """Loads the model that another was loaded as.

    Args:
        source: What it was loaded from.
        keywords: Those of `from_pretrained`.
    """

    def __init__(self, source: Any, keywords: dict[str, Any]) -> None:
        device = keywords.get("device")
        # Each worker sees its own GPU alone, so that numbers mean nothing there.
        device = device.partition(":")[0] if device else None
        self.source, self.keywords = source, {**keywords, "device": device}

    def __call__(self) -> Any:
        """Load it."""
        return HookedTransformer.from_pretrained(self.source, **self.keywords)


def load_again(model: Any) -> Again:
    """How workers load a model.

    Raises:
        SpecError: It was an object in memory.
    """
    again = info(model).again
    if again is None:
        raise SpecError(
            "Workers load the model themselves and cannot have an object in memory: load it with "
            "from_pretrained from a name or a folder, or give tk.Ray(load=<a function that loads "
            "it>)."
        )
    return Again(*again)
