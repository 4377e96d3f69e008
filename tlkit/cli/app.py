"""The application: its commands, and the exit code of whatever happens in them."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from tlkit.cli.ablate import ablate
from tlkit.cli.abliterate import abliterate
from tlkit.cli.cache import cache
from tlkit.cli.check import check
from tlkit.cli.conditions import conditions
from tlkit.cli.demo import demo
from tlkit.cli.exits import exit_code
from tlkit.cli.explore import explore
from tlkit.cli.patch import patch
from tlkit.cli.pathways import pathways
from tlkit.cli.probe import probe
from tlkit.cli.report import report
from tlkit.cli.variance import variance

app = typer.Typer(
    name="tlkit",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> bool:
    if wanted:
        from tlkit import __version__

        typer.echo(f"tlkit {__version__}")
        raise typer.Exit
    return wanted


_CODES = (
    "Exit codes: 0 done; 1 the run or a check failed; 2 the request was wrong, told before any "
    "model work; 130 interrupted, with what was finished kept."
)


@app.callback(epilog=_CODES)
def tlkit(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Say the version and stop."
        ),
    ] = False,
) -> None:
    """Look inside language models: patching, ablation and attention studies."""


app.command("demo")(demo)
app.command("patch")(patch)
app.command("pathways")(pathways)
app.command("conditions")(conditions)
app.command("variance")(variance)
app.command("ablate")(ablate)
app.command("abliterate")(abliterate)
app.command("probe")(probe)
app.command("explore")(explore)
app.command("report")(report)
app.command("cache")(cache)
app.command("check")(check)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: the words after ``tlkit``; those of the process if None.
    """
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    return exit_code(lambda: app(args=words, prog_name="tlkit", standalone_mode=False))
