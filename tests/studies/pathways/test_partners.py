"""Paired questions: alike in shape, different in answer, nobody twice."""

from tlkit.prompts.spans import Span
from tlkit.studies.pathways.examples import Example
from tlkit.studies.pathways.partners import partners_of


def example(index, relation="capital", said=None, prompt=6, question=(2, 3)):
    ids = (*range(prompt), 100 + index if said is None else said)
    exact = Span(prompt, prompt + 1)
    return Example(index, ids, prompt, question, None, exact, False, str(index), relation)


def test_everybody_gets_another_one_and_nobody_is_given_twice():
    found = partners_of([example(i) for i in range(9)], seed=0)
    assert sorted(found) == list(range(9))
    assert all(other != i for i, other in enumerate(found))
    assert found != partners_of([example(i) for i in range(9)], seed=1)
    assert found == partners_of([example(i) for i in range(9)], seed=0)


def test_partners_are_of_one_relation_length_and_place():
    examples = [
        example(0), example(1),
        example(2, relation="author"), example(3, relation="author"),
        example(4, prompt=7), example(5, question=(1, 2)), example(6, question=(2,)),
    ]  # fmt: skip
    assert partners_of(examples, seed=3) == [1, 0, 3, 2, None, None, None]


def test_a_partner_has_another_answer():
    examples = [example(0, said=7), example(1, said=7), example(2, said=8), example(3, said=9)]
    for seed in range(10):
        found = partners_of(examples, seed)
        assert found[0] in (2, 3)
        assert found[1] in (2, 3)
        assert found[0] != found[1]
    assert partners_of([example(0, said=7), example(1, said=7)], seed=0) == [None, None]
    assert partners_of([], seed=0) == []
