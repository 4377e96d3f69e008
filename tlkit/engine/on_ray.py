"""Workers on many machines, by Ray: it places them, restarts them and asks for more machines."""

import importlib.util
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tlkit.engine.budget import bytes_of
from tlkit.engine.shares import Executor, Outcome, Queue, Share, Task
from tlkit.engine.worker import Here, Worker, load_again
from tlkit.errors import EngineError, SpecError, TlkitError


@dataclass(frozen=True)
class Ray:
    """Spreads a run over the workers of a Ray cluster, or of this machine.

    Each worker is a process that loads the model once. Needs ``pip install 'tlkit[ray]'``.

    Example:
        >>> executor = Ray(workers=8, gpus=1)  # doctest: +SKIP

    Args:
        workers: How many; one for each GPU, or for each machine where there is none, if None.
        cpus: Cores, and so threads, of each; an equal share of the cluster's if None.
        gpus: GPUs of each; 1 where the cluster has any, if None.
        memory: What Ray reserves for each, in bytes or as ``"80GiB"``; nothing if None.
        address: Of a cluster, such as ``"auto"`` or ``"10.0.0.1:6379"``; that of the variable
            ``RAY_ADDRESS`` if None, else a cluster of this machine for as long as the run takes.
        load: A function without arguments that gives the model; needed where the model that is
            given to `tk.run` was an object in memory, or is to be loaded in another way.
        restarts: How often Ray starts each worker again that was lost.
        options: Further options of Ray's actors, such as ``{"resources": {"big": 1}}``.

    Raises:
        SpecError: A number cannot be, or Ray is not installed.
    """

    workers: int | None = None
    cpus: int | None = None
    gpus: float | None = None
    memory: int | str | None = None
    address: str | None = None
    load: Callable[[], Any] | None = None
    restarts: int = 3
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if importlib.util.find_spec("ray") is None:
            raise SpecError("Ray is not installed: python -m pip install 'tlkit[ray]'.")
        if min(self.workers or 1, self.cpus or 1) < 1 or (self.gpus or 0) < 0 or self.restarts < 0:
            raise SpecError(
                f"tk.Ray needs at least one worker with one CPU: workers={self.workers}, "
                f"cpus={self.cpus}, gpus={self.gpus}, restarts={self.restarts} cannot be."
            )
        bytes_of(self.memory)

    def load_of(self, model: Any) -> Callable[[], Any]:
        """What loads the model in a worker."""
        return self.load or load_again(model)

    def workers_of(self) -> int:
        """How many workers there will be; joins the cluster, or starts one."""
        return self._sizes()[0]

    def carry_out(self, task: Task, shares: Sequence[Share]) -> Generator[Outcome, None, None]:
        """Give shares to workers as these come up and are free.

        Raises:
            EngineError: All workers were lost, or one of them failed.
        """
        crew = self._crew()
        try:
            yield from _Run(crew, _ray().put(task), Queue(shares)).outcomes()
        finally:
            for worker in crew:
                _ray().kill(worker)

    def close(self) -> None:
        """Stop a cluster that was started for the run."""
        if _STARTED:
            _STARTED.clear()
            _ray().shutdown()

    def _sizes(self) -> tuple[int, int, float]:
        """Workers, and CPUs and GPUs of each.

        Raises:
            SpecError: No machine of the cluster has room for one worker.
        """
        self._join()
        machines = [node["Resources"] for node in _ray().nodes() if node["Alive"]]
        gpus = self.gpus
        if gpus is None:
            gpus = 1.0 if any(one.get("GPU") for one in machines) else 0.0
        fitting = sum(int(one.get("GPU", 0) // gpus) for one in machines) if gpus else len(machines)
        workers = self.workers or max(1, fitting)
        cores = [int(one.get("CPU", 0)) for one in machines]
        cpus = self.cpus or max(1, min(max(cores, default=1), sum(cores) // workers))
        if not any(
            one.get("CPU", 0) >= cpus and one.get("GPU", 0) >= gpus for one in machines
        ):  # Ray would wait for ever
            raise SpecError(
                f"No machine of the Ray cluster has {cpus} CPUs and {gpus:g} GPUs for a worker."
            )
        return workers, cpus, gpus

    def _join(self) -> None:
        ray = _ray()
        if ray.is_initialized():
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
        address = self.address or os.environ.get("RAY_ADDRESS")
        quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
        if address:
            try:
                ray.init(address=address, **quiet)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise SpecError(f"There is no Ray cluster at {address} ({error}).") from error
            return
        ray.init(address="local", include_dashboard=False, **quiet)
        _STARTED.append(True)

    def _crew(self) -> list[Any]:
        """The workers, as Ray's actors; they may still have to be placed."""
        workers, cpus, gpus = self._sizes()
        ray = _ray()
        actor = ray.remote(Hand).options(
            num_cpus=cpus, num_gpus=gpus, memory=bytes_of(self.memory),
            max_restarts=self.restarts, **self.options,
        )  # fmt: skip
        return [actor.remote() for _ in range(workers)]


_STARTED: list[bool] = []
"""Holds something while a cluster runs that was started here."""


def executor_of(given: Any) -> Executor | None:
    """What `tk.run` was given.

    Raises:
        SpecError: It is no executor, or Ray is not installed.
    """
    if given == "ray":
        return Ray()
    if given is None or isinstance(given, Ray | Here):
        return given
    raise SpecError(f"executor={given!r} is none; give 'ray' or tk.Ray(workers=…).")


def _ray() -> Any:
    import ray

    return ray


class Hand:
    """A worker as an actor of Ray, which may be a new process at any call."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def ready(self, task: Task) -> None:
        """Load the model."""
        if self._worker is None:
            worker = Worker(task)
            worker.ready()
            self._worker = worker

    def carry_out(self, share: Share) -> Outcome | None:
        """Run a share's jobs; None from a process that has been started again."""
        return None if self._worker is None else self._worker.carry_out(share)


class _Run:
    """One run: who has what.

    What a restart needs is asked of Ray, to wait for. A lost worker's share is not: it goes to
    whoever is free, so that no run waits for a machine that never comes back.
    """

    def __init__(self, crew: Sequence[Any], task: Any, queue: Queue) -> None:
        self.task, self.queue = task, queue
        self.idle: list[Any] = []
        self.loading = {worker.ready.remote(task): (worker, False) for worker in crew}
        self.busy: dict[Any, tuple[Any, Share]] = {}

    def outcomes(self) -> Generator[Outcome, None, None]:
        """What workers give, as it comes."""
        while len(self.queue) or self.busy:
            self._hand_out()
            asked = [*self.busy, *self.loading]
            if not asked:
                raise EngineError(
                    "All workers were lost, more often than Ray starts them again (too little "
                    "memory?); what was finished is kept, and the same run goes on."
                )
            [ready], _ = _ray().wait(asked, num_returns=1)
            found = _got(ready)
            if ready in self.loading:
                self._loaded(ready, found is not _LOST)
            else:
                worker, share = self.busy.pop(ready)
                if found is _LOST or found is None:
                    self.queue.give_back(worker, share)
                    self._load_again(worker)
                    continue
                self.idle.append(worker)
                self._hand_out()  # before the values are written, so that nobody waits for that
                yield found

    def _hand_out(self) -> None:
        while self.idle and len(self.queue):
            worker = self.idle.pop(0)
            share = self.queue.take(worker)
            self.busy[worker.carry_out.remote(share)] = (worker, share)

    def _loaded(self, ready: Any, well: bool) -> None:
        worker, again = self.loading.pop(ready)
        if well:
            self.idle.append(worker)
        elif not again:
            self._load_again(worker)

    def _load_again(self, worker: Any) -> None:
        """Ask a worker to load the model once Ray has started it again, as often as Ray does."""
        reference = worker.ready.options(max_task_retries=-1).remote(self.task)
        self.loading[reference] = (worker, True)


_LOST = object()


def _got(reference: Any) -> Any:
    """What a worker gave, or that it was lost.

    Raises:
        EngineError: Its work failed; a SpecError, where that is what it said.
    """
    from ray import exceptions

    try:
        return _ray().get(reference)
    except exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, TlkitError):
            raise cause from None
        raise EngineError(f"A worker failed: {cause!r}.") from error
    except exceptions.RayActorError:
        return _LOST
