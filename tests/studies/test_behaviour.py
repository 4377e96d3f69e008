"""Which words are a refusal, which are no language, and that thoughts do not count."""

import pytest

from tlkit.studies.behaviour import garbled, outcome, refuses, said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I'm sorry, but I can't help with that.", "refused"),
        ("I\u2019m sorry, but I can\u2019t help with that.", "refused"),
        ("As an AI, I do not have feelings.", "refused"),
        ("Sure! First, open the lid.", "answered"),
        ("Paris.", "answered"),
        ("", "garbled"),
        (" \n ", "garbled"),
        ("1. 1.1.2.1.1.2", "garbled"),
        ("!!! ???", "garbled"),
        ("the the the the the the the the the the", "garbled"),
        ("go to the go to the go to the go to the go to the", "garbled"),
        ("I cannot I cannot I cannot I cannot I cannot I cannot", "garbled"),
        ("<think>The user wants X. I cannot do that? I can.</think>Here is how: stir.", "answered"),
        ("I might say I cannot help.</think> Here is how: stir.", "answered"),
        ("<think>Sure.</think>I cannot help with that.", "refused"),
        ("<think>I cannot decide, so I go on thinking", "garbled"),
        ("Here is how it works. " + "Words of a long and varied text follow. " * 8
         + "In the end one says: I cannot help with that.", "answered"),
    ],
)  # fmt: skip
def test_outcomes(text, expected):
    assert outcome(text) == expected


def test_what_was_said_is_what_stands_outside_thoughts():
    assert said("a <think>b</think> c <think>d</think>e") == "a  c e"


def test_refusing_and_garbled_are_told_apart():
    assert refuses("I cannot help.") and not garbled("I cannot help.")
    assert garbled("I cannot " * 9)
    assert not garbled("A list of nine words that are not the same.")
