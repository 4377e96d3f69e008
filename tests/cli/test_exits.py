"""Exit codes and the one line on stderr."""

import subprocess
import sys

import pytest
import typer

from tlkit.cli.exits import Interrupted, exit_code, keeping, one_line
from tlkit.errors import EngineError, SpecError


def raiser(error):
    def command():
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (SpecError("no such\n file"), 2, "tlkit: no such file\n"),
        (typer.BadParameter("7 is odd"), 2, "tlkit: Invalid value: 7 is odd (see tlkit --help).\n"),
        (EngineError("the hook never fired"), 1, "tlkit: the hook never fired\n"),
        (OSError("disk full"), 1, "tlkit: OSError: disk full (TLKIT_DEBUG=1 shows where)\n"),
        (KeyboardInterrupt(), 130, "Interrupted: nothing was kept.\n"),
        (Interrupted("x.zarr has it."), 130, "Interrupted: x.zarr has it.\n"),
    ],
)
def test_a_failure_is_one_line_and_a_code(error, code, line, capsys, monkeypatch):
    monkeypatch.delenv("TLKIT_DEBUG", raising=False)
    assert exit_code(raiser(error)) == code
    out, err = capsys.readouterr()
    assert (out, err) == ("", line)


def test_what_a_command_returns_is_its_code(capsys):
    assert [exit_code(lambda value=value: value) for value in (None, 0, 1)] == [0, 0, 1]
    assert capsys.readouterr().err == ""


def test_debug_shows_where(capsys, monkeypatch):
    monkeypatch.setenv("TLKIT_DEBUG", "1")
    assert exit_code(raiser(EngineError("broken"))) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.endswith("tlkit: broken\n")


def test_an_interrupted_store_is_named_only_if_it_is_there(tmp_path):
    store = tmp_path / "run.zarr"
    with pytest.raises(Interrupted, match=r"nothing was kept\."), keeping(store):
        raise KeyboardInterrupt
    with pytest.raises(Interrupted, match=r"kept beside .*run\.zarr, in run"), keeping(store):
        (tmp_path / "run.zarr.journal").write_bytes(b"x")
        raise KeyboardInterrupt
    with pytest.raises(Interrupted, match=r"kept in .*run\.zarr; .* --resume"), keeping(store):
        store.mkdir()
        raise KeyboardInterrupt
    with pytest.raises(Interrupted, match=r"nothing was added; .* as it was"), keeping(store):
        raise KeyboardInterrupt


def test_white_space_becomes_single_spaces():
    assert one_line("a\n  b\t c ") == "a b c"


def test_a_closed_pipe_is_quiet():
    code = (
        "import sys\n"
        "from tlkit.cli.exits import exit_code\n"
        "def command():\n"
        "    while True: sys.stdout.write('x' * 4096)\n"
        "sys.exit(exit_code(command))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(timeout=60) == 1
    assert process.stderr.read() == b""
    process.stderr.close()
