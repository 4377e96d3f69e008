"""``tlkit report``: saved results on one page."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tlkit.cli.exits import keeping
from tlkit.cli.options import JsonOption, OverwriteOption, check_out
from tlkit.cli.output import Output
from tlkit.errors import SpecError


def report(
    results: Annotated[
        list[Path], typer.Argument(metavar="RESULT.zarr…", help="Saved results, in this order.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="PATH.html", help="The page.")],
    title: Annotated[str, typer.Option("--title", help="Its heading.")] = "Results",
    limit_mb: Annotated[
        float, typer.Option("--limit-mb", min=1, help="Largest page, in megabytes.")
    ] = 8,
    as_json: JsonOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Put saved results on one self-contained page: figures, tables, how they were run."""
    check_out(out, (".html",), overwrite=overwrite)
    twice = [path for path in results if results.count(path) > 1]
    if twice:
        raise SpecError(f"{twice[0]} is given twice.")
    with Output(as_json) as output, keeping(None):
        from tlkit.plots import report as write
        from tlkit.results.files import open as open_result

        found = {path: open_result(path) for path in results}
        write(_sections(found), out, title=title, limit_mb=limit_mb)
        values = {"out": out, "results": [str(path) for path in results]}
        output.result(values, f"Wrote {out}.")


def _sections(found: dict[Path, Any]) -> list[Any]:
    from tlkit.plots import Section
    from tlkit.plots.citations import citations

    made = [Section(_heading(path, ds), [ds]) for path, ds in found.items()]
    studies = [str(ds.attrs.get("study", "patching")) for ds in found.values()]
    return [*made, Section("How to cite", citations(studies))]


def _heading(path: Path, ds: Any) -> str:
    """The study, its model, and the file: two results may be of one study."""
    study = str(ds.attrs.get("study", "sweep")).replace("_", " ")
    model = ds.attrs.get("models", ds.attrs.get("model", ""))
    return f"{study[:1].upper()}{study[1:]}{f', {model}' if model else ''} ({path.name})"
