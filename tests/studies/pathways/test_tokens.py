"""Replaced tokens and lone answers, on models and groups that are known."""

import numpy as np
import pytest

from tlkit.prompts.spans import Span
from tlkit.studies.answers import Answers
from tlkit.studies.pathways import by_group
from tlkit.studies.pathways.by_token import (
    REPLACED,
    alone,
    donors_of,
    flip_rates,
    flipped,
    measure,
    replaced,
)
from tlkit.studies.pathways.examples import Example
from tlkit.studies.pathways.part import Part
from tlkit.studies.pathways.settings import Settings
from tlkit.studies.pathways.task import Task

ONE = Example(
    0, (9, 10, 11, 12, 13, 14, 50, 60, 61), 6, (2, 3), (1, 4), Span(7, 9), False, "a", "r"
)
DONOR = Example(1, (9, 20, 21, 22, 23, 24, 51, 70), 6, (2, 3, 4), (1,), Span(7, 8), True, "b", "r")


def test_what_is_put_in_stands_where_the_other_stood():
    assert replaced("exact question", ONE, DONOR, 0) == (9, 10, 21, 22, 23, 13, 14, 50, 60, 61)
    assert replaced("answer tokens", ONE, DONOR, 0) == (9, 10, 11, 12, 13, 14, 50, 70)
    some = replaced("random tokens", ONE, DONOR, 0)
    assert [i for i, (a, b) in enumerate(zip(some, ONE.ids, strict=True)) if a != b] == [1, 4]
    assert {some[1], some[4]} <= {20, 24}
    assert some == replaced("random tokens", ONE, DONOR, 0)


def test_an_answer_alone_keeps_the_start_token_and_nothing_else_of_the_prompt():
    assert alone(ONE, bos=True) == (9, 50, 60, 61)
    assert alone(ONE, bos=False) == (50, 60, 61)


def test_donors_are_wrong_answers_of_other_questions():
    found = donors_of([ONE, DONOR], 0)
    assert found == [1, None]
    same = Example(2, DONOR.ids, 6, (2, 3, 4), (1,), Span(7, 8), False, "b", "r")
    assert donors_of([same, DONOR], 0) == [None, None]  # the same exact question


def test_flips_are_counted_among_right_answers_that_were_taken_for_right():
    base = np.array([[0.1, 0.2, 0.9, 0.3, 0.4]])
    changed = np.array([[0.8, 0.3, 0.1, 0.9, np.nan]])
    wrong = np.array([False, False, False, True, False])
    found = flipped(base, changed, wrong)
    np.testing.assert_array_equal(found, [[1, 0, np.nan, np.nan, np.nan]])
    rates, sizes = flip_rates(found[None], np.array([[True, False, True, True, True]]))
    np.testing.assert_array_equal(rates[0, :, 0], [1, 0])
    np.testing.assert_array_equal(sizes[0, :, 0], [1, 1])


@pytest.fixture(scope="module")
def measured(planted, planted_examples):
    reads = [i % 2 == 0 for i in range(160)]
    examples = planted_examples(160, lambda i: reads[i])
    settings = Settings(folds=4, seeds=(0,), c=1.0, parts=("tokens",))
    task = Task(planted, Answers("x", ()), examples, Part(160), settings)
    by_group.measure(task)
    measure(task)
    return task, np.array(reads)


def test_a_verdict_flips_where_the_question_decides(measured):
    task, reads = measured
    flips = dict(zip(REPLACED, task.part.variables["flipped"][1], strict=True))
    asked = ~np.isnan(flips["random tokens"][2])
    assert asked.sum() > 40
    assert np.nanmean(flips["random tokens"][1:]) == 0.0
    rates, sizes = (task.part.variables[f"flip_rate{name}"][1] for name in ("", "_n"))
    assert sizes[0, :, 2].min() >= 20
    # Questions of the other kind put no bit in: those of the own kind turn the verdict.
    assert rates[0, 0, 2] > 0.9
    assert rates[0, 1, 2] < rates[0, 0, 2] - 0.3
    assert (~reads[asked] | (task.groups_found()[2][asked])).all()


def test_an_answer_alone_says_nothing_where_the_question_decides(measured):
    task, reads = measured
    change = task.part.variables["answer_only_delta_p"][1]
    assert (change[1:][:, reads] < -20).all()
    assert (change[:, ~reads] > -5).all()
    assert np.abs(change[0]).max() < 1e-3  # nothing has been read before block 1
