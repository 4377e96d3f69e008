"""`tk.pathways.run`: answers, probes, knockouts and patches on sets of questions."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tlkit.engine.budget import bytes_of
from tlkit.engine.route import route_of
from tlkit.engine.saved import remove
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.prompts.qa import QA
from tlkit.results.files import open as open_store
from tlkit.results.files import save
from tlkit.results.provenance import provenance
from tlkit.results.schema import build
from tlkit.studies.pathways.intervention import KINDS
from tlkit.studies.pathways.one_set import Stages, study_one
from tlkit.studies.pathways.part import GROUPS, Part, stacked, unstacked
from tlkit.studies.pathways.settings import Settings, named_sets


def run(
    model: Any,
    qa: Any,
    *,
    engine: str = "packed",
    store: str | Path | None = None,
    overwrite: bool = False,
    budget: int | str | None = None,
    stages: Stages | None = None,
    **choices: Any,
) -> Any:
    """Ask a model questions, and find what its verdict on its own answers rests on.

    Method: Luo et al. 2026 (arXiv:2601.07422); docs/studies/pathways.md says what was read there
    and what was decided here.

    Args:
        model: A loaded model.
        qa: Questions (`tk.QA`), or several sets of them.
        engine: ``"packed"``; or ``"reference"``, one hooked forward pass for each cell.
        store: A ``.zarr`` path. Each finished set is kept there, and called again the study goes
            on with the sets that are missing. Answers are kept apart, in the cache.
        overwrite: Whether another study's store is deleted, once the request has been found good.
        budget: Memory that may be taken besides the weights: bytes, or ``"4GiB"``.
        stages: Told of each stage's progress.
        **choices: Fields of `Settings`, such as ``readings``, ``mode``, ``layers``, ``seeds``.

    Returns:
        An xarray Dataset; every question is an ``example``. With the group reading ``delta_p``,
        ``delta_p_control``, ``q_anchored`` (dataset, layer, example), the same with
        ``_held_out``, ``p_wrong…``, ``probe_auc`` and ``probe_auc_control`` (dataset, layer,
        seed). With the intervention reading ``delta_p_intervention`` (dataset, kind, group,
        layer, example), its ``…_control``, ``answer_prob``, ``paired``. What could not be
        measured is NaN; ``attrs["notes"]`` (JSON) counts it and says why.

    Raises:
        SpecError: The request cannot be carried out; told before the model runs.
    """
    started = time.perf_counter()
    named, parts = named_sets(qa), Parts(model)
    settings = Settings.of(choices).checked(parts.n_layers)
    packed = packs(parts, engine)
    attrs = _about(model, named, settings, packed=packed)
    if overwrite and store is not None:
        remove(Path(store))
    done = _finished(store, attrs, named)

    def dataset(names: Sequence[str]) -> Any:
        seconds = round(time.perf_counter() - started, 3)
        more = {"complete": len(names) == len(named), "seconds": seconds}
        return _dataset({name: done[name] for name in names}, settings, parts, attrs | more)

    for name, questions in named.items():
        if name not in done:
            done[name] = study_one(
                model, questions, settings, packed=packed, budget=bytes_of(budget), stages=stages
            )
            if store is not None:
                save(dataset([n for n in named if n in done]), store, overwrite=True)
    return dataset(list(named))


def packs(parts: Parts, engine: str) -> bool:
    """Whether an engine of this name will run packed on a model.

    Raises:
        SpecError: There is no such engine.
    """
    if engine not in ("packed", "reference"):
        raise SpecError(f"There is no engine {engine!r}; the engines are packed, reference.")
    return engine == "packed" and route_of(parts).packed


def _about(
    model: Any, named: Mapping[str, QA], settings: Settings, *, packed: bool
) -> dict[str, Any]:
    """How it was made."""
    asked = "".join(f"{name} {qa.hash()}" for name, qa in named.items())
    return provenance(
        model, spec=settings.plain(), seed=settings.seed,
        engine="packed" if packed else "reference", study="pathways", mode=settings.mode,
        min_examples=settings.min_examples,
        prompt_hash=hashlib.sha256(asked.encode()).hexdigest(),
    )  # fmt: skip


def _dataset(
    done: Mapping[str, Part], settings: Settings, parts: Parts, attrs: dict[str, Any]
) -> Any:
    """All sets in one dataset."""
    variables, coords = stacked(done)
    if not variables:  # nothing could be measured; the answers are still there
        shape = (len(done), parts.n_layers, max(part.count for part in done.values()))
        variables["delta_p"] = (("dataset", "layer", "example"), np.full(shape, np.nan, np.float32),
                                "percentage points")  # fmt: skip
    labels: dict[str, Any] = {"dataset": list(done), **coords}
    dims = {dim for row in variables.values() for dim in row[0]}
    optional = {
        "layer": list(range(parts.n_layers)),
        "group": list(GROUPS),
        "kind": list(KINDS),
        "seed": list(settings.seeds),
    }
    labels |= {name: values for name, values in optional.items() if name in dims}
    notes = json.dumps({name: part.note() for name, part in done.items()})
    return build(variables, labels, {**attrs, "notes": notes})


def _finished(store: Any, attrs: dict[str, Any], named: Mapping[str, QA]) -> dict[str, Part]:
    """The sets that a store already has.

    Raises:
        SpecError: The store is of another model, of other settings or of other questions.
    """
    if store is None or not Path(store).exists():
        return {}
    dataset = open_store(store)
    same = (
        "study",
        "weight_hash",
        "tokenizer_hash",
        "spec",
        "prompt_hash",
        "engine",
        "tlkit_version",
    )
    if any(dataset.attrs.get(name) != attrs.get(name) for name in same):
        raise SpecError(
            f"{store} holds another study (other weights, questions, settings or engine); "
            f"choose another name, or delete it."
        )
    found = unstacked(dataset, json.loads(dataset.attrs["notes"]))
    return {name: part for name, part in found.items() if name in named}
