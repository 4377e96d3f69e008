"""`tk.pathways.run`: answers, probes, knockouts and patches on sets of questions."""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tlkit.engine.budget import bytes_of
from tlkit.engine.route import route_of
from tlkit.engine.saved import checked_store, remove
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.models.streamed import need_memory
from tlkit.results.files import save, settle
from tlkit.results.locking import held
from tlkit.results.provenance import provenance
from tlkit.studies.pathways.one_set import study_one
from tlkit.studies.pathways.part import Part
from tlkit.studies.pathways.sets import Asked, asked_hash, check_tokenizer, named_sets
from tlkit.studies.pathways.settings import Settings
from tlkit.studies.pathways.several import loaded, models_of
from tlkit.studies.pathways.store import (
    SAME,
    One,
    check_alike,
    dataset_of,
    finished,
    side_by_side,
)
from tlkit.studies.pathways.task import Told


def run(
    model: Any,
    qa: Any,
    *,
    engine: str = "packed",
    store: str | Path | None = None,
    overwrite: bool = False,
    budget: int | str | None = None,
    stages: Told | None = None,
    **choices: Any,
) -> Any:
    """Ask a model questions, and find what its verdict on its own answers rests on.

    Method: Luo et al. 2026 (arXiv:2601.07422); see docs/studies/pathways.md.

    Args:
        model: A loaded model; or several: a list of sources such as hub ids, or a mapping of
            names to models, sources or functions that load a model. Of several, each is loaded
            when its turn comes, if it is not yet, and let go afterwards.
        qa: Questions (`tk.QA`), answers (`tk.pathways.answer`), or several sets of them.
        engine: ``"packed"``; or ``"reference"``, one hooked forward pass for each cell.
        store: A ``.zarr`` path. Each finished part of each set is kept there, and called again
            the study goes on with what is missing; parts may be added. Answers are kept apart,
            in the cache.
        overwrite: Whether another study's store is deleted, once the request has been found good.
        budget: Memory that may be taken besides the weights: bytes, or ``"4GiB"``.
        stages: Told of each stage's progress.
        **choices: Fields of `Settings`, such as ``parts``, ``mode``, ``layers``, ``seeds``.

    Returns:
        An xarray Dataset; every answer is an ``example``; of several models along ``model``. With
        the part ``"group"`` ``delta_p``, ``delta_p_control``, ``q_anchored`` (dataset, layer,
        example), the same with ``_held_out``, ``p_wrong…``, ``probe_auc`` and
        ``probe_auc_control`` (dataset, layer, seed). With ``"intervention"``
        ``delta_p_intervention`` (dataset, kind, group, layer, example), its ``…_control``,
        ``answer_prob``, ``paired``. docs/studies/pathways.md lists those of the other parts.
        What could not be measured is NaN; ``attrs["notes"]`` (JSON) counts it and says why.

    Raises:
        SpecError: The request cannot be carried out; told before the model runs.
    """
    named, settings = named_sets(qa), Settings.of(choices).checked()
    models = (several := models_of(model)) or {"": model}
    _check(models, named, settings, engine)
    most = bytes_of(budget)
    kept = None if store is None else checked_store(Path(store))
    with contextlib.nullcontext() if kept is None else held(kept):
        if overwrite and kept is not None:
            remove(kept)
        study = _Study(named, settings, list(several), kept)
        return _carried_out(study, models, engine, most, stages)


def _carried_out(
    study: "_Study", models: Mapping[str, Any], engine: str, most: int | None, stages: Told | None
) -> Any:
    """A checked study, model by model, from what its store has on."""
    named, settings, several = study.named, study.settings, study.several
    if study.store is not None:
        settle(study.store)
    before = finished(study.store, settings, named, several)
    for name, source in models.items():
        there = before.get(name)
        if several and there and there.complete(named, settings):
            study.ones[name] = there  # not even loaded again
            continue
        told, one = _titled(stages, name), loaded(source)
        work = _Work(one, named, settings, engine, most, told, study.keep)
        study.ones[name] = work.begin(there)
        work.finish(study.ones[name])
        del work, one  # the model may go before the next one comes
    return study.dataset()


