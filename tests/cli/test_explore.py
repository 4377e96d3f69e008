"""`tlkit explore`: what is wrong is one line before a model is loaded.

Faults to plant: load first; bind every address; read the file after the model.
"""

import json
import socket

import pytest

from tlkit.app import server
from tlkit.cli.app import main

ROW = {"clean": "The cat sat", "corrupted": "The dog sat", "answer": "yes", "wrong_answer": "no"}


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps(ROW), encoding="utf-8")
    return str(path)


@pytest.fixture(autouse=True)
def no_model(monkeypatch):
    """A model that is loaded is a failure."""
    from tlkit.models.load import HookedTransformer

    def load(*args, **options):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(HookedTransformer, "from_pretrained", load)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "explore needs one file of pairs: tlkit explore --pairs PAIRS.jsonl."),
        (["--pairs", "nowhere.jsonl"], "There is no file nowhere.jsonl."),
        (["{pairs}", "--pairs", "{pairs}"], "explore needs one file of pairs"),
        (["{pairs}", "--site", "nonsense"], "There is no site 'nonsense'"),
        (["{pairs}", "--site", "pattern"], "has no map of 'pattern'; use tlkit patch."),
        (["{pairs}", "--site", "mlp_post"], "The explorer has no map of 'mlp_post'"),
        (["{pairs}", "--metric", "nonsense"], "Invalid value for '--metric'"),
        (["{pairs}", "--port", "70000"], "Invalid value for '--port'"),
        (["{pairs}", "--device", "abacus"], "--device abacus is not a device"),
        (["{pairs}", "--fields", "clean=text"], "column 'text' is missing"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(pairs, words, line, capsys):
    code = main(["explore", *[word.format(pairs=pairs) for word in words]])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert line in err
    assert err.count("\n") == 1


def test_a_port_in_use_is_told_first(pairs, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["explore", pairs, "--port", str(port)]) == 2
    assert f"Port {port} of this machine cannot be used" in capsys.readouterr().err


def test_a_missing_extra_is_told_with_the_way_to_get_it(pairs, capsys, monkeypatch):
    monkeypatch.setattr(server, "NEEDED", ("no_such_package",))
    assert main(["explore", pairs]) == 2
    assert "pip install 'tlkit[explore]'" in capsys.readouterr().err


def test_only_loopback_is_listened_on():
    with server.listen(None) as taken:
        assert taken.getsockname()[0] == "127.0.0.1"
