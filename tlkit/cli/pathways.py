"""``tlkit pathways``: is a verdict about an answer drawn from the question or from the answer?"""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tlkit.cli.exits import keeping
from tlkit.cli.options import (
    DeviceOption,
    DtypeOption,
    EngineOption,
    FieldsOption,
    JsonOption,
    ModelOption,
    OutOption,
    OverwriteOption,
    PlanOption,
    ResumeOption,
    SeedOption,
    check_device,
    check_out,
    only_one,
    remove_run,
)
from tlkit.cli.output import Output
from tlkit.errors import SpecError

ENDINGS = (".html", ".zarr", ".csv")
TITLES: dict[Any, str] = {
    "group": "Groups by verdict flip",
    "held_out": "Groups found by other probes",
    "knockout": "Knockout at question and answer",
    "patch": "Patching at question and answer",
}


def pathways(
    qa: Annotated[
        list[Path] | None,
        typer.Option("--qa", metavar="PATH", help="JSON lines of questions; may be repeated."),
    ] = None,
    model: ModelOption = "smollm2-135m-instruct",
    out: OutOption = None,
    n: Annotated[
        int | None, typer.Option("--n", min=1, help="Only the first N questions of each file.")
    ] = None,
    reading: Annotated[
        Literal["both", "group", "intervention"],
        typer.Option("--reading", help="Probes and groups, interventions on answers, or both."),
    ] = "both",
    mode: Annotated[
        Literal["zero", "-inf"], typer.Option("--mode", help="Cut weights, or scores.")
    ] = "zero",
    fields: FieldsOption = None,
    seed: SeedOption = 0,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    engine: EngineOption = "packed",
    plan: PlanOption = False,
    as_json: JsonOption = False,
    resume: ResumeOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Answer questions, and measure ΔP against layer for question and answer anchored pathways."""
    only_one(resume=resume, overwrite=overwrite)
    check_device(device)
    if not qa:
        raise SpecError("pathways needs --qa QUESTIONS.jsonl; it may be given several times.")
    if out is None and not plan and not as_json:
        raise SpecError("pathways needs --out NAME.html, .zarr or .csv (or --plan, or --json).")
    if out is not None:
        check_out(out, ENDINGS, resume=resume, overwrite=overwrite)
    from tlkit.prompts.qa import QA
    from tlkit.prompts.read import parse_fields

    renamed = parse_fields(fields)
    sets = [QA.from_jsonl(path, renamed, n) for path in qa]
    store = out if out is not None and out.suffix == ".zarr" else None
    readings = ("group", "intervention") if reading == "both" else (reading,)
    choices: dict[str, Any] = {"readings": readings, "mode": mode, "seed": seed}
    with Output(as_json) as output, keeping(store), output.progress() as bar:
        from tlkit.models.load import HookedTransformer
        from tlkit.studies import pathways as study

        output.say(f"Loading {model} …")
        loaded = HookedTransformer.from_pretrained(model, dtype=dtype, device=device)
        if plan:
            cost = study.plan(loaded, sets, **choices)
            output.result({"plan": cost.as_dict()}, str(cost))
            return
        if store is not None and overwrite:
            remove_run(store)
        found = study.run(loaded, sets, engine=engine, store=store, stages=bar.stage, **choices)
        if out is not None and store is None:
            _write(found, out, model)
        _show(output, found, out)


def sections(found: Any) -> list[Any]:
    """A report's sections: each reading's figure, the table, and how it was run."""
    from tlkit.plots import Section, curve
    from tlkit.studies import pathways as study

    made = []
    for reading, title in TITLES.items():
        try:
            drawn = study.curves(found, reading)
        except SpecError as error:
            made.append(Section(title, [str(error)]))
            continue
        figure = curve(
            drawn, "layer", variable="delta_p", lines="dataset", dash="group", title=title
        )
        made.append(Section(title, [drawn.attrs["caption"], figure]))
    rows = [Section("ΔP at some layers", [study.table(found)])]
    shares = Section("Answers", [study.share_right(found)])
    return [*made, *rows, shares, Section("How it was run", [dict(found.attrs)])]


def _write(found: Any, path: Path, model: str) -> None:
    if path.suffix == ".csv":
        from tlkit.studies import pathways as study

        study.table(found).to_csv(path, index=False)
        return
    from tlkit.plots import report

    report(sections(found), path, title=f"Pathways of {model}")


def _show(output: Output, found: Any, path: Path | None) -> None:
    from rich.table import Table

    from tlkit.studies import pathways as study

    rows = study.table(found).to_dict("records")
    table = Table(title="ΔP, percentage points", box=None, pad_edge=False)
    for column in ("reading", "dataset", "group", "layer", "delta_p", "low", "high", "n"):
        table.add_column(column, justify="left" if column in ("reading", "group") else "right")
    for row in rows:
        numbers = [f"{row[name]:+.1f}" for name in ("delta_p", "low", "high")]
        shown = [str(row[name]) for name in ("reading", "dataset", "group", "layer")]
        table.add_row(*shown, *numbers, str(row["n"]))
    written = [] if path is None else [f"Wrote {path}."]
    values = {"out": path, "delta_p": rows, "notes": found.attrs["notes"]}
    output.result(values, table, *written)
