"""``tlkit cache``: what tlkit keeps on disk, and how it goes away."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from tlkit.cli.options import JsonOption
from tlkit.cli.output import Output
from tlkit.errors import SpecError

if TYPE_CHECKING:
    from tlkit.models.cache import Entry


def cache(
    action: Annotated[
        Literal["list", "clear"], typer.Argument(help="Show what is kept, or delete it.")
    ] = "list",
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One entry only, as list names it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show or delete what tlkit keeps on disk between runs (TLKIT_CACHE moves it)."""
    from tlkit.models.cache import cache_dir, clear, entries

    kept = entries()
    if name is not None:
        kept = [entry for entry in kept if entry.name == name]
        if not kept:
            names = ", ".join(entry.name for entry in entries()) or "nothing"
            raise SpecError(f"cache: {name!r} is not kept in {cache_dir()}: there is {names}.")
    with Output(as_json) as output:
        if action == "clear":
            kept = clear(name)
        word = "deleted" if action == "clear" else "kept"
        total = sum(entry.bytes for entry in kept)
        values = {"folder": cache_dir(), word: [_plain(entry) for entry in kept], "bytes": total}
        line = f"{len(kept)} {word} in {cache_dir()}, {_megabytes(total)}"
        output.result(values, *([_table(kept)] if kept else []), line)


def _plain(entry: "Entry") -> dict[str, Any]:
    return {"name": entry.name, "path": entry.path, "bytes": entry.bytes}


def _table(kept: "Sequence[Entry]") -> Table:
    table = Table("name", box=None, pad_edge=False)
    table.add_column("size", justify="right")
    for entry in kept:
        table.add_row(entry.name, _megabytes(entry.bytes))
    return table


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
