"""Faults to plant: pad by letters instead of columns; lose the last fold."""

from tlkit.prompts.spans import Span
from tlkit.prompts.table import cells, shared_labels, two_rows


def test_rows_stand_one_below_the_other_with_wide_and_combined_letters():
    shown = two_rows(("clean", "corrupted"), (["東京", "e\u0301", "x"], ["ab", "é", "y"]), 80)
    assert shown == "clean      東京  e\u0301  x\ncorrupted  ab    é  y"


def test_a_long_table_is_folded_and_complete():
    row = [f"t{i}" for i in range(30)]
    shown = two_rows(("a", "b"), (row, row), 40)
    assert all(cells(line) <= 40 for line in shown.splitlines())
    first = [line.split()[1:] for line in shown.splitlines() if line.startswith("a")]
    assert [word for words in first for word in words] == row


def test_a_token_wider_than_the_page_has_its_own_fold():
    assert two_rows(("a",), (["x", "y" * 50, "z"],), 20).splitlines() == [
        "a  x",
        "",
        "a  " + "y" * 50,
        "",
        "a  z",
    ]


def test_positions_are_named_by_token_then_span_then_number():
    tokens = [["The", "cat", "sat", "down"], ["The", "dog", "ran"]]
    spans = {"who": [Span(1, 2), Span(1, 2)], "did": [Span(2, 3), None]}
    assert shared_labels(tokens, spans) == ("The", "<who>", "2", "3")
