"""What an insertion refuses, and that it is plain data."""

import dataclasses

import pytest

import tlkit as tk
from tlkit.errors import SpecError


def test_it_is_frozen_data_with_the_usual_place():
    insert = tk.Insert("/ " * 3, label="Miess")
    assert (insert.text, insert.at, insert.label) == ("/ / / ", "before_question", "Miess")
    assert insert == tk.Insert("/ / / ", "before_question", "Miess")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign"):
        insert.text = "x"


def test_no_text_is_refused():
    with pytest.raises(SpecError, match="Insert needs a text that is not empty"):
        tk.Insert("")


@pytest.mark.parametrize("at", ["middle", "", -1, True])
def test_other_places_are_refused(at):
    with pytest.raises(SpecError, match="is no place; use 'start', 'end', 'before_question' or a"):
        tk.Insert("x", at=at)
