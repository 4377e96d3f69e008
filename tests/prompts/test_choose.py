"""Faults to plant: read booleans as numbers; let a number past the end mean nothing."""

import numpy as np
import pytest

from tlkit.errors import SpecError
from tlkit.prompts.choose import chosen_examples


def test_indices_mean_what_lists_and_arrays_mean_by_them():
    rows = np.arange(5)
    for which in [2, -1, slice(1, 3), slice(None, None, -2), [3, 0, 3], [-1, 1]]:
        assert chosen_examples(which, 5) == np.atleast_1d(rows[which]).tolist()
    mask = [True, False, False, True, False]
    assert chosen_examples(mask, 5) == chosen_examples(np.array(mask), 5) == [0, 3]
    assert chosen_examples(np.int64(4), 5) == [4]


def test_a_number_without_an_example_is_an_index_error():
    for which in (5, -6, [0, 5]):
        with pytest.raises(IndexError, match=r"There is no example -?[56]; there are 5"):
            chosen_examples(which, 5)


def test_other_indices_are_refused():
    for which in ("a", 1.0, [1.0], [True, 1], None):
        with pytest.raises(SpecError, match="cannot be indexed with"):
            chosen_examples(which, 5)
    with pytest.raises(SpecError, match="has 2 booleans for 5 prompts"):
        chosen_examples([True, False], 5)
    for which in (slice(3, 3), [], [False] * 5):
        with pytest.raises(SpecError, match="leaves none of the 5 prompts"):
            chosen_examples(which, 5)
