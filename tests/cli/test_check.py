"""`tlkit check` on a tiny model: its table, its JSON, and its exit code."""

import json

import pytest

from tlkit.checks import precision
from tlkit.checks.check import Check
from tlkit.cli.app import main


def test_a_right_model_exits_0_and_json_says_what_the_table_says(capsys):
    assert main(["check", "--model", "tiny:gptj", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "Loading tiny:gptj" in err
    found = json.loads(out)
    assert (found["model"], found["passed"], found["failed"]) == ("tiny:gptj", True, [])
    by_name = {check["name"]: check for check in found["checks"]}
    assert by_name["site z"]["passed"] is True
    assert by_name["site resid_mid"]["passed"] is None
    assert by_name["logits equal Hugging Face's"]["measured"].startswith("1")

    assert main(["check", "--model", "tiny:gptj"]) == 0
    table = capsys.readouterr().out
    for name in by_name:
        assert name.split()[0] in table
    assert "FAIL" not in table
    assert table.rstrip().endswith("tiny:gptj: nothing failed.")


def test_a_failed_check_exits_1_and_is_named(capsys, monkeypatch):
    wrong = Check("drift of bfloat16", False, "nan", "It is not finite.")
    monkeypatch.setattr(precision, "drift", lambda parts, rows: wrong)
    assert main(["check", "--model", "tiny:gpt2"]) == 1
    table = capsys.readouterr().out
    assert "FAIL" in table
    assert table.rstrip().endswith("tiny:gpt2: drift of bfloat16 failed.")
    assert main(["check", "--model", "tiny:gpt2", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["failed"] == ["drift of bfloat16"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--model", "tiny:elephant"], "There is no tiny model of 'elephant'"),
        (["--device", "gpu"], "--device gpu is not a device"),
        (["--model", "/no/such/folder"], "/no/such/folder"),
    ],
)
def test_wrong_requests_exit_2_with_one_line(words, line, capsys):
    assert main(["check", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert line in err.splitlines()[-1]
