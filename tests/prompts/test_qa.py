import json

import pytest

from tlkit.errors import SpecError
from tlkit.prompts.qa import QA, describe_dropped

ROW = {"question": "Who wrote Emma?", "answer": "Jane Austen"}


def file_of(tmp_path, *rows):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_questions_come_from_lines_with_columns_of_any_name(tmp_path):
    row = {"ask": "Who wrote Emma?", "answer": "Jane Austen", "answer_aliases": ["Austen", "J."],
           "subject": "Emma", "subject_popularity": 7, "relation": "author"}  # fmt: skip
    qa = QA.from_jsonl(file_of(tmp_path, row), {"question": "ask"})
    assert qa.name == "rows"
    (question,) = qa
    assert question.answer_aliases == ("Jane Austen", "Austen", "J.")
    assert question.question[slice(*question.subject_span)] == "Emma"
    assert (question.popularity, question.relation) == (7.0, "author")


def test_missing_aliases_leave_the_answer_alone(tmp_path):
    (question,) = QA.from_jsonl(file_of(tmp_path, ROW | {"answer_aliases": None}))
    assert question.answer_aliases == ("Jane Austen",)


def test_an_answer_may_be_a_list_or_a_number(tmp_path):
    rows = [{"question": "a?", "answer": ["x", "y"]}, {"question": "b?", "answer": 12}]
    qa = QA.from_jsonl(file_of(tmp_path, *rows))
    assert [q.answer_aliases for q in qa] == [("x", "y"), ("12",)]


def test_what_cannot_be_judged_is_left_out_and_counted():
    qa = QA.from_rows([
        ROW,
        ROW | {"question": "who wrote  EMMA"},
        {"question": "  ", "answer": "x"},
        {"question": "Which is the River Nile?", "answer": "Nile"},
        {"question": "What?", "answer": "..."},
        {"question": "Where?", "answer": []},
        {"question": "Is tea hot?", "answer": "yes", "answer_aliases": ["hot", "!", "indeed"]},
    ])  # fmt: skip
    assert [q.question for q in qa] == ["Who wrote Emma?", "Is tea hot?"]
    assert qa[1].questions[0].answer_aliases == ("yes", "indeed")
    assert qa.dropped == {
        "question asked twice": 1,
        "empty question": 1,
        "answer inside its question": 1,
        "answer without words": 2,
        "alias inside its question": 1,
        "alias without words": 1,
    }
    assert "2 answer without words" in describe_dropped(qa)


def test_only_so_many_are_kept_and_none_is_an_error():
    rows = [{"question": f"Question {i}?", "answer": "x"} for i in range(5)]
    assert len(QA.from_rows([ROW | {"question": ""}, *rows], n=3)) == 3
    with pytest.raises(SpecError, match=r"No question of 'qa' can be used: 1 answer inside"):
        QA.from_rows([{"question": "Paris?", "answer": "Paris"}])
    with pytest.raises(SpecError, match="there are none"):
        QA.from_rows([])


@pytest.mark.parametrize("span", [[0, 99], [5, 3], [-1, 3]])
def test_a_span_outside_the_question_is_refused(tmp_path, span):
    path = file_of(tmp_path, ROW, ROW | {"question": "And Persuasion?", "subject_span": span})
    with pytest.raises(SpecError, match=r"Question 1, subject_span.*characters"):
        QA.from_jsonl(path)


def test_a_span_that_is_not_its_subject_is_refused(tmp_path):
    path = file_of(tmp_path, ROW | {"subject": "Emma", "subject_span": [9, 14]})
    with pytest.raises(SpecError, match=r"covers ' Emma', but the subject is 'Emma'"):
        QA.from_jsonl(path)


def test_a_row_without_answer_and_a_bad_count_are_refused(tmp_path):
    with pytest.raises(SpecError, match=r"line 1: column 'answer' is missing"):
        QA.from_jsonl(file_of(tmp_path, {"question": "Who?"}))
    with pytest.raises(SpecError, match="ask for at least one"):
        QA.from_jsonl(file_of(tmp_path, ROW), n=0)


def test_a_part_has_its_own_hash_and_an_equal_set_the_same():
    rows = [{"question": f"Question {i}?", "answer": "x"} for i in range(3)]
    qa = QA.from_rows(rows)
    assert qa.hash() == QA.from_rows(rows, "other").hash() != qa[:2].hash()


@pytest.mark.parametrize("name", ["popqa", "triviaqa", "hotpotqa", "nq_open"])
def test_real_samples_can_be_read(extra_data, name):
    qa = QA.from_jsonl(extra_data / f"{name}.jsonl")
    assert len(qa) >= 180
    assert all(q.exact_span for q in qa)
