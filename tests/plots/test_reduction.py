"""Grouped attention keeps what a row gives away, and says how it was grouped."""

import numpy as np

from tlkit.plots.reduction import reduced


def test_short_patterns_are_untouched():
    weights = np.random.default_rng(0).random((2, 5, 5))
    same, tokens, note = reduced(weights, list("abcde"), 5)
    np.testing.assert_array_equal(same, weights)
    assert (tokens, note) == (list("abcde"), "")


def test_groups_equal_the_sum_over_keys_and_mean_over_queries():
    weights = np.random.default_rng(0).dirichlet(np.ones(7), size=(2, 7))
    small, tokens, note = reduced(weights, list("abcdefg"), 3)
    groups = [slice(0, 3), slice(3, 6), slice(6, 7)]
    for row, queries in enumerate(groups):
        for column, keys in enumerate(groups):
            expected = weights[:, queries, keys].sum(-1).mean(-1)
            np.testing.assert_allclose(small[:, row, column], expected, rtol=1e-12)
    np.testing.assert_allclose(small.sum(-1), 1.0)
    assert [label[-1] for label in tokens] == ["a", "d", "g"]
    assert "7 tokens are shown as 3 groups of 3" in note
