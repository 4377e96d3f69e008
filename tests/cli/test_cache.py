"""`tlkit cache` against a folder of known files."""

import json

import pytest

from tlkit.cli.app import main
from tlkit.models.cache import keep


def weights(size):
    return lambda folder: (folder / "model.safetensors").write_bytes(b"x" * size)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache of two models, 3 000 000 and 40 bytes, with things beside them that are not ours."""
    root = tmp_path / "kept"
    for name, size in {"large": 3_000_000, "small": 40}.items():
        keep(root / "models" / name, weights(size))
    (root / "models" / "mine").mkdir()
    (root / "models" / "mine" / "note.txt").write_text("mine")
    (root / "models" / "note.txt").write_text("mine")
    monkeypatch.setenv("TLKIT_CACHE", str(root))
    return root


def answer(words, capsys):
    code = main(["cache", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("words", [[], ["list"]])
def test_list_says_names_and_sizes(words, folder, capsys):
    assert main(["cache", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["models/large", "3.0", "MB"],
        ["models/small", "0.0", "MB"],
    ]
    assert lines[3] == f"2 kept in {folder}, 3.0 MB"


def test_json_is_the_same_in_bytes(folder, capsys):
    code, found = answer(["list"], capsys)
    assert code == 0
    assert found["folder"] == str(folder)
    assert found["bytes"] == 3_000_040
    assert [(entry["name"], entry["bytes"]) for entry in found["kept"]] == [
        ("models/large", 3_000_000),
        ("models/small", 40),
    ]


def test_clear_deletes_one_or_all_and_no_other_file(folder, capsys):
    code, found = answer(["clear", "models/small"], capsys)
    assert (code, [entry["name"] for entry in found["deleted"]]) == (0, ["models/small"])
    assert (folder / "models" / "large" / "model.safetensors").exists()
    assert not (folder / "models" / "small").exists()
    code, found = answer(["clear"], capsys)
    assert (code, found["bytes"]) == (0, 3_000_000)
    assert (folder / "models" / "note.txt").read_text() == "mine"
    assert (folder / "models" / "mine" / "note.txt").read_text() == "mine"
    code, found = answer(["list"], capsys)
    assert (code, found["kept"], found["bytes"]) == (0, [], 0)


def test_an_unknown_name_deletes_nothing(folder, capsys):
    assert main(["cache", "clear", "models/other"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"tlkit: cache: 'models/other' is not kept in {folder}: "
        "there is models/large, models/small.\n"
    )
    assert (folder / "models" / "small" / "model.safetensors").exists()


def test_a_folder_that_is_not_there_is_empty(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TLKIT_CACHE", str(tmp_path / "nowhere"))
    assert main(["cache"]) == 0
    assert capsys.readouterr().out == f"0 kept in {tmp_path / 'nowhere'}, 0.0 MB\n"
    assert not (tmp_path / "nowhere").exists()


def test_an_unknown_action_is_refused(capsys):
    assert main(["cache", "burn"]) == 2
    line = "tlkit: Invalid value for 'action': 'burn' is not one of 'list', 'clear' "
    assert capsys.readouterr() == ("", line + "(see tlkit cache --help).\n")
