"""Probes against scikit-learn's own pipeline and scores, and their controls."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tlkit.errors import SpecError
from tlkit.results.statistics import auc
from tlkit.studies.probes import Probe, cross_fitted, divided, halves


def drawn(count, width, seed=0, strength=1.0):
    """Two classes a little apart, on features of very different scales."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) % 3 == 0).astype(int)
    features = rng.normal(size=(count, width)) + strength * labels[:, None] * (np.arange(width) < 3)
    return (features * rng.uniform(0.01, 50, width) + 7).astype(np.float32), labels


@pytest.mark.parametrize("width", [5, 60, 300])
@pytest.mark.parametrize("balanced", [True, False])
def test_a_probe_is_scikit_learns_pipeline(width, balanced):
    features, labels = drawn(100, width)
    features[:, 0] = 3.25  # says nothing
    theirs = make_pipeline(
        StandardScaler(),
        LogisticRegression(
            C=0.1, class_weight="balanced" if balanced else None, tol=1e-8, max_iter=5000
        ),
    ).fit(features.astype(float), labels)
    probe = Probe.fit(features, labels, c=0.1, balanced=balanced)
    other, _ = drawn(50, width, seed=1)
    expected = theirs.predict_proba(other.astype(float))[:, 1]
    np.testing.assert_allclose(probe.probability(other), expected, atol=2e-5)


def test_auc_is_scikit_learns():
    features, labels = drawn(80, 20)
    scores = np.round(Probe.fit(features, labels).logits(features), 1)  # with ties
    assert auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


def test_its_direction_is_where_the_probability_rises():
    features, labels = drawn(200, 4, strength=4.0)
    probe = Probe.fit(features, labels)
    step = probe.direction().vector.numpy()[0]
    assert probe.direction().cosine(probe.direction()) == pytest.approx(1.0)
    assert (probe.logits(features + step) > probe.logits(features)).all()


def test_held_out_scores_are_those_of_a_loop_over_folds():
    features, labels = drawn(90, 30, strength=2.0)
    groups = [str(i // 2) for i in range(90)]
    labels = np.repeat(labels[::2], 2)
    found = cross_fitted({"base": features[None], "shifted": features[None] + 1}, labels, groups,
                         folds=3, seeds=(4,), c=0.1)  # fmt: skip
    split = StratifiedGroupKFold(3, shuffle=True, random_state=4)
    scores = []
    for train, test in split.split(features, labels, groups):
        theirs = make_pipeline(
            StandardScaler(),
            LogisticRegression(C=0.1, class_weight="balanced", tol=1e-8, max_iter=5000),
        ).fit(features[train].astype(float), labels[train])
        expected = theirs.predict_proba(features[test].astype(float))[:, 1]
        np.testing.assert_allclose(found.probability["base"][0, test], expected, atol=2e-5)
        moved = theirs.predict_proba(features[test].astype(float) + 1)[:, 1]
        np.testing.assert_allclose(found.probability["shifted"][0, test], moved, atol=2e-5)
        scores.append(roc_auc_score(labels[test], expected))
    assert found.auc[0, 0] == pytest.approx(np.mean(scores), abs=1e-9)


def test_a_question_is_never_on_both_sides():
    labels = np.arange(60) % 2
    groups = [str(i // 3) for i in range(60)]
    seen = []
    for train, test in divided(labels, groups, 4, seed=0):
        assert not {groups[i] for i in train} & {groups[i] for i in test}
        seen += test.tolist()
    assert sorted(seen) == list(range(60))
    first = halves(labels, groups, seed=0)
    one, other = ({groups[i] for i in np.flatnonzero(half)} for half in (first, ~first))
    assert not one & other
    assert 20 <= first.sum() <= 40


def test_shuffled_labels_are_at_chance_where_true_ones_are_not():
    features, labels = drawn(200, 40, strength=1.5)
    groups = [str(i) for i in range(200)]
    seeds = range(6)
    found = cross_fitted({"base": features[None]}, labels, groups, seeds=seeds, control=True)
    assert found.auc.mean() > 0.9
    assert found.auc_control.mean() == pytest.approx(0.5, abs=0.1)
    assert (np.abs(found.auc_control - 0.5) < 0.2).all()


def test_only_the_examples_that_are_named_are_learned_from():
    features, labels = drawn(100, 10, strength=3.0)
    labels[50:] = 1 - labels[50:]  # the second half teaches the opposite
    groups = [str(i) for i in range(100)]
    first = np.arange(100) < 50
    kept = cross_fitted({"base": features[None]}, labels, groups, among=first)
    other = cross_fitted({"base": features[None]}, labels, groups, among=~first)
    assert auc(kept.probability["base"][0, :50], labels[:50]) > 0.9
    assert auc(other.probability["base"][0, :50], labels[:50]) < 0.1


def test_one_class_too_few_questions_and_broken_activations_are_refused():
    features, labels = drawn(20, 5)
    with pytest.raises(SpecError, match="examples of two classes; all 20 are of one"):
        Probe.fit(features, np.ones(20))
    with pytest.raises(SpecError, match=r"Class 1 has 1 questions, too few for 5 folds"):
        list(divided(np.arange(20) < 3, ["a"] * 5 + [str(i) for i in range(15)], 5, 0))
    features[0, 0] = np.nan
    with pytest.raises(SpecError, match="finite activations"):
        Probe.fit(features, labels)
