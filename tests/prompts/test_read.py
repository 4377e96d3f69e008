"""Faults to plant: count only the lines that are not blank; take null for a value; split lines at
U+2028."""

import json
import re

import pytest

from tlkit.errors import SpecError
from tlkit.prompts import read
from tlkit.prompts.read import parse_fields, read_jsonl


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "rows.jsonl"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_rows_come_back_by_name(write):
    path = write('{"q": "Who?", "answer": "I", "more": 1}\n{"q": "Who é?", "answer": "東"}\n')
    rows = read_jsonl(path, {"question": "q"}, ["question", "answer"], ["subject"])
    assert rows == [
        {"question": "Who?", "answer": "I", "subject": None},
        {"question": "Who é?", "answer": "東", "subject": None},
    ]
    assert read_jsonl(str(path), None, ["answer"], n=1) == [{"answer": "I"}]


def test_a_mark_blank_lines_and_odd_line_ends_are_no_trouble(write):
    row = json.dumps({"a": "x\u2028y"}, ensure_ascii=False)
    path = write(b"\xef\xbb\xbf" + f"{row}\r\n\n   \n{row}".encode())
    assert read_jsonl(path, None, ["a"]) == [{"a": "x\u2028y"}] * 2


def test_types_can_be_asked_for(write):
    path = write('{"n": 3, "ok": true, "names": ["a"]}')
    kinds = {"n": (int, float), "ok": bool}
    assert read_jsonl(path, None, kinds, {"names": list}) == [{"n": 3, "ok": True, "names": ["a"]}]
    with pytest.raises(SpecError, match="'ok' is True; it must be a whole number or a number"):
        read_jsonl(path, {"n": "ok"}, {"n": (int, float)})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "holds no rows"),
        ("\n \n", "holds no rows"),
        ('{"a": "x"}\n\n{"b": "y"}', "line 3: column 'a' is missing; the columns are b"),
        ("{}", "line 1: column 'a' is missing; the columns are none"),
        ('{"a": null}', "line 1: column 'a' is null; the columns are a"),
        ('{"a": ""}', "line 1: column 'a' is empty"),
        ('{"a": 5}', "line 1: column 'a' is 5; it must be text"),
        ('{"a": true}', "line 1: column 'a' is True; it must be text"),
        ('{"a": ["x"]}', "line 1: column 'a' is ['x']; it must be text"),
        ('{"a": "x"}\n{"a": "x"', "line 2 is not JSON ("),
        ('{"a": "x"} {"a": "y"}', "line 1 is not JSON (Extra data, column 12)"),
        ('[{"a": "x"}]', "line 1 is a list; the file must hold one JSON object a line"),
        ('"a"', "line 1 is text; the file must hold one JSON object a line"),
        ("null", "line 1 is null; the file must"),
        ('{"a": ' + "9" * 5000 + "}", "line 1 holds a number or a nesting that is too large"),
        ('{"a": ' + "[" * 200000, "line 1 holds a number or a nesting that is too large"),
        (b'{"a": "x"}\n{"a": "\xff"}', "line 2 is not UTF-8 text (byte 8 of the line)"),
        (b"\x1f\x8b\x08\x00zip", "line 1 is not UTF-8 text (byte 2 of the line)"),
        (b"PK\x03\x04\x00\x00\n", "line 1 holds binary data"),
        ('{"a": "x"}'.encode("utf-16"), "line 1 is not UTF-8 text"),
    ],
)
def test_a_bad_file_is_told_with_name_and_line(write, content, says):
    path = write(content)
    with pytest.raises(SpecError, match=re.escape(says)) as caught:
        read_jsonl(path, None, ["a"])
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_columns_there_are_and_the_way_out_are_told(write):
    path = write('{"clean": "x", "corrupted_abc": "y"}')
    with pytest.raises(SpecError) as caught:
        read_jsonl(path, None, ["clean", "corrupted"])
    assert str(caught.value) == (
        f"{path}, line 1: column 'corrupted' is missing; the columns are clean, corrupted_abc "
        "(--fields corrupted=COLUMN names another)."
    )


def test_an_optional_column_that_was_named_must_be_there(write):
    path = write('{"a": "x"}')
    with pytest.raises(SpecError, match="column 'who' is missing"):
        read_jsonl(path, {"subject": "who"}, ["a"], ["subject"])


def test_lines_beyond_the_limit_are_not_read_into_memory(write, monkeypatch):
    monkeypatch.setattr(read, "LONGEST_LINE", 2**20)
    path = write('{"a": "x"}\n{"a": "' + "x" * 2**20 + '"}')
    with pytest.raises(SpecError, match="line 2 is longer than 1 MiB"):
        read_jsonl(path, None, ["a"])
    assert read_jsonl(path, None, ["a"], n=1) == [{"a": "x"}]


def test_files_that_cannot_be_opened(tmp_path):
    with pytest.raises(SpecError, match="There is no file"):
        read_jsonl(tmp_path / "none.jsonl", None, ["a"])
    with pytest.raises(SpecError, match="is a folder"):
        read_jsonl(tmp_path, None, ["a"])
    with pytest.raises(SpecError, match="cannot be read"):
        read_jsonl("a\0b", None, ["a"])
    with pytest.raises(SpecError, match="cannot be read"):
        read_jsonl(tmp_path / ("x" * 5000), None, ["a"])


def test_names_and_numbers_that_make_no_sense_are_refused(write):
    path = write('{"a": "x"}')
    with pytest.raises(SpecError, match="--fields names 'b'; the names here are a, c"):
        read_jsonl(path, {"b": "a"}, ["a"], ["c"])
    with pytest.raises(SpecError, match="n is 0; ask for at least one row"):
        read_jsonl(path, None, ["a"], n=0)


def test_fields_are_parsed():
    assert parse_fields("a=b,c=d e") == {"a": "b", "c": "d e"}
    assert parse_fields(" a = b , c=d=e ") == {"a": "b", "c": "d=e"}
    assert parse_fields(None) == parse_fields("") == parse_fields("  ") == {}
    for given in ("a", "a=", "=b", "a=b,", "a=b,,c=d"):
        with pytest.raises(SpecError, match="write name=column,name=column"):
            parse_fields(given)
    with pytest.raises(SpecError, match="names 'a' twice"):
        parse_fields("a=b,a=c")
