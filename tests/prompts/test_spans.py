"""Faults to plant: take the character after stop too; count BOS as touched; accept the first of
two occurrences."""

import re

import pytest

from tlkit.errors import SpecError
from tlkit.prompts.spans import Span, characters, checked_names, touched


def test_a_span_takes_each_token_that_shares_a_character_with_it():
    # "ab|cd|ef" after a BOS; by hand.
    offsets = [(0, 0), (0, 2), (2, 4), (4, 6)]
    assert touched(offsets, 0, 1) == Span(1, 2)
    assert touched(offsets, 2, 4) == Span(2, 3)
    assert touched(offsets, 1, 3) == Span(1, 3)
    assert touched(offsets, 3, 6) == Span(2, 4)


def test_every_part_of_a_character_spread_over_tokens_is_touched():
    assert touched([(0, 1), (0, 1), (0, 1), (1, 2)], 0, 1) == Span(0, 3)


def test_a_token_without_characters_is_touched_only_from_within():
    assert touched([(0, 0), (0, 1)], 0, 1) == Span(1, 2)
    assert touched([(0, 1), (1, 1), (1, 2)], 0, 2) == Span(0, 3)
    assert touched([(0, 0)], 0, 1) is None


def test_words_mean_the_place_where_they_occur_once():
    assert characters("Rome", "In Rome it rains", "here") == (3, 7)
    assert characters([3, 7], "In Rome it rains", "here") == (3, 7)
    assert characters(None, "In Rome it rains", "here") is None


@pytest.mark.parametrize(
    ("asked", "text", "says"),
    [
        ("Oslo", "In Rome", "'Oslo' does not occur in the text (7 characters: 'In Rome')"),
        ("aa", "baaa", "'aa' occurs more than once in the text (4 characters"),
        ("", "In Rome", "is an empty text"),
        ((3, 3), "In Rome", "characters 3 to 3 of a text with 7 characters are empty"),
        ((5, 3), "In Rome", "characters 5 to 3 of a text with 7 characters are empty"),
        ((3, 8), "In Rome", "lie outside the text, which has 7 characters"),
        ((-4, 7), "In Rome", "lie outside the text, which has 7 characters"),
        ((1, 2, 3), "In Rome", "give (start, stop) character offsets"),
        ((True, 2), "In Rome", "give (start, stop) character offsets"),
        ((0.0, 2.0), "In Rome", "give (start, stop) character offsets"),
        (7, "In Rome", "give (start, stop) character offsets"),
    ],
)
def test_a_span_that_means_nothing_is_refused_with_its_place(asked, text, says):
    with pytest.raises(SpecError, match="Example 3.*" + re.escape(says)):
        characters(asked, text, "Example 3, spans['subject']")


def test_lists_of_spans_have_one_entry_per_prompt():
    assert checked_names({"who": ("a", None)}, 2, "spans") == {"who": ["a", None]}
    assert checked_names(None, 2, "spans") == {}
    with pytest.raises(SpecError, match=r"spans\['who'\] has 1 entries for 2 prompts"):
        checked_names({"who": ["a"]}, 2, "spans")
    with pytest.raises(SpecError, match="give a list, one entry per prompt"):
        checked_names({"who": "ab"}, 2, "spans")
    with pytest.raises(SpecError, match="cannot be called 'end'"):
        checked_names({"end": [None]}, 1, "spans")
