"""Scores and controls against scikit-learn's own cross-validation and closed forms.

Faults to plant: F1 of the other class; standardising on all prompts; controls on other folds.
"""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tlkit.results.statistics import mean_interval
from tlkit.studies.layer_probes.classify import CLASSIFIERS, pipeline, scored
from tlkit.studies.layer_probes.controls import textual
from tlkit.studies.layer_probes.settings import settings
from tlkit.studies.layer_probes.study import probe_layer

COUNT, WIDTH = 60, 5


def study(**asked):
    rows = [{"prompt": f"prompt {i}", "label": "yes" if i % 2 else "no"} for i in range(COUNT)]
    return settings(rows, positive="yes", **{"features": "last", "seeds": (0,), **asked})


def activations(truth, strength, seed=0):
    x = np.random.default_rng(seed).normal(size=(len(truth), 1, WIDTH)).astype(np.float32)
    x[truth, 0, 0] += strength
    return x * np.array([1, 10, 100, 1, 1], np.float32)


def test_scores_are_scikit_learns():
    asked = study()
    x = activations(asked.rows.truth, 1.0)
    wanted = cross_validate(
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000)),
        x[:, 0].astype(float), asked.rows.truth, cv=asked.folds,
        scoring=("f1", "f1_macro", "balanced_accuracy", "roc_auc"),
    )  # fmt: skip
    found, _ = probe_layer(x, asked)
    names = ("test_f1", "test_f1_macro", "test_balanced_accuracy", "test_roc_auc")
    for at, name in enumerate(names):
        np.testing.assert_allclose(found[:, at], wanted[name], rtol=1e-12)
    assert 0.5 < found[:, 0].mean() < 0.95  # neither chance nor perfect: the numbers say something


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_every_classifier_finds_a_strong_direction(classifier):
    asked = study(classifier=classifier)
    found, _ = probe_layer(activations(asked.rows.truth, 30.0), asked)
    np.testing.assert_allclose(found, 1.0)


def test_shuffled_labels_are_at_chance_and_true_ones_are_not():
    true, chance = [], []
    for seed in range(24):
        asked = study(seeds=(seed,))
        x = activations(asked.rows.truth, 3.0, seed)
        one, other = probe_layer(x, asked)
        true.append(one[:, 2].mean())
        chance.append(other[:, 2].mean())
    interval = mean_interval(np.array(chance))
    assert interval.low < 0.5 < interval.high
    assert np.mean(true) > 0.85 > interval.high


def test_always_positive_has_f1_two_thirds_and_balanced_accuracy_one_half():
    truth = np.arange(10) % 2 == 1
    found = scored(np.ones(10, bool), np.zeros(10), truth)
    assert found.f1 == pytest.approx(2 / 3)
    assert (found.balanced_accuracy, found.auc) == (0.5, 0.5)
    never = scored(np.zeros(10, bool), np.zeros(10), truth)
    assert (never.f1, never.balanced_accuracy) == (0.0, 0.5)
    asked = study()
    rows = np.array(textual("positive", asked.rows, asked.folds, [1] * COUNT))
    np.testing.assert_allclose(rows[:, 0], 2 / 3)
    np.testing.assert_allclose(rows[:, 2], 0.5)


def test_length_and_words_read_what_their_names_say():
    asked = study()
    lengths = [20 + i % 2 for i in range(COUNT)]
    np.testing.assert_allclose(textual("length", asked.rows, asked.folds, lengths), 1.0)
    apart = np.array(textual("length", asked.rows, asked.folds, [3] * COUNT))
    np.testing.assert_allclose(apart[:, 2], 0.5)
    rows = [{"prompt": f"{'a cat' if i % 2 else 'a dog'} {i}", "label": str(i % 2)}
            for i in range(COUNT)]  # fmt: skip
    worded = settings(rows, positive="1", features="last")
    np.testing.assert_allclose(textual("words", worded.rows, worded.folds, lengths), 1.0)
    blind = np.array(textual("words", asked.rows, asked.folds, lengths))
    assert blind[:, 2].mean() < 0.7


def test_standardising_is_part_of_what_is_fitted():
    names = [name for name, _ in pipeline("rbf_svm").steps]
    assert names == ["standardscaler", "svc"]
