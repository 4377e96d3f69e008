"""What a command's end means: exit codes, and one plain line on stderr for anything that failed."""

import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer

from tlkit.cli.options import journal_of
from tlkit.errors import SpecError, TlkitError, TlkitWarning

DONE, FAILED, WRONG_REQUEST, INTERRUPTED = 0, 1, 2, 130
DEBUG = "TLKIT_DEBUG"  # environment variable: any value shows tracebacks


class Interrupted(TlkitError):
    """Ctrl+C, with a sentence that says what was kept."""


def exit_code(command: Callable[[], Any]) -> int:
    """Run `command` and turn its end into an exit code, with one line on stderr if it failed."""
    try:
        with _warnings_in_one_line():
            result = command()
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted("nothing was kept.")
    except Interrupted as error:
        return _interrupted(str(error))
    except SpecError as error:
        return _tell(WRONG_REQUEST, str(error), error)
    except typer.TyperException as error:
        return _tell(WRONG_REQUEST, _usage(error), error)
    except BrokenPipeError:
        # The reader of our stdout left (`tlkit … | head`). Python would complain once more when
        # it flushes at exit, so what is left goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except TlkitError as error:
        return _tell(FAILED, str(error), error)
    except Exception as error:
        where = "" if os.environ.get(DEBUG) else f" ({DEBUG}=1 shows where)"
        return _tell(FAILED, f"{type(error).__name__}: {error}{where}", error)
    if result == INTERRUPTED:  # typer's own answer to Ctrl+C
        return _interrupted("nothing was kept.")
    return result if isinstance(result, int) else DONE


@contextlib.contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Show tlkit's own warnings as it shows its errors, without a place in the code."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", TlkitWarning)
        others = warnings.showwarning

        def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, TlkitWarning):
                typer.echo(f"tlkit: {one_line(str(message))}", err=True)
            else:
                others(message, category, *where, **more)

        warnings.showwarning = show
        yield


@contextlib.contextmanager
def keeping(store: Path | None) -> Iterator[None]:
    """On Ctrl+C inside, say whether `store` holds what was finished."""
    before = _state(store)
    try:
        yield
    except KeyboardInterrupt as error:
        raise Interrupted(_kept(store, before)) from error


def _state(store: Path | None) -> tuple[int | None, int | None]:
    """When the store was last written, and how long its journal is."""
    if store is None:
        return None, None
    journal = journal_of(store)
    return (
        store.stat().st_mtime_ns if store.exists() else None,
        journal.stat().st_size if journal.exists() else None,
    )


def _kept(store: Path | None, before: tuple[int | None, int | None]) -> str:
    """What an interrupted command leaves behind."""
    after = _state(store)
    if store is None or after == (None, None):
        return "nothing was kept."
    if after == before:
        return f"nothing was added; {store} is as it was."
    where = (
        f"in {store}" if after[0] is not None else f"beside {store}, in {journal_of(store).name}"
    )
    return f"what was finished is kept {where}; the same command with --resume goes on."


def one_line(text: str) -> str:
    """`text` with every run of white space, line ends too, as one space."""
    return " ".join(text.split())


def _interrupted(what: str) -> int:
    typer.echo(f"Interrupted: {what}", err=True)
    return INTERRUPTED


def _tell(code: int, message: str, error: BaseException) -> int:
    if os.environ.get(DEBUG):
        traceback.print_exception(error, file=sys.stderr)
    typer.echo(f"tlkit: {one_line(message)}", err=True)
    return code


def _usage(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "tlkit"
    said = error.format_message().replace("Value error, ", "").rstrip(". ")
    return f"{said} (see {path} --help)."
