"""`tk.layer_probes.run`: at which layer are two kinds of prompt told apart?"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.models.info import info
from tlkit.prompts.prompts import Prompts
from tlkit.results.locking import held
from tlkit.results.provenance import provenance
from tlkit.results.schema import build
from tlkit.studies.layer_probes.activations import Activations, bytes_on_disk, folder_of
from tlkit.studies.layer_probes.classify import Scores, fit_and_score, pipeline
from tlkit.studies.layer_probes.controls import shuffled, textual
from tlkit.studies.layer_probes.factors import check_rank
from tlkit.studies.layer_probes.models import loaded, named
from tlkit.studies.layer_probes.settings import Asked, Settings, settings

Progress = Callable[[int, int], None]
UNITS = {"f1": "F1", "macro_f1": "F1", "balanced_accuracy": "fraction", "auc": "AUC"}


def run(
    models: Any, rows: Iterable[Any], *, positive: str, store: str | Path | None = None,
    progress: Progress | None = None, **asked: Unpack[Asked],
) -> Any:  # fmt: skip
    """Train a probe at every layer, and test it on prompts that it has not seen.

    Prompts become features: by default the coordinates of a prompt on CP (PARAFAC) factors of
    tokens x activations x prompts (Kadali & Papalexakis, arXiv:2510.06594 and 2602.11495). A
    classifier is cross-validated on them, prompts with the same text always in one fold.

    Args:
        models: A loaded model; a source such as a hub id, or several; or a mapping of names to
            models, sources, or functions that load a model. What is not loaded yet is loaded when
            its turn comes and let go afterwards.
        rows: Mappings with ``prompt`` and ``label``, perhaps with ``group``.
        positive: The label of the positive class; every other label is of the other class.
        store: A folder where activations are kept: a model whose activations are there is not
            run again, and one that was interrupted is gone on with. Without it a temporary
            folder takes them.
        progress: Called with (steps done, steps in all) of the model at hand; steps are prompts
            that are read, then layers that are probed.
        **asked: How features are made, and what is done with them: see
            `tlkit.studies.layer_probes.settings.Asked`.

    Returns:
        An xarray Dataset: ``f1`` of the positive class, ``macro_f1``, ``balanced_accuracy`` and
        ``auc`` (model, site, layer, fold), averaged over seeds; ``f1_control`` and
        ``balanced_accuracy_control`` (control, model, site, layer, fold), repeated along what a
        control does not depend on. Layers that a model does not have are NaN.

    Raises:
        SpecError: Something cannot be used; all but what a model itself decides is told before a
            model is loaded.
    """
    started = time.perf_counter()
    models, study = named(models), settings(rows, positive=positive, **asked)
    found, about = dict[str, Probed](), list[dict[str, str]]()
    with _folder(store) as folder:
        for name, source in models.items():
            own = folder_of(folder, name)
            own.parent.mkdir(parents=True, exist_ok=True)
            with held(own):
                found[name] = _one_model(loaded(source), study, own, about, progress)
    making = study.making
    attrs = provenance(
        None, engine="packed", study="layer_probes", seed=making.seeds[0],
        spec=study.described(), positive=positive, negative=study.rows.negative,
        examples=len(study.rows.texts), positives=int(study.rows.truth.sum()),
        mode="inductive" if making.inductive or making.features != "cp" else "transductive",
        features=making.features, classifier=study.classifier, chat=study.chat,
        models=", ".join(one["model"] for one in about),
        weight_hashes=", ".join(one["weight_hash"] for one in about),
        seconds=round(time.perf_counter() - started, 3),
    )  # fmt: skip
    return _dataset(found, study, attrs)


def plan(
    models: Any, rows: Iterable[Any], *, positive: str, **asked: Unpack[Asked]
) -> dict[str, Any]:
    """Say what `run` would cost, without running a model; the arguments are those of `run`.

    Returns:
        Per model: ``prompts``, ``tokens`` that it reads, ``layers``, ``bytes`` of activations on
        disk (before compression), ``decompositions`` and classifier ``fits``.

    Raises:
        SpecError: See `run`.
    """
    models, study = named(models), settings(rows, positive=positive, **asked)
    return {name: _cost(loaded(source), study) for name, source in models.items()}


def _cost(model: Any, study: Settings) -> dict[str, int]:
    making, parts = study.making, Parts(model)
    lengths = [len(ids) for ids in _prompts(model, study).clean]
    cells, seeds = parts.n_layers * len(study.sites), len(making.seeds)
    rounds = study.n_folds if making.inductive else 1
    return {
        "prompts": len(lengths),
        "tokens": sum(lengths),
        "layers": parts.n_layers,
        "bytes": bytes_on_disk(
            parts, lengths, len(study.sites), making.features, making.last_tokens
        ),
        "decompositions": cells * seeds * rounds if making.features == "cp" else 0,
        "fits": cells * seeds * study.n_folds * (1 + ("shuffled" in study.controls)),
    }


@dataclass
class Probed:
    """One model's scores: a row per layer and fold of each site, a row per fold of each control."""

    scores: dict[str, np.ndarray] = field(default_factory=dict)
    """Site to ``[layer, fold, score]``."""
    controls: dict[str, np.ndarray] = field(default_factory=dict)
    """Control to ``[fold, score]``."""
    shuffled: dict[str, np.ndarray] = field(default_factory=dict)
    """Site to ``[layer, fold, score]``."""


