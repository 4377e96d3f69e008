"""Faults to plant: compare answers with wrong answers by their texts; take every clean span's
positions for the corrupted prompt's."""

import pytest

from tlkit.errors import SpecError
from tlkit.prompts.parts import (
    alignment_of,
    answers_of,
    check_answers_differ,
    check_pairs_differ,
    corrupted_spans_of,
    prompts_of,
    spans_of,
)
from tlkit.prompts.spans import Span

CLEAN, CORRUPTED = ((1, 2, 3, 9),), ((1, 4, 5, 6, 9),)


def test_spans_that_are_not_given_take_the_clean_ones_places():
    spans = {"who": (Span(1, 3),), "end": (Span(3, 4),), "part": (Span(1, 2),), "none": (None,)}
    assert corrupted_spans_of(CLEAN, CORRUPTED, spans, None) == {
        "who": (Span(1, 4),),
        "end": (Span(4, 5),),
        "part": (None,),
        "none": (None,),
    }
    given = {"who": (Span(2, 4),), "part": (None,)}
    found = corrupted_spans_of(CLEAN, CORRUPTED, spans, given)
    assert (found["who"], found["part"]) == ((Span(2, 4),), (None,))


def test_names_for_the_corrupted_prompts_alone_are_refused():
    with pytest.raises(SpecError, match="corrupted_spans names 'who', which spans does not"):
        corrupted_spans_of(CLEAN, CORRUPTED, {}, {"who": (None,)})


def test_pairs_align_by_the_spans_that_both_have():
    spans = {"who": (Span(1, 3),), "x": (Span(0, 1),)}
    both = {"who": (Span(1, 4),), "x": (None,)}
    assert alignment_of(CLEAN, CORRUPTED, spans, both) == ((0, -1, -1, 2, 3),)
    assert alignment_of(CLEAN, CORRUPTED, {}, {}) == ((0, -1, -1, -1, 3),)


def test_an_answer_must_be_the_same_tokens_after_both_prompts(tiny):
    # After "x " the answer is "Paris"; after "x" it is " Paris", one token.
    sides = [prompts_of(tiny, [text], chat=False) for text in ("in ", "of")]
    with pytest.raises(SpecError, match="Example 0, answers: 'Paris' is other tokens after"):
        answers_of(tiny, sides, ["Paris"], "answers")
    alike = [prompts_of(tiny, [text], chat=False) for text in ("in", "of")]
    paris = tiny(" Paris", add_special_tokens=False)["input_ids"]
    assert len(paris) == 1
    assert answers_of(tiny, alike, ["Paris"], "answers") == (tuple(paris),)


def test_equal_answers_and_equal_prompts_are_refused():
    check_answers_differ(((1,), (2,)), ((2,), (1,)))
    check_answers_differ(((1,),), None)
    with pytest.raises(SpecError, match=r"Example 1: the answer and the wrong answer .* \[2\]"):
        check_answers_differ(((1,), (2,)), ((2,), (2,)))
    check_pairs_differ(CLEAN, CORRUPTED)
    with pytest.raises(SpecError, match=r"Example 0: nothing differs .* the same 4 tokens"):
        check_pairs_differ(CLEAN, CLEAN)


def test_a_message_names_the_example_and_the_span(tiny):
    prompts = prompts_of(tiny, ["The cat", "The dog"], chat=False)
    with pytest.raises(SpecError, match=r"Example 1, spans\['who'\]: 'cat' does not occur"):
        spans_of(prompts, {"who": ["cat", "cat"]})
