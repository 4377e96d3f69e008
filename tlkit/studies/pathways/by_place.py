"""What probes tell of an answer's truth, by layer, site and position, and what needs no layer.

Positions (after Orgad et al. 2025, arXiv:2410.02707): the exact answer's last token, the whole
answer's last token, and the prompt's last token, where nothing has been said yet. Scores are of
probes on questions that they have not seen, one value for each division into folds.

Controls: labels that are shuffled (what probes find where there is nothing), features drawn at
random (as many, as many examples), and a bag of the answer's words alone (what the string gives
away; with given answers it is at chance by construction).
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tlkit.results.statistics import auc
from tlkit.studies.pathways.activations import read_states
from tlkit.studies.pathways.group import Probing
from tlkit.studies.pathways.settings import PLACES
from tlkit.studies.pathways.task import Task
from tlkit.studies.probes import Trainer, divided

BINS = 10
"""Bins of equal width for the expected calibration error."""
UNITS = {
    "auc": "AUC", "f1": "F1", "balanced_accuracy": "fraction", "brier": "score", "ece": "fraction",
}  # fmt: skip


class PlaceScores(NamedTuple):
    """Scores of a probe that says "wrong" (class 1), all of held-out probabilities.

    Attributes:
        auc: How often a wrong answer gets more than a right one.
        f1: F1 of the class "wrong" at one half.
        balanced_accuracy: Mean of both classes' recall at one half.
        brier: Mean squared distance of probability and truth (Brier 1950).
        ece: Expected calibration error (Naeini et al. 2015), `BINS` bins of equal width.
    """

    auc: float
    f1: float
    balanced_accuracy: float
    brier: float
    ece: float


def measure(task: Task) -> None:
    """Add the scores of probes at every layer, site and position, and of the controls."""
    if not task.probed("Probing by place"):
        return
    settings, told = task.settings, task.told(f"{task.answers.name}: places")
    probing, labels, groups = settings.probing, task.wrong.astype(int), task.groups
    layers, seeds = task.parts.n_layers, len(probing.seeds)
    shape = (len(settings.sites), len(PLACES), layers, seeds)
    found = {name: np.zeros(shape, np.float32) for name in UNITS}
    shuffled = np.zeros(shape, np.float32)
    for i, site in enumerate(settings.sites):
        values = read_places(task, site)
        for layer in range(layers):
            for j in range(len(PLACES)):
                scores, chance = scored_by_seed(values[layer, :, j], labels, groups, probing)
                for name, row in zip(UNITS, np.array(scores).T, strict=True):
                    found[name][i, j, layer] = row
                shuffled[i, j, layer] = chance
            told(i * layers + layer + 1, len(settings.sites) * layers)
    dims = ("site", "pos", "layer", "seed")
    for name, unit in UNITS.items():
        task.part.add(f"place_{name}", dims, found[name], unit)
    task.part.add("place_auc_shuffled", dims, shuffled, "AUC")
    noise = np.random.default_rng(settings.seed).normal(size=(len(labels), task.parts.d_model))
    words = words_of([task.answers.items[one.index].text for one in task.examples])
    for name, features in (("random_features_auc", noise), ("answer_string_auc", words)):
        scores, _ = scored_by_seed(features, labels, groups, probing)
        task.part.add(name, ("seed",), np.array([s.auc for s in scores], np.float32), "AUC")


def read_places(task: Task, site: str) -> np.ndarray:
    """A site at each of `PLACES`: float32 ``[layer, example, position, d_model]``."""
    rows, positions = [], []
    for one in task.examples:
        whole = task.answers.items[one.index].ids
        rows.append(whole)
        positions.append((one.last, len(whole) - 1, one.prompt - 1))
    return read_states(task, rows, positions, site=site)


def scored_by_seed(
    features: np.ndarray, labels: np.ndarray, groups: Sequence[str], probing: Probing
) -> tuple[list[PlaceScores], list[float]]:
    """Scores of held-out probes, one for each division into folds.

    Args:
        features: ``[example, feature]``.
        labels: 0 and 1.
        groups: What must not be in training and test at once.
        probing: Folds, seeds and how probes are trained.

    Returns:
        The scores, and the AUC of probes that were taught shuffled labels.
    """
    scores, chance = [], []
    for seed in probing.seeds:
        probability, control = np.zeros((2, len(labels)))
        folds = 0.0
        for train, test, trainer, generator in _trained(features, labels, groups, probing, seed):
            how = {"c": probing.c, "balanced": probing.balanced}
            probability[test] = trainer.fit(labels[train], **how).probability(features[test])
            other = trainer.fit(generator.permutation(labels[train]), **how)
            control[test] = other.probability(features[test])
            folds += auc(control[test], labels[test]) / probing.folds
        scores.append(score(probability, labels))
        chance.append(folds)
    return scores, chance


def _trained(
    features: np.ndarray, labels: np.ndarray, groups: Sequence[str], probing: Probing, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray, Trainer, np.random.Generator]]:
    generator = np.random.default_rng(seed)
    for train, test in divided(labels, groups, probing.folds, seed):
        yield train, test, Trainer(features[train]), generator


def score(probability: np.ndarray, labels: np.ndarray) -> PlaceScores:
    """Score probabilities of class 1.

    Example:
        >>> score(np.array([0.9, 0.2, 0.6, 0.4]), np.array([1, 0, 0, 1])).auc
        0.75
    """
    said, true = probability > 0.5, np.asarray(labels).astype(bool)
    hits = float((said & true).sum())
    recall, correct = hits / true.sum(), float((~said & ~true).sum()) / (~true).sum()
    f1 = 2 * hits / (said.sum() + true.sum())
    brier = float(((probability - true) ** 2).mean())
    return PlaceScores(
        auc(probability, true), float(f1), float(recall + correct) / 2, brier,
        calibration_error(probability, true),
    )  # fmt: skip


def calibration_error(probability: np.ndarray, labels: np.ndarray) -> float:
    """Expected calibration error: the mean distance of said and true shares, over bins.

    Example:
        >>> round(calibration_error(np.array([0.9, 0.9, 0.1, 0.1]), np.array([1, 0, 0, 0])), 6)
        0.25
    """
    true = np.asarray(labels, dtype=np.float64)
    bins = np.minimum((probability * BINS).astype(int), BINS - 1)
    gaps = [
        abs(probability[bins == one].sum() - true[bins == one].sum()) for one in np.unique(bins)
    ]
    return float(sum(gaps) / len(true))


def words_of(texts: Sequence[str]) -> np.ndarray:
    """A bag of words of each text: counts, ``[text, word]``."""
    from sklearn.feature_extraction.text import CountVectorizer

    words = r"\w+|[^\w\s]"
    counted: Any = CountVectorizer(token_pattern=words).fit_transform(texts)
    return np.asarray(counted.toarray(), dtype=np.float64)
