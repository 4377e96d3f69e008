"""``tlkit pathways``: is a verdict about an answer drawn from the question or from the answer?"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tlkit.cli.exits import keeping
from tlkit.cli.options import (
    DeviceOption,
    DtypeOption,
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
)
from tlkit.cli.output import Output
from tlkit.cli.pathways_page import sections
from tlkit.errors import SpecError

ENDINGS = (".html", ".zarr", ".csv")
TwinOption = Annotated[
    Literal["packed", "reference"], typer.Option("--engine", help="reference is the slow twin.")
]


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    qa: list[Path]
    model: str
    out: Path | None
    n: int | None
    fields: str | None
    choices: dict[str, Any]
    every: int
    budget: str | None
    dtype: Any
    device: str | None
    engine: str
    plan: bool
    as_json: bool
    resume: bool
    overwrite: bool

    def sets(self) -> list[Any]:
        """The questions; what cannot be is refused before a model is loaded."""
        only_one(resume=self.resume, overwrite=self.overwrite)
        check_device(self.device)
        if not self.qa:
            raise SpecError("pathways needs --qa QUESTIONS.jsonl; it may be given several times.")
        if self.out is None and not self.plan and not self.as_json:
            raise SpecError("pathways needs --out NAME.html, .zarr or .csv (or --plan, or --json).")
        if self.out is not None and not self.plan:
            check_out(self.out, ENDINGS, resume=self.resume, overwrite=self.overwrite)
        from tlkit.engine.budget import bytes_of
        from tlkit.prompts.qa import QA
        from tlkit.prompts.read import parse_fields

        bytes_of(self.budget)
        named = [path.stem for path in self.qa]
        if len(set(named)) < len(named):
            raise SpecError("Two files of --qa have one name; rename one, curves are called by it.")
        fields = parse_fields(self.fields)
        return [QA.from_jsonl(path, fields, self.n) for path in self.qa]

    @property
    def store(self) -> Path | None:
        """Where the study is kept while it goes on."""
        return self.out if self.out is not None and self.out.suffix == ".zarr" else None


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
    every: Annotated[int, typer.Option("--every", min=1, help="At every N-th layer only.")] = 1,
    chat: Annotated[
        bool | None,
        typer.Option("--chat/--no-chat", help="Ask through the chat template; default: if any."),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option("--template", help="What is asked, with {question}; or short: two examples."),
    ] = None,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", min=1, help="Most tokens of an answer.")
    ] = 48,
    folds: Annotated[int, typer.Option("--folds", min=2, help="Folds of questions.")] = 5,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Divisions into folds.")] = 3,
    min_examples: Annotated[
        int, typer.Option("--min-examples", min=2, help="Smaller groups and classes are left out.")
    ] = 30,
    fields: FieldsOption = None,
    budget: Annotated[
        str | None, typer.Option("--budget", help="Memory besides the weights, as 4GiB.")
    ] = None,
    seed: SeedOption = 0,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    engine: TwinOption = "packed",
    plan: PlanOption = False,
    as_json: JsonOption = False,
    resume: ResumeOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Answer questions, and measure ΔP against layer for question and answer anchored pathways."""
    choices = {
        "readings": ("group", "intervention") if reading == "both" else (reading,),
        "mode": mode, "chat": chat, "template": template, "max_new_tokens": max_new_tokens,
        "folds": folds, "seeds": tuple(range(seed, seed + seeds)), "seed": seed,
        "min_examples": min_examples,
    }  # fmt: skip
    request = Request(
        list(qa or ()), model, out, n, fields, choices, every, budget, dtype, device, engine,
        plan, as_json, resume, overwrite,
    )  # fmt: skip
    _pathways(request, request.sets())


def _pathways(request: Request, sets: list[Any]) -> None:
    with Output(request.as_json) as output, keeping(request.store), output.progress() as bar:
        from tlkit.models.load import HookedTransformer
        from tlkit.prompts.qa import describe_dropped
        from tlkit.studies import pathways as study

        for one in sets:
            output.say(describe_dropped(one))
        output.say(f"Loading {request.model} …")
        model = HookedTransformer.from_pretrained(
            request.model, dtype=request.dtype, device=request.device
        )
        layers = range(0, int(model.cfg.n_layers), request.every)
        choices = {**request.choices, "layers": layers}
        if request.plan:
            cost = study.plan(model, sets, **choices)
            output.result({"plan": cost.as_dict()}, str(cost))
            return
        found = study.run(
            model, sets, engine=request.engine, store=request.store,
            overwrite=request.overwrite, budget=request.budget, stages=bar.stage, **choices,
        )  # fmt: skip
        for reason in study.reasons(found):
            output.say(reason)
        if request.out is not None and request.store is None:
            _write(found, request.out, request.model)
        _show(output, found, request.out)


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
        table.add_row(*shown, *[n if n != "+nan" else "-" for n in numbers], str(row["n"]))
    answers = study.counts(found).to_dict("records")
    line = "; ".join(
        f"{row['dataset']}: {row['right']} of {row['questions']} right" for row in answers
    )
    written = [line] if path is None else [line, f"Wrote {path}."]
    values = {"out": path, "answers": answers, "delta_p": rows, "reasons": study.reasons(found)}
    output.result(values, table, *written)
