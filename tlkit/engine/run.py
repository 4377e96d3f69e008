"""`tk.run`: a sweep on a model, as a labelled dataset."""

import contextlib
import time
from pathlib import Path
from typing import Any, Literal

from tlkit.engine.audit import audited
from tlkit.engine.budget import enough
from tlkit.engine.describe import described
from tlkit.engine.not_finite import tell_not_finite
from tlkit.engine.on_ray import executor_of
from tlkit.engine.refusals import check_seed
from tlkit.engine.saved import EXACT, KEY, checked_store, content_key, journal_of, remove
from tlkit.engine.shares import Executor
from tlkit.engine.spread import spread
from tlkit.engine.values import Backend, Progress
from tlkit.engine.verified import VerifiedBackend, Verify
from tlkit.engine.work import Work
from tlkit.errors import SpecError
from tlkit.results.files import save
from tlkit.results.locking import held
from tlkit.results.provenance import provenance
from tlkit.spec.callables import as_metrics
from tlkit.spec.sweeps import Sweep

ENGINES = ("packed", "reference", "gradient", "verified")


def run(
    model: Any,
    prompts: Any,
    sweep: Sweep,
    metrics: Any,
    *,
    on: Literal["clean", "corrupted"] | None = None,
    engine: str = "packed",
    store: str | Path | None = None,
    overwrite: bool = False,
    budget: int | str | None = None,
    audit: float = 0.0,
    top: int | None = None,
    remainder: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    study: str = "run",
    executor: Any = None,
) -> Any:
    """Measure metrics under every condition of a sweep, on every prompt.

    Args:
        model: A model from `tk.HookedTransformer.from_pretrained`, or a TransformerLens bridge.
        prompts: `tk.Prompts`.
        sweep: What to change: `tk.Sweep`.
        metrics: `tk.LogitDiff()` and its like, a function of logits, a list or a mapping of them.
        on: Which run is changed: the corrupted one (denoising) if there is one; or the clean one.
        engine: ``"packed"`` computes only what changes; ``"reference"``, the slow twin, makes one
            hooked pass per cell; ``"gradient"`` estimates patches from one backward pass;
            ``"verified"`` then runs the largest estimates, and a sample of the others, exactly.
        store: A ``.zarr`` path for the result. Finished cells are kept beside it as they come;
            called again after an interruption, the run goes on where it stopped.
        overwrite: Whether another run's store is deleted, once the request is found good.
        budget: Memory that the engine may take besides the weights: bytes, or ``"4GiB"``.
        audit: Share of cells that the twin runs again (``attrs["audit_difference"]``).
        top: How many of the largest estimates are run; one in 25, at least 60, if None.
        remainder: How many of the others are run; a quarter of ``top`` if None.
        seed: Chooses what is audited and sampled.
        progress: Called with (done, total).
        study: Kept in ``attrs["study"]``.
        executor: `tk.Ray` (or ``"ray"``) for workers on many machines; this process if None.

    Returns:
        An xarray Dataset: ``value``, ``effect`` (value - base), ``recovered`` ((value -
        corrupted)/(clean - corrupted); NaN where the two hardly differ), each
        ``(metric, *axes, example)``; ``clean``, ``corrupted``, ``base`` ``(metric, example)``;
        ``exact`` ``(*axes)``. A cell that an example lacks is NaN; other NaN and inf are told.

    Raises:
        SpecError: The request cannot be carried out; told before the model runs.
        EngineError: The run broke its promise, or the disk is full.
    """
    workers = _check(engine, sweep, on, audit, (top, remainder), seed, executor)
    kept = None if store is None else checked_store(Path(store))
    work = Work(model, prompts, sweep, as_metrics(metrics), on)
    backend = _backend(work, engine, budget, Verify(top, remainder, seed), workers, study)
    with contextlib.nullcontext() if kept is None else held(kept):
        if overwrite and kept is not None:
            remove(kept)
        return _carried_out(work, backend, kept, audit, progress)


