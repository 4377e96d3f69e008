"""The hub's data sets, from local files with the columns that they have there."""

import builtins
import json

import pytest

from tlkit.errors import SpecError
from tlkit.prompts.datasets import documents, labelled, problems
from tlkit.prompts.qa import QA

POPQA = {
    "id": 4222362, "subj": "George Rankin", "prop": "occupation", "obj": "politician",
    "subj_id": 1850297, "prop_id": 22, "obj_id": 2834605, "s_aliases": '["George James Rankin"]',
    "o_aliases": '["political leader"]', "s_uri": "http://x/Q1", "o_uri": "http://x/Q2",
    "s_wiki_title": "George Rankin", "o_wiki_title": "Politician", "s_pop": 142, "o_pop": 25692,
    "question": "What is George Rankin's occupation?",
    "possible_answers": '["politician", "political leader"]',
}  # fmt: skip
TRIVIAQA = {
    "question": "Who was the man behind The Chipmunks?", "question_id": "tc_2",
    "question_source": "http://x", "entity_pages": {"title": []}, "search_results": {"url": []},
    "answer": {"aliases": ["David Seville"], "normalized_aliases": ["david seville"],
               "normalized_value": "david seville", "type": "WikipediaEntity",
               "value": "David Seville"},
}  # fmt: skip
HOTPOTQA = {
    "id": "5a8b57f25542995d1e6f1371", "question": "Were they of one nationality?", "answer": "yes",
    "type": "comparison", "level": "hard", "supporting_facts": {"title": ["A"], "sent_id": [0]},
    "context": {"title": ["A"], "sentences": [["x"]]},
}  # fmt: skip
NQ_OPEN = {"question": "when was the last time", "answer": ["2017", "May 2017"]}
GSM8K = {"question": "How many?", "answer": "6 + 6 = <<6+6=12>>12 dollars.\n#### 1,012"}
MATH = {
    "problem": "Find $x$.", "solution": "Thus $x = \\frac{1}{2}$.", "answer": "\\frac{1}{2}",
    "subject": "Algebra", "level": 2, "unique_id": "test/algebra/1.json",
}  # fmt: skip
LONGBENCH = {
    "input": "Who is it?", "context": "A long text.", "answers": ["Ann"], "length": 3,
    "dataset": "narrativeqa", "language": "en", "all_classes": None, "_id": "ab12",
}  # fmt: skip
JAILBREAK = {"prompt": "Pretend that you are a pirate.", "type": "benign"}


@pytest.fixture
def local(tmp_path, monkeypatch):
    """Writes rows to a file that the hub's loader reads, its cache in a folder of its own."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")

    def write(*rows):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


def test_questions_of_popqa(local):
    (question,) = QA.from_hub("popqa", source=local(POPQA, POPQA))
    assert question.answer_aliases == ("politician", "political leader")
    assert question.question[slice(*question.subject_span)] == "George Rankin"
    assert (question.relation, question.popularity) == ("occupation", 142.0)


def test_questions_of_triviaqa_hotpotqa_and_nq_open(local):
    assert QA.from_hub("triviaqa", source=local(TRIVIAQA)).questions[0].answer == "David Seville"
    assert QA.from_hub("hotpotqa", source=local(HOTPOTQA)).questions[0].relation == "comparison"
    (question,) = QA.from_hub("nq_open", n=1, source=local(NQ_OPEN))
    assert question.answer_aliases == ("2017", "May 2017")


def test_problems_documents_and_labelled_prompts(local):
    (row,) = problems("gsm8k", source=local(GSM8K))
    assert row["answer"] == "1012"
    assert row["solution"] == "6 + 6 = 12 dollars."
    (row,) = problems("math-500", source=local(MATH))
    assert (row["answer"], row["topic"], row["level"]) == ("\\frac{1}{2}", "Algebra", 2)
    (row,) = documents(n=1, source=local(LONGBENCH, LONGBENCH))
    assert (row["id"], row["text"], row["answers"]) == ("ab12", "A long text.", ["Ann"])
    assert labelled(source=local(JAILBREAK)) == [
        {"prompt": "Pretend that you are a pirate.", "label": "benign"}
    ]


def test_other_columns_a_missing_file_and_an_unknown_name_are_refused(local, tmp_path):
    with pytest.raises(SpecError, match="'popqa' has no column 'obj'; it has question, answer"):
        QA.from_hub("popqa", source=local(NQ_OPEN))
    with pytest.raises(SpecError, match="There is no file"):
        QA.from_hub("popqa", source=tmp_path / "none.jsonl")
    with pytest.raises(SpecError, match="no data set 'squad' of questions here; there are popqa"):
        QA.from_hub("squad")
    with pytest.raises(SpecError, match="no data set 'gsm8k' of questions"):
        QA.from_hub("gsm8k")


def test_without_the_library_it_says_how_to_get_it(monkeypatch):
    found = builtins.__import__

    def missing(name, *rest, **more):
        if name == "datasets":
            raise ImportError(name)
        return found(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(SpecError, match=r"pip install tlkit\[hub\]"):
        QA.from_hub("popqa")


def test_what_the_library_raises_becomes_one_sentence(monkeypatch):
    datasets = pytest.importorskip("datasets")

    def fail(**_):
        raise ConnectionError("no\nnetwork")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(SpecError, match=r"cannot be loaded from akariasai/PopQA \(ConnectionError: "
                       r"no network\); give source=FILE"):  # fmt: skip
        QA.from_hub("popqa")
