"""Statistics against scipy, scikit-learn, and full enumeration."""

from itertools import product

import numpy as np
import pytest
import scipy.stats
from sklearn.metrics import roc_auc_score

from tlkit.errors import SpecError
from tlkit.results import statistics


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def test_t_interval_equals_scipy_along_any_axis(rng):
    data = rng.normal(2.0, 3.0, size=(4, 11, 3))
    ours = statistics.mean_interval(data, axis=1, level=0.9)
    sem = scipy.stats.sem(data, axis=1)
    low, high = scipy.stats.t.interval(0.9, 10, loc=data.mean(1), scale=sem)
    np.testing.assert_allclose(ours.mean, data.mean(1), rtol=1e-12)
    np.testing.assert_allclose(ours.low, low, rtol=1e-10)
    np.testing.assert_allclose(ours.high, high, rtol=1e-10)
    assert (ours.n == 11).all()


def test_t_interval_leaves_nan_out_cell_by_cell():
    ours = statistics.mean_interval([[1.0, np.nan, 4.0], [np.nan] * 3, [5.0, np.nan, np.nan]])
    low, high = scipy.stats.t.interval(0.95, 1, loc=2.5, scale=scipy.stats.sem([1.0, 4.0]))
    np.testing.assert_allclose([ours.low[0], ours.high[0]], [low, high], rtol=1e-10)
    assert ours.n.tolist() == [2, 0, 1]
    assert np.isnan(ours.mean[1])
    assert ours.mean[2] == 5.0
    assert np.isnan(ours.low[2])


def test_bootstrap_is_close_to_scipys_and_repeats_with_its_seed(rng):
    data = rng.exponential(size=(2, 60))
    ours = statistics.bootstrap_interval(data, seed=1, resamples=9999)
    for row in range(2):
        theirs = scipy.stats.bootstrap(
            (data[row],), np.mean, method="percentile", n_resamples=9999, rng=3
        ).confidence_interval
        assert ours.low[row] == pytest.approx(theirs.low, abs=0.015)
        assert ours.high[row] == pytest.approx(theirs.high, abs=0.015)
    np.testing.assert_array_equal(
        ours.low, statistics.bootstrap_interval(data, seed=1, resamples=9999).low
    )
    np.testing.assert_allclose(ours.mean, data.mean(1))


def test_bootstrap_with_gaps_uses_only_what_is_there():
    data = np.array([[2.0, 2.0, np.nan, 2.0], [1.0, np.nan, np.nan, np.nan]])
    ours = statistics.bootstrap_interval(data, seed=0)
    assert (ours.low[0], ours.mean[0], ours.high[0]) == (2.0, 2.0, 2.0)
    assert np.isnan(ours.low[1])


def test_sign_flip_p_approaches_the_enumerated_one(rng):
    first, second = rng.normal(0.6, 1.0, size=9), rng.normal(size=9)
    gap = first - second
    flips = [
        abs(np.dot(signs, gap)) >= abs(gap.sum()) - 1e-12 for signs in product([-1, 1], repeat=9)
    ]
    ours = statistics.paired_permutation(first, second, seed=0, permutations=20_000)
    assert ours.p_value == pytest.approx(np.mean(flips), abs=0.01)
    assert ours.difference == pytest.approx(gap.mean())


def test_sign_flip_agrees_with_scipys_permutation_test(rng):
    first, second = rng.normal(0.3, 1.0, size=14), rng.normal(size=14)
    theirs = scipy.stats.permutation_test(
        (first, second),
        lambda a, b, axis: np.mean(a - b, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    )
    ours = statistics.paired_permutation(first, second, seed=0, permutations=20_000)
    assert ours.p_value == pytest.approx(theirs.pvalue, abs=0.012)


def test_p_is_never_zero_and_never_off_by_one():
    ours = statistics.paired_permutation(np.full(40, 9.0), np.zeros(40), seed=0, permutations=99)
    assert ours.p_value == 1 / 100
    same = statistics.paired_permutation(np.ones(5), np.ones(5), seed=0, permutations=99)
    assert same.p_value == 1.0


def test_a_pair_with_a_gap_counts_for_nothing():
    first = np.array([[3.0, 1.0, np.nan, 2.0], [np.nan] * 4])
    with_gap = statistics.paired_permutation(first, np.zeros((2, 4)), seed=0)
    assert with_gap.n.tolist() == [3, 0]
    assert with_gap.difference[0] == 2.0
    assert with_gap.p_value[0] == pytest.approx(0.25, abs=0.02)  # 2 of 8 flips
    assert np.isnan(with_gap.p_value[1])


def test_sign_flip_p_is_uniform_under_the_null(rng):
    many = rng.normal(size=(400, 12))
    p = statistics.paired_permutation(many, np.zeros_like(many), seed=2, permutations=999).p_value
    assert scipy.stats.kstest(p, "uniform").pvalue > 0.01


def test_unpaired_shapes_are_refused():
    with pytest.raises(SpecError, match=r"shapes \(3,\) and \(4,\)"):
        statistics.paired_permutation(np.zeros(3), np.zeros(4), seed=0)


def test_adjusted_p_equals_scipys_and_skips_nan(rng):
    p = rng.uniform(size=(5, 8)) ** 2
    ours = statistics.benjamini_hochberg(p)
    theirs = scipy.stats.false_discovery_control(p.ravel()).reshape(p.shape)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    gaps = p.copy()
    gaps[2, 3:6] = np.nan
    ours = statistics.benjamini_hochberg(gaps)
    there = ~np.isnan(gaps)
    np.testing.assert_allclose(ours[there], scipy.stats.false_discovery_control(gaps[there]))
    assert np.isnan(ours[2, 3:6]).all()
    with pytest.raises(SpecError, match="between 0 and 1"):
        statistics.benjamini_hochberg([0.2, 1.2])


def test_auc_equals_scikit_learns_with_ties(rng):
    labels = rng.integers(0, 2, size=200).astype(bool)
    scores = np.round(rng.normal(size=200) + labels, 1)
    assert statistics.auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert statistics.auc([3.0, 3.0], [0, 1]) == 0.5
    assert np.isnan(statistics.auc([1.0, 2.0], [1, 1]))
    with pytest.raises(SpecError, match="score of NaN"):
        statistics.auc([1.0, np.nan], [0, 1])
    with pytest.raises(SpecError, match="one score a label"):
        statistics.auc([1.0, 2.0], [1])


def test_a_level_that_is_no_share_is_refused():
    with pytest.raises(SpecError, match="level of 95"):
        statistics.mean_interval([1.0, 2.0], level=95.0)


def test_the_order_of_examples_changes_no_p_value():
    rng = np.random.default_rng(0)
    data = rng.normal(size=(4, 9))
    data[1, 3] = np.nan
    order = rng.permutation(9)
    one = statistics.paired_permutation(data, np.zeros_like(data), seed=0, permutations=200)
    other = statistics.paired_permutation(
        data[:, order], np.zeros_like(data), seed=0, permutations=200
    )
    np.testing.assert_array_equal(one.p_value, other.p_value)
    np.testing.assert_allclose(one.difference, other.difference)
