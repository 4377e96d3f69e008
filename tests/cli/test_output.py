"""Which words go to which stream."""

import json
import sys

import numpy as np

from tlkit.cli.output import Output, plain


def test_json_is_alone_on_stdout(capsys):
    with Output(as_json=True) as output:
        sys.stdout.write("a library's chatter\n")
        output.say("half way")
        output.result({"layers": np.arange(2), "top": np.float32(0.5)}, "the text")
        sys.stdout.write("more chatter\n")
    out, err = capsys.readouterr()
    assert json.loads(out) == {"layers": [0, 1], "top": 0.5}
    assert err == "a library's chatter\nhalf way\nmore chatter\n"


def test_text_goes_to_stdout_and_talk_to_stderr(capsys):
    with Output() as output:
        output.say("half way")
        output.result({"top": 1}, "[the] " + "text " * 60)
    out, err = capsys.readouterr()
    assert out == "[the] " + "text " * 60 + "\n"
    assert err == "half way\n"


def test_stdout_is_given_back_after_an_error(capsys):
    before = sys.stdout
    try:
        with Output():
            raise KeyError
    except KeyError:
        pass
    assert sys.stdout is before


def test_json_says_only_what_strict_json_can():
    values = {
        "nan": float("nan"),
        "array": np.array([1.0, np.inf]),
        3: (np.int64(4), np.bool_(True), None),
        "path": Output,
    }
    assert plain(values) == {
        "nan": None,
        "array": [1.0, None],
        "3": [4, True, None],
        "path": "<class 'tlkit.cli.output.Output'>",
    }


def test_the_bar_is_silent_unless_someone_sees_it(capsys, monkeypatch):
    monkeypatch.delenv("TLKIT_PROGRESS", raising=False)
    for forced in (None, "0", "1"):
        if forced is not None:
            monkeypatch.setenv("TLKIT_PROGRESS", forced)
        with Output() as output, output.progress() as bar:
            move = bar.stage("layers")
            move(1, 2)
            move(2, 2)
        out, err = capsys.readouterr()
        assert out == ""
        assert ("2/2" in err and "layers" in err) == (forced == "1")
