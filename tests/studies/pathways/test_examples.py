"""Which tokens are cut off from which, and which are drawn as a control."""

import pytest

from tlkit.prompts.qa import Question
from tlkit.prompts.spans import Span
from tlkit.spec.attention import Knockout
from tlkit.studies.answers import Answer, Answers
from tlkit.studies.pathways.examples import control_of, cut, cut_written, examples_of


def answer(text="q", verdict="wrong", asked=(3, 10), exact_question=(5, 7), exact=(13, 15)):
    """An answer whose prompt has 12 tokens and which itself has 4."""
    return Answer(
        Question(text, "x", ("x",)), tuple(range(100, 112)), (1, 2, 3, 4), "said", verdict,
        Span(*asked), exact_question and Span(*exact_question), exact and Span(*exact),
    )  # fmt: skip


def edges(worked):
    return {
        (edit.layer, query, key)
        for edit in worked.edits
        for query in edit.positions
        for key in edit.keys
        if key <= query
    }


def test_cutting_neighbours_is_the_knockouts_own_rule():
    queries, keys = Knockout(keys=(4, 5, 6)).edges(10, 10, {}, 0)
    expected = {(layer, q, k) for layer in (0, 2) for q in queries for k in keys}
    assert edges(cut((4, 5, 6), 10, (0, 2), "zero")) == expected


def test_cutting_scattered_tokens_leaves_the_edges_between_them():
    found = edges(cut((2, 5), 8, (1,), "-inf"))
    assert found == {(1, 3, 2), (1, 4, 2), (1, 6, 2), (1, 7, 2), (1, 6, 5), (1, 7, 5)}


def test_an_answers_tokens_no_longer_see_each_other_but_themselves():
    assert edges(cut_written(5, 8, (0,), "zero")) == {(0, 6, 5), (0, 7, 5), (0, 7, 6)}


def test_where_there_is_no_edge_nothing_is_run():
    assert cut((7,), 8, (0, 1), "zero").status == "free"
    assert cut(None, 8, (0,), "zero").status == "missing"
    assert cut_written(7, 8, (0,), "zero").status == "missing"  # an answer of one token


@pytest.mark.parametrize("seed", range(20))
def test_a_control_is_as_large_and_apart_and_inside_the_question_where_it_fits(seed):
    found = control_of(answer(), (5, 6), seed)
    assert len(found) == 2
    assert set(found) <= {3, 4, 7, 8, 9}
    short = control_of(answer(asked=(4, 8)), (4, 5, 6), seed)
    assert {7} < set(short) <= {1, 2, 3, 7}  # the rest of the question, then what is before it
    wide = control_of(answer(asked=(1, 8)), tuple(range(1, 8)), seed)
    assert wide is None  # four other tokens behind it are too few
    assert control_of(answer(asked=(1, 6)), tuple(range(2, 6)), seed)[0] == 1


def test_a_control_is_the_same_for_the_same_seed_and_differs_between_questions():
    assert control_of(answer(), (5, 6), 0) == control_of(answer(), (5, 6), 0)
    drawn = {control_of(answer(f"q{i}"), (5, 6), 0) for i in range(30)}
    assert len(drawn) > 4


def test_what_is_not_judged_or_not_found_is_left_out():
    answers = Answers("qa", (
        answer(),
        answer(verdict="unknown"),
        answer(exact=None),
        answer(exact_question=None),
        answer(verdict="right"),
    ))  # fmt: skip
    first, last = examples_of(answers, seed=0)
    assert (first.index, last.index) == (0, 4)
    assert (first.wrong, last.wrong) == (True, False)
    assert first.ids == (*range(100, 112), 1, 2, 3)  # up to the exact answer's last token
    assert first.question == (5, 6)
    assert first.last == 14
    assert answers.counts() == {
        "questions": 5, "right": 1, "wrong": 3, "unknown": 1, "no exact question": 1,
        "no exact answer": 1,
    }  # fmt: skip
