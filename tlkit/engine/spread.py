"""A sweep's work in shares, each carried out by whichever worker is free."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from tlkit.engine.shares import Executor, Outcome, Share, Task
from tlkit.engine.values import Finished, Job, Progress, Shared
from tlkit.engine.work import Work
from tlkit.errors import SpecError
from tlkit.models.foreign import foreign_hooks
from tlkit.models.info import info


class Spread:
    """An engine whose jobs are carried out by workers.

    Args:
        inner: The engine as this process would run it; it shares the work out.
        task: What workers are told.
        executor: Who they are.
    """

    def __init__(self, inner: Shared, task: Task, executor: Executor) -> None:
        self.inner, self.task, self.executor = inner, task, executor
        self.name = inner.name
        self._baselines: dict[int, dict[str, np.ndarray]] = {}
        self._stopped = False

    def run(self, jobs: Sequence[Job], finished: Finished, progress: Progress | None) -> None:
        """Have all jobs run, telling of each share as it comes back."""
        number = {(job.cell, job.example): i for i, job in enumerate(jobs)}
        done = 0
        try:
            shares = [
                Share(examples, tuple((jobs[i].cell, jobs[i].example) for i in some))
                for examples, some in self.inner.shares(jobs, self.executor.workers_of())
            ]
            for outcome in self._carried_out(shares):
                if outcome.share.jobs:
                    finished([number[where] for where in outcome.share.jobs], outcome.values)
                done += len(outcome.share.jobs)
                if progress:
                    progress(done, len(jobs))
        except BaseException:
            self._stopped = True
            self.executor.close()
            raise

    def baseline(self, run: str) -> np.ndarray:
        """Values of an unchanged run: ``[metric, example]``; NaN where a run was stopped early."""
        if not self._baselines and not self._stopped:
            for _ in self._carried_out([]):
                pass
        prompts, _, metrics, _ = self.task.request
        values = np.full((len(metrics), len(prompts)), np.nan, dtype=np.float32)
        for start, found in self._baselines.items():
            values[:, start : start + found[run].shape[1]] = found[run]
        return values

    def _carried_out(self, shares: list[Share]) -> Iterator[Outcome]:
        """Every share, and one without jobs for examples that are in none."""
        covered = {i for share in shares for i in share.examples}
        for examples in self.inner.parts_of():
            if examples.start not in covered:
                shares.append(Share(examples, ()))
        try:
            with closing(self.executor.carry_out(self.task, shares)) as outcomes:
                for outcome in outcomes:
                    self._baselines[outcome.share.examples.start] = outcome.baselines
                    yield outcome
        finally:
            self.executor.close()


def spread(backend: Any, work: Work, budget: int | None, executor: Executor) -> Spread:
    """An engine, spread over an executor's workers.

    Raises:
        SpecError: The engine's work, or the model, cannot go to workers.
    """
    if not isinstance(backend, Shared):
        raise SpecError("Workers run engine='packed' and 'reference'; give one of them.")
    hook = foreign_hooks(work.parts.bridge)
    if hook is not None:
        raise SpecError(f"The model carries a hook of yours at {hook}, which workers do not have.")
    request = (work.prompts, work.sweep, work.metrics, work.sequences.base)
    load = executor.load_of(work.model)
    task = Task(load, info(work.model).weight_hash, request, backend.name, budget)
    return Spread(backend, task, executor)