@contextlib.contextmanager
def _folder(store: str | Path | None) -> Iterator[Path]:
    if store is None:
        with tempfile.TemporaryDirectory(prefix="tlkit-probes-") as temporary:
            yield Path(temporary)
        return
    folder = Path(store)
    if folder.exists() and not folder.is_dir():
        raise SpecError(f"The store {folder} is a file; give a folder.")
    yield folder


def _prompts(model: Any, study: Settings) -> Prompts:
    return Prompts.from_texts(model, study.rows.texts, chat=study.chat)


def _one_model(
    model: Any, study: Settings, folder: Path, about: list[dict[str, str]],
    progress: Progress | None,
) -> Probed:  # fmt: skip
    """Read a model's activations, and probe each of its layers."""
    making, known = study.making, info(model)
    kept = Activations(
        folder, model, _prompts(model, study), study.sites, making.features, making.last_tokens
    )
    if making.features == "cp":
        smallest = min(len(train) for train, _ in study.folds)
        check_rank(making.rank, kept.places, min(making.compress, kept.parts.d_model), smallest)
    about.append({"model": known.source, "weight_hash": known.weight_hash})
    prompts, layers = len(kept.lengths), kept.parts.n_layers
    total = prompts + len(study.sites) * layers
    kept.fill(None if progress is None else lambda done, _: progress(done, total))
    found = Probed()
    for name in study.controls:
        if name != "shuffled":
            found.controls[name] = np.array(textual(name, study.rows, study.folds, kept.lengths))
    for at, site in enumerate(study.sites):
        shape = (layers, study.n_folds, len(Scores._fields))
        found.scores[site], found.shuffled[site] = np.zeros(shape), np.full(shape, np.nan)
        for layer in range(layers):
            true, chance = probe_layer(kept.layer(site, layer), study)
            found.scores[site][layer], found.shuffled[site][layer] = true, chance
            if progress:
                progress(prompts + at * layers + layer + 1, total)
    return found


def probe_layer(x: np.ndarray, study: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Scores ``[fold, score]`` of one layer's activations ``[prompt, place, d_model]``.

    Returns:
        The probe's scores, averaged over seeds; and those of one that is taught shuffled labels,
        NaN if that is not asked for.
    """
    truth, making, folds = study.rows.truth, study.making, study.folds
    true, chance = np.zeros((2, len(folds), len(Scores._fields)))
    control = "shuffled" in study.controls
    for at, seed, (train, test) in making.splits(x, folds):
        taught, wanted = truth[folds[at][0]], truth[folds[at][1]]
        true[at] += fit_and_score(pipeline(study.classifier, seed), train, taught, test, wanted)
        if control:
            other = shuffled(taught, (seed, at))
            chance[at] += fit_and_score(
                pipeline(study.classifier, seed), train, other, test, wanted
            )
    seeds = len(making.seeds)
    return true / seeds, chance / seeds if control else np.full_like(chance, np.nan)


def _dataset(found: dict[str, Probed], study: Settings, attrs: dict[str, Any]) -> Any:
    """All models side by side; layers that one lacks are NaN."""
    layers = max(one.scores[study.sites[0]].shape[0] for one in found.values())
    shape = (len(found), len(study.sites), layers, study.n_folds, len(Scores._fields))
    scores = np.full(shape, np.nan)
    controls = np.full((len(study.controls), *shape), np.nan)
    for i, one in enumerate(found.values()):
        for j, site in enumerate(study.sites):
            depth = len(one.scores[site])
            scores[i, j, :depth] = one.scores[site]
            for k, name in enumerate(study.controls):
                is_shuffled = name == "shuffled"
                rows = one.shuffled[site] if is_shuffled else one.controls[name]
                controls[k, i, j, :depth] = rows
    dims = ("model", "site", "layer", "fold")
    variables: dict[str, tuple] = {}
    for at, (name, units) in enumerate(UNITS.items()):
        variables[name] = (dims, scores[..., at], units)
        if study.controls and name in ("f1", "balanced_accuracy"):
            variables[f"{name}_control"] = (("control", *dims), controls[..., at], units)
    labels: dict[str, Any] = {"model": list(found), "site": list(study.sites)}
    if study.controls:
        labels["control"] = list(study.controls)
    return build(variables, labels, attrs)
