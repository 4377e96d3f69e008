"""Answers that are given: each string once as right and once as wrong."""

from collections import Counter

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from tlkit.errors import SpecError
from tlkit.prompts.qa import QA
from tlkit.studies.pathways import given, own_questions
from tlkit.studies.pathways.by_place import scored_by_seed, words_of
from tlkit.studies.pathways.examples import examples_of
from tlkit.studies.pathways.group import Probing


@pytest.fixture(scope="module")
def said(tiny_bridge):
    return given(tiny_bridge("llama"), own_questions(150))


def test_every_string_is_right_once_and_wrong_once(said):
    verdicts = {}
    for one in said:
        verdicts.setdefault(one.text, []).append(one.verdict)
    assert len(verdicts) >= 20
    assert all(sorted(several) == ["right", "wrong"] for several in verdicts.values())
    asked = Counter(one.question.question for one in said)
    assert set(asked.values()) == {2}


def test_a_right_answer_is_the_questions_own_and_a_wrong_one_of_the_same_relation(said):
    pairs = {(q.answer, q.relation) for q in own_questions(150)}
    for one in said:
        assert (one.text == one.question.answer) == (one.verdict == "right")
        assert (one.text, one.question.relation) in pairs
        if one.verdict == "wrong":
            names = {name.casefold() for name in one.question.answer_aliases}
            assert one.text.casefold() not in names


def test_the_two_questions_of_a_pair_are_never_apart(said):
    groups = {}
    for one in said:
        groups.setdefault(one.group, set()).add((one.question.question, one.text))
    assert all(len(four) == 4 for four in groups.values())
    assert {one.group for one in examples_of(said, 0)} <= set(groups)


def test_the_string_alone_says_nothing(said):
    texts, wrong = [one.text for one in said], np.array([one.verdict == "wrong" for one in said])
    groups = [one.group for one in said]
    scores, _ = scored_by_seed(words_of(texts), wrong.astype(int), groups, Probing(3, (0, 1)))
    assert [one.auc for one in scores] == pytest.approx([0.5, 0.5])
    # The same strings, their questions divided at random: what groups guard against.
    counted = CountVectorizer(token_pattern=r"\w+").fit_transform(texts)
    half = np.random.default_rng(0).random(len(texts)) < 0.5
    naive = LogisticRegression().fit(counted[half], wrong[half])
    assert roc_auc_score(wrong[~half], naive.predict_proba(counted[~half])[:, 1]) < 0.4


def test_the_tokens_are_prompt_answer_and_full_stop(said, tiny_bridge):
    tokenizer = tiny_bridge("llama").tokenizer
    for one in list(said)[:20]:
        assert tokenizer.decode(one.ids[slice(*one.exact_answer)]).strip() == one.text
        assert tokenizer.decode(one.answer_ids).strip() == f"{one.text}."
        assert one.question.question in tokenizer.decode(one.prompt_ids)


def test_base_models_get_a_space_before_the_answer(tiny_bridge):
    model = tiny_bridge("llama")
    for template, chat in (("short", None), (None, False)):
        one = given(model, own_questions(60), template=template, chat=chat).items[0]
        assert f"A: {one.text}." in model.tokenizer.decode(one.ids)


def test_questions_that_have_no_partner_are_refused(tiny_bridge):
    rows = [
        {"question": "Where is Rome?", "answer": "Italy", "relation": "place"},
        {"question": "Where is Milan?", "answer": "Italy", "relation": "place"},
        {"question": "Who is Tom?", "answer": "a cat", "relation": "person"},
    ]
    with pytest.raises(SpecError, match="No two questions of 'qa'"):
        given(tiny_bridge("llama"), QA.from_rows(rows))


def test_without_relations_the_kind_of_question_and_answer_stands_in(tiny_bridge):
    rows = [
        {"question": "Who wrote Emma?", "answer": "Jane Austen"},
        {"question": "When did it end?", "answer": "1918"},
        {"question": "Who was late?", "answer": "nobody"},
        {"question": "In what year was Rome founded?", "answer": "753"},
        {"question": "who painted Guernica", "answer": "Picasso"},
        {"question": "When was the war?", "answer": "in 1870"},
    ]
    said = given(tiny_bridge("llama"), QA.from_rows(rows))
    wrong = {one.question.answer: one.text for one in said if one.verdict == "wrong"}
    assert wrong == {
        "Jane Austen": "Picasso", "Picasso": "Jane Austen", "1918": "in 1870", "in 1870": "1918",
    }  # fmt: skip