def _check(
    models: Mapping[str, Any], named: Mapping[str, Asked], settings: Settings, engine: str
) -> None:
    """Refuse what can be seen before anything is loaded or deleted.

    Raises:
        SpecError: There is no such engine, or a loaded model does not fit.
    """
    if engine not in ("packed", "reference"):
        raise SpecError(f"There is no engine {engine!r}; the engines are packed, reference.")
    for one in models.values():
        if hasattr(one, "cfg"):
            _fits(one, named, settings)


class _Study:
    """All models' results, and where they are kept.

    Args:
        named: The sets of questions.
        settings: The study's choices.
        several: The models' names; empty for one alone.
        store: Where results are kept, if anywhere.
    """

    def __init__(
        self, named: Mapping[str, Asked], settings: Settings, several: list[str],
        store: Path | None,
    ) -> None:  # fmt: skip
        self.named, self.settings, self.several, self.store = named, settings, several, store
        self.started = time.perf_counter()
        self.ones: dict[str, One] = {}

    def dataset(self) -> Any:
        """What there is so far."""
        whole = all(
            name in self.ones and self.ones[name].complete(self.named, self.settings)
            for name in self.several or [""]
        )
        more = {"complete": whole, "seconds": round(time.perf_counter() - self.started, 3)}
        if self.several:
            return side_by_side(self.ones, self.settings, more)
        return dataset_of(self.ones[""], self.settings, more)

    def keep(self) -> None:
        """Save what there is so far."""
        if self.store is not None:
            save(self.dataset(), self.store, overwrite=True)


@dataclass(frozen=True, eq=False)
class _Work:
    """One model's share of a study."""

    model: Any
    named: Mapping[str, Asked]
    settings: Settings
    engine: str
    budget: int | None
    stages: Told | None
    keep: Callable[[], None]

    def begin(self, before: One | None) -> One:
        """What a store has of it, or nothing.

        Raises:
            SpecError: The model does not fit what is asked, or what the store has.
        """
        _fits(self.model, self.named, self.settings)
        parts = Parts(self.model)
        packed = packs(parts, self.engine)
        about = _about(self.model, self.named, self.settings, packed=packed)
        if before is not None:
            check_alike(before.about, about, SAME)
        return One(about, parts.n_layers, dict(before.sets) if before else {})

    def finish(self, one: One) -> None:
        """Do what is missing, set by set."""
        for name, questions in self.named.items():
            before = one.sets.get(name)
            if before is not None and set(self.settings.asked) <= set(before.done):
                continue

            def kept(part: Part, name: str = name) -> None:
                one.sets[name] = part
                self.keep()

            study_one(
                self.model, questions, self.settings, packed=one.about["engine"] == "packed",
                budget=self.budget, stages=self.stages, before=before, keep=kept,
            )  # fmt: skip


def _fits(model: Any, named: Mapping[str, Asked], settings: Settings) -> None:
    """Refuse what a loaded model shows to be impossible.

    Raises:
        SpecError: A layer or a tokenizer does not fit, or gradients are asked of weights on disk.
    """
    settings.checked(Parts(model).n_layers)
    if "saliency" in settings.parts:
        need_memory(model, "Saliency of attention edges", "leave it out of the parts")
    check_tokenizer(model, named)


def _titled(stages: Told | None, name: str) -> Told | None:
    """Stages that say of which model they are."""
    if stages is None or not name:
        return stages
    return lambda stage: stages(f"{name}, {stage}")


def packs(parts: Parts, engine: str) -> bool:
    """Whether an engine of this name will run packed on a model."""
    return engine == "packed" and route_of(parts).packed


def _about(
    model: Any, named: Mapping[str, Asked], settings: Settings, *, packed: bool
) -> dict[str, Any]:
    """How it was made."""
    return provenance(
        model, spec=settings.plain(), seed=settings.seed,
        engine="packed" if packed else "reference", study="pathways", mode=settings.mode,
        min_examples=settings.min_examples,
        prompt_hash=asked_hash(named),
    )  # fmt: skip
