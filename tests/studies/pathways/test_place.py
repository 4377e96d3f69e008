"""Scores of probes by place, against scikit-learn and plain hooks."""

import numpy as np
import pytest
import torch
from sklearn.metrics import (
    balanced_accuracy_score,
    brier_score_loss,
    f1_score,
    roc_auc_score,
)

from tlkit.studies.pathways import given, own_questions, probes
from tlkit.studies.pathways.by_place import (
    calibration_error,
    measure,
    read_places,
    score,
    scored_by_seed,
)
from tlkit.studies.pathways.examples import examples_of
from tlkit.studies.pathways.group import Probing
from tlkit.studies.pathways.part import Part
from tlkit.studies.pathways.settings import SITES, Settings
from tlkit.studies.pathways.task import Task


@pytest.fixture(scope="module")
def task(tiny_bridge):
    model = tiny_bridge("llama3")
    answers = given(model, own_questions(60))
    settings = Settings(folds=3, seeds=(0, 1), min_examples=6, answers="given")
    return Task(model, answers, examples_of(answers, 0), Part.of(answers), settings)


def test_scores_are_scikit_learns():
    rng = np.random.default_rng(3)
    labels = (rng.random(400) < 0.3).astype(int)
    probability = np.clip(0.3 + 0.25 * labels + 0.2 * rng.normal(size=400), 0, 1).round(2)
    found, said = score(probability, labels), probability > 0.5
    assert found.auc == pytest.approx(roc_auc_score(labels, probability))
    assert found.f1 == pytest.approx(f1_score(labels, said))
    assert found.balanced_accuracy == pytest.approx(balanced_accuracy_score(labels, said))
    assert found.brier == pytest.approx(brier_score_loss(labels, probability))


def test_calibration_error_is_the_mean_gap_of_ten_bins():
    rng = np.random.default_rng(4)
    probability, labels = rng.random(500), rng.random(500) < 0.5
    total = 0.0
    for low in np.arange(10) / 10:
        inside = (probability >= low) & (probability < low + 0.1)
        total += inside.sum() * abs(probability[inside].mean() - labels[inside].mean())
    assert calibration_error(probability, labels) == pytest.approx(total / 500)
    assert calibration_error(np.array([1.0, 0.0]), np.array([1, 0])) == 0


def test_places_are_read_where_they_stand(task):
    for site in SITES:
        found = read_places(task, site)
        for i, one in list(enumerate(task.examples))[:3]:
            ids = torch.tensor([task.answers.items[one.index].ids])
            _, cache = task.model.run_with_cache(ids)
            for layer in range(3):
                whole = cache[f"blocks.{layer}.hook_{site}"][0].numpy()
                ends = [one.exact.stop - 1, len(ids[0]) - 1, one.prompt - 1]
                np.testing.assert_allclose(found[layer, i], whole[ends], atol=2e-5)


def test_all_scores_and_controls_are_kept(task):
    measure(task)
    rows = task.part.variables
    for name in ("auc", "f1", "balanced_accuracy", "brier", "ece", "auc_shuffled"):
        dims, values, _ = rows[f"place_{name}"]
        assert dims == ("site", "pos", "layer", "seed")
        assert values.shape == (3, 3, 3, 2)
    assert rows["answer_string_auc"][1] == pytest.approx([0.5, 0.5])
    # Before the answer is there, a right and a wrong one of one question look alike.
    assert rows["place_auc"][1][:, 2] == pytest.approx(0.5, abs=1e-6)
    assert np.isfinite(rows["random_features_auc"][1]).all()


def test_a_planted_signal_is_found_and_shuffled_labels_are_not():
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 2
    features = rng.normal(size=(200, 12))
    features[:, 3] += 3 * labels
    names = [f"q{i}" for i in range(200)]
    scores, chance = scored_by_seed(features, labels, names, Probing(4, (0, 1, 2)))
    assert min(one.auc for one in scores) > 0.95
    assert np.mean(chance) == pytest.approx(0.5, abs=0.1)


def test_probes_alone_have_no_examples(tiny_bridge):
    """Of one model and of two; their texts would be labels of nothing."""
    model, questions = tiny_bridge("llama3"), own_questions(60)
    asked = {"answers": "given", "folds": 3, "seeds": (0,), "min_examples": 6}
    one = probes(model, questions, **asked)
    two = probes({"a": model, "b": model}, questions, **asked)
    assert "example" not in one.sizes
    assert "example" not in two.sizes
    for name in ("a", "b"):
        np.testing.assert_array_equal(one["place_auc"], two["place_auc"].sel(model=name))
