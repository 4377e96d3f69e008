"""The application as a user meets it: words, streams and exit codes."""

import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from tlkit.cli.app import app, main


def run(*words, **environment):
    """`tlkit words…` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tlkit.cli", *words],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


def test_help_names_every_command_and_the_exit_codes():
    result = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100"})
    assert result.exit_code == 0
    for command in app.registered_commands:
        assert command.name in result.output
    for group in app.registered_groups:
        assert group.name in result.output
    assert "130 interrupted" in result.output


def test_no_words_at_all_are_answered_with_help(capsys):
    assert main([]) == 0
    assert "Usage: tlkit" in capsys.readouterr().out


def test_version(capsys):
    from tlkit import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tlkit {__version__}\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--nonsense"], "tlkit: No such option: --nonsense (see tlkit --help).\n"),
        (["nonsense"], "tlkit: No such command 'nonsense' (see tlkit --help).\n"),
    ],
)
def test_wrong_words_are_one_line_and_exit_2(words, line):
    done = run(*words)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)


def test_help_loads_no_model_library():
    code = (
        "import sys\n"
        "from tlkit.cli import main\n"
        "main(['--help'])\n"
        "print('loaded:', *{'torch', 'transformers', 'transformer_lens', 'plotly', 'sklearn',"
        " 'xarray'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("loaded:\n"), done.stdout


def test_ctrl_c_ends_with_130_and_one_line():
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # some shells ignore it
        "from tlkit.cli import app\n"
        "@app.app.command('wait')\n"
        "def wait():\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
        "sys.exit(app.main(['wait']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "Interrupted: nothing was kept.\n")
