"""Where a command's words go: its result to stdout, everything else to stderr."""

import contextlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO

import typer
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

PROGRESS = "TLKIT_PROGRESS"  # environment variable: 1 shows the bar, 0 hides it, whatever stderr is
PIPED_WIDTH = 120  # columns of a table that no terminal shows


class Output:
    """A command's two streams.

    Use as a context: inside, whatever any library writes to stdout goes to stderr, so that with
    ``--json`` stdout holds one JSON object and nothing else.

    Args:
        as_json: the result is one JSON object, not text.
    """

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self._stdout: TextIO = sys.stdout
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Output":
        self._stdout = sys.stdout
        self._stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def say(self, text: str) -> None:
        """One line for the person who waits, on stderr."""
        typer.echo(text, err=True)

    def loading(self, *sources: str) -> None:
        """Say that models are being loaded, once it is known that they are there.

        Of a hub id that shows only when the hub has answered; then there is a bar of its own.

        Raises:
            SpecError: One is nothing that can be loaded.
        """
        from tlkit.models.sources import find_source

        found = [find_source(source) for source in sources]
        if any(one.kind != "hub" for one in found):
            self.say(f"Loading {' and '.join(sources)} …")

    def result(self, values: Mapping[str, Any], *shown: RenderableType) -> None:
        """The command's answer, called once: `values` as JSON, or `shown` as text."""
        if self.as_json:
            text = json.dumps(plain(values), ensure_ascii=False, allow_nan=False)
            typer.echo(text, file=self._stdout)
            return
        width = None if self._stdout.isatty() else PIPED_WIDTH
        console = Console(file=self._stdout, width=width, highlight=False)
        for part in shown:
            console.print(part, soft_wrap=isinstance(part, str), markup=False)

    @contextlib.contextmanager
    def progress(self) -> Iterator["Bar"]:
        """A bar on stderr: shown in a terminal, or as TLKIT_PROGRESS says."""
        forced = os.environ.get(PROGRESS)
        shown = sys.stderr.isatty() if forced is None else forced != "0"
        console = Console(file=sys.stderr, force_terminal=True if forced == "1" else None)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console, disable=not shown) as rich:
            yield Bar(rich)


class Bar:
    """One line of progress for each stage of a command."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def stage(self, label: str) -> Callable[[int, int], None]:
        """A new line; returns a function of (steps done, steps in all) that moves it."""
        task = self._progress.add_task(label, total=None)

        def move(done: int, total: int) -> None:
            self._progress.update(task, completed=done, total=total)

        return move


def plain(value: Any) -> Any:
    """`value` as what strict JSON can say: numpy numbers and arrays as Python's, NaN as None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist") and not isinstance(value, str):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    return str(value)