def _backend(
    work: Work, engine: str, budget: int | str | None, verify: Verify, workers: Executor | None,
    study: str,
) -> tuple[Backend, str]:  # fmt: skip
    """What will do it, and why it is another than was asked for."""
    site = getattr(work.sweep.template, "site", None)
    named = {"site": site.component} if site else {}
    work.attrs = {"seed": verify.seed, "study": study, **named}
    most = enough(budget, work)
    backend, reason = work.backend(engine, most, verify)
    if workers is None:
        return backend, reason
    work.attrs["executor"] = type(workers).__name__.lower()
    return spread(backend, work, most, workers), reason


def _check(
    engine: str, sweep: Any, on: str | None, audit: float, chosen: tuple[Any, Any], seed: Any,
    executor: Any,
) -> Executor | None:  # fmt: skip
    """Refuse what needs no model to be refused."""
    check_seed(seed)
    if engine not in ENGINES:
        raise SpecError(f"There is no engine {engine!r}; the engines are {', '.join(ENGINES)}.")
    if not isinstance(sweep, Sweep):
        raise SpecError(
            f"run needs a tk.Sweep, such as tk.Sweep(tk.Patch(…), layer=…); got {sweep!r}."
        )
    if on not in (None, "clean", "corrupted"):
        raise SpecError(f"on={on!r} is no run; give 'clean' or 'corrupted'.")
    if engine != "verified" and chosen != (None, None):
        raise SpecError("top and remainder say what engine='verified' runs; give that, too.")
    if not 0 <= audit <= 1:
        raise SpecError(f"audit is a share between 0 and 1, not {audit}.")
    if executor is not None and engine not in EXACT:
        raise SpecError(f"executor spreads {' and '.join(EXACT)}, not engine={engine!r}.")
    return executor_of(executor)


def _carried_out(
    work: Work, found: tuple[Backend, str], store: Path | None, audit: float,
    progress: Progress | None,
) -> Any:  # fmt: skip
    """A checked request, run and kept."""
    started = time.perf_counter()
    backend, reason = found
    attrs = provenance(
        work.model, work.prompts, spec=described(work.sweep), engine=backend.name, **work.attrs,
        on=work.sequences.base, cells=len(work.conditions), free_jobs=work.free,
    )  # fmt: skip
    if reason:
        attrs["engine_reason"] = reason
    if isinstance(backend, VerifiedBackend):
        attrs["verify"] = str(backend.verify)
    journal = None
    if store is not None:
        key = attrs[KEY] = content_key(attrs, work.metrics, work.interventions)
        journal, whole = journal_of(store, key, len(work.metrics))
        if whole is not None:
            return whole if not audit else _audited_anew(work, whole, audit, store)
    try:
        values, baselines = work.measure(backend, progress, journal)
        if isinstance(backend, VerifiedBackend):
            attrs |= backend.findings(values, baselines["base"])
        if audit:
            attrs |= audited(work, values, audit, int(attrs["seed"]))
    except KeyboardInterrupt:
        if store is not None and journal is not None:  # with NaN where it was not finished
            kept = work.collect(journal.finished, work.baselines(backend))
            save(work.dataset(*kept, {**attrs, "complete": False}), store, overwrite=True)
        raise
    tell_not_finite(work, values, baselines, attrs)
    attrs |= {"seconds": round(time.perf_counter() - started, 3), "complete": True}
    dataset = work.dataset(values, baselines, attrs)
    if store is not None and journal is not None:
        save(dataset, store, overwrite=True)
        journal.remove()
    return dataset


def _audited_anew(work: Work, whole: Any, share: float, store: Path) -> Any:
    """A kept result, held to the twin now."""
    values = whole["value"].values.reshape(len(work.metrics), -1, len(work.prompts))
    whole = whole.assign_attrs(audited(work, values, share, int(whole.attrs["seed"])))
    save(whole, store, overwrite=True)
    return whole
