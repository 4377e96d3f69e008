"""Faults to plant: ignore the field names; give a subject that occurs twice its first place."""

import json

import pytest

from tlkit.errors import SpecError
from tlkit.prompts.pairs import pairs_from_jsonl
from tlkit.prompts.prompts import Prompts


@pytest.fixture
def write(tmp_path):
    def write(*rows):
        path = tmp_path / "pairs.jsonl"
        path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
        return path

    return write


ROW = {
    "clean": "The capital of Italy is",
    "corrupted": "The capital of Bulgaria is",
    "answer": " Rome",
    "wrong_answer": " Paris",
}


def test_a_file_gives_the_pairs_that_its_rows_give(tiny, write):
    other = {**ROW, "clean": "The city of France is"}
    path = write({**ROW, "subject": "Italy"}, {**other, "subject": "France"})
    direct = Prompts.from_pairs(
        tiny,
        [ROW["clean"], other["clean"]],
        [ROW["corrupted"]] * 2,
        [" Rome"] * 2,
        [" Paris"] * 2,
        {"subject": ["Italy", "France"]},
    )
    assert pairs_from_jsonl(tiny, path) == direct
    assert pairs_from_jsonl(tiny, path, n=1) == direct[0]


def test_the_corrupted_subject_is_used_where_there_is_one(tiny, write):
    row = {**ROW, "corrupted": "In Bulgaria is", "subject": "Italy"}
    assert pairs_from_jsonl(tiny, write(row)).corrupted_spans == {"subject": (None,)}
    found = pairs_from_jsonl(tiny, write({**row, "corrupted_subject": "Bulgaria"}))
    (span,) = found.corrupted_spans["subject"]
    assert tiny.decode(list(found.corrupted[0][slice(*span)])) == "Bulgaria"


def test_subjects_that_do_not_occur_once_are_no_spans(tiny, write):
    rows = [{**ROW, "subject": subject} for subject in ("Italy", "a", "Oslo", "", None)]
    spans = pairs_from_jsonl(tiny, write(*rows, ROW)).spans["subject"]
    assert [span is not None for span in spans] == [True] + [False] * 5
    assert pairs_from_jsonl(tiny, write(ROW)).spans == {}
    alone = {**ROW, "corrupted_subject": "Bulgaria"}
    assert pairs_from_jsonl(tiny, write(alone)).corrupted_spans == {}


def test_errors_name_the_file(tiny, write):
    path = write(ROW, {**ROW, "wrong_answer": " Rome"})
    with pytest.raises(SpecError, match="Example 1: the answer and the wrong answer") as caught:
        pairs_from_jsonl(tiny, path)
    assert str(path) in str(caught.value)
    with pytest.raises(SpecError, match="line 1: column 'clean' is missing"):
        pairs_from_jsonl(tiny, write({"prompt": "x"}))


@pytest.mark.parametrize("chat", [False, True])
def test_real_pairs_have_the_tokens_that_their_makers_promise(smol, extra_data, chat):
    """The samples say: as many tokens in the clean as in the corrupted prompt, in SmolLM2."""
    files = {
        "ioi.jsonl": {"corrupted": "corrupted_abc"},
        "facts_paired.jsonl": {"wrong_answer": "corrupted_answer"},
    }
    for name, fields in files.items():
        prompts = pairs_from_jsonl(smol, extra_data / name, fields, n=60, chat=chat)
        rows = [json.loads(line) for line in (extra_data / name).open(encoding="utf-8")][:60]
        assert prompts.alignment == tuple(tuple(range(len(row))) for row in prompts.clean)
        for index, row in enumerate(rows):
            body = smol.decode(list(prompts.clean[index] + prompts.answers[index]))
            assert row["clean"] in body and body.endswith(row["answer"])
            assert prompts.differing(index)
            if "subject" in row and prompts.spans["subject"][index]:
                span = prompts.spans["subject"][index]
                covered = smol.decode(list(prompts.clean[index][slice(*span)]))
                assert covered.strip() == row["subject"]
