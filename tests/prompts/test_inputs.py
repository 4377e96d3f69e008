"""Faults to plant: take a text for a list of letters; accept True as token 1."""

import re

import numpy as np
import pytest
import torch

from tlkit.errors import SpecError
from tlkit.prompts.inputs import check_vocabulary, texts, token_rows


def test_any_list_of_texts_will_do():
    assert texts(("a", "b"), "clean") == ["a", "b"]
    assert texts(np.array(["a", "b"]), "clean", 2) == ["a", "b"]
    assert texts((word for word in "ab"), "clean") == ["a", "b"]
    assert texts(["\n"], "answers", blank=True) == ["\n"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("one text", "clean is 'one text'; give a list of texts"),
        (None, "clean is None; give a list of texts"),
        ([], "clean is empty; give at least one prompt"),
        (["a", "b", "c"], "clean has 3 entries for 2 prompts"),
        (["a", 5], "clean[1] is 5, which is not a text"),
        (["a", b"b"], "clean[1] is b'b', which is not a text"),
        (["a", " \n"], "clean[1] is empty"),
        (["a", "b \ud83d c"], "clean[1] holds half of a surrogate pair"),
    ],
)
def test_other_lists_are_refused(given, says):
    with pytest.raises(SpecError, match=re.escape(says)):
        texts(given, "clean", 2 if given else None)


def test_rows_of_ids_come_from_lists_tensors_and_arrays():
    rows = ((1, 2), (3, 4))
    for given in (rows, [[1, 2], [3, 4]], torch.tensor(rows), np.array(rows)):
        assert token_rows(given, "clean") == rows
    assert token_rows([torch.tensor([1, 2]), np.array([3, 4])], "clean") == rows
    assert token_rows([list(torch.tensor([1, 2])), [np.int32(3), 4]], "clean") == rows
    assert token_rows([7, torch.tensor(8), [9, 1]], "answers", single=True) == ((7,), (8,), (9, 1))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("12", "clean is '12'; give one list of token ids"),
        (5, "clean is 5; give one list of token ids"),
        ([], "clean is empty"),
        ([1, 2], "clean[0] is 1; give a list of token ids"),
        ([[1], []], "clean[1] is empty"),
        ([[1], [2.0]], "clean[1] holds 2.0, which is not a token id"),
        ([[1], [-1]], "clean[1] holds -1, which is not a token id"),
        ([[1], [True]], "clean[1] holds True, which is not a token id"),
        ([[1], ["2"]], "clean[1] holds '2', which is not a token id"),
        ([[1], "2"], "clean[1] is '2'; give a list of token ids"),
        ([[1]] * 3, "clean has 3 entries for 2 prompts"),
    ],
)
def test_other_rows_are_refused(given, says):
    with pytest.raises(SpecError, match=re.escape(says)):
        token_rows(given, "clean", 2 if given and given != "12" and given != 5 else None)


def test_ids_that_the_model_lacks_are_refused():
    check_vocabulary(((0, 9),), "clean", 10)
    with pytest.raises(SpecError, match=r"clean\[1\] holds token id 10; this model has 0 to 9"):
        check_vocabulary(((0, 9), (10,)), "clean", 10)
