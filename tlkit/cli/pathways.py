"""``tlkit pathways``: is a verdict about an answer drawn from the question or from the answer?"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tlkit.cli.exits import keeping
from tlkit.cli.options import (
    DeviceOption,
    DtypeOption,
    FieldsOption,
    JsonOption,
    OutOption,
    OverwriteOption,
    PlanOption,
    ResumeOption,
    SeedOption,
    StreamOption,
    check_device,
    check_out,
    only_one,
)
from tlkit.cli.output import Output
from tlkit.cli.pathways_page import sections
from tlkit.cli.pathways_shown import show
from tlkit.errors import SpecError

ENDINGS = (".html", ".zarr", ".csv")
DEFAULT_MODEL = "smollm2-135m-instruct"
TwinOption = Annotated[
    Literal["packed", "reference"], typer.Option("--engine", help="reference is the slow twin.")
]
QaOption = Annotated[
    list[Path] | None,
    typer.Option("--qa", metavar="PATH", help="JSON lines of questions; may be repeated."),
]
ModelsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="SOURCE",
        help=f"A hub id, a folder, a .gguf file, or {DEFAULT_MODEL} (embedded); may be repeated, "
        "one panel each. With --plan a folder needs no more than its config.",
    ),
]
NumberOption = Annotated[
    int | None, typer.Option("--n", min=1, help="Only the first N questions of each file.")
]
PartsOption = Annotated[
    str,
    typer.Option(
        "--parts",
        metavar="PART,…",
        help="Of group, intervention, cuts, probes, tokens, boundary, detect, saliency; or all.",
    ),
]
ChatOption = Annotated[
    bool | None,
    typer.Option("--chat/--no-chat", help="Ask through the chat template; default: if any."),
]
TemplateOption = Annotated[
    str | None,
    typer.Option("--template", help="What is asked, with {question}; or short: two examples."),
]
BudgetOption = Annotated[
    str | None, typer.Option("--budget", help="Memory besides the weights, as 4GiB.")
]


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    qa: list[Path]
    models: list[str]
    out: Path | None
    n: int | None
    fields: str | None
    choices: dict[str, Any]

    budget: str | None
    dtype: Any
    device: str | None
    stream: bool
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
        if len(set(self.models)) < len(self.models):
            raise SpecError("--model names a model twice.")
        if self.out is None and not self.plan and not self.as_json:
            raise SpecError("pathways needs --out NAME.html, .zarr or .csv (or --plan, or --json).")
        if self.out is not None and not self.plan:
            check_out(self.out, ENDINGS, resume=self.resume, overwrite=self.overwrite)
        from tlkit.engine.budget import bytes_of
        from tlkit.prompts.qa import QA
        from tlkit.prompts.read import parse_fields
        from tlkit.studies.pathways.sets import named_sets
        from tlkit.studies.pathways.settings import Settings

        bytes_of(self.budget)
        Settings.of(self.choices).checked()
        named = [path.stem for path in self.qa]
        if len(set(named)) < len(named):
            raise SpecError("Two files of --qa have one name; rename one, curves are called by it.")
        fields = parse_fields(self.fields)
        return list(named_sets([QA.from_jsonl(p, fields, self.n) for p in self.qa]).values())

    @property
    def store(self) -> Path | None:
        """Where the study is kept while it goes on."""
        return self.out if self.out is not None and self.out.suffix == ".zarr" else None

    def load(self, source: str) -> Any:
        """Load a model."""
        from tlkit.models.load import HookedTransformer

        return HookedTransformer.from_pretrained(
            source, dtype=self.dtype, device=self.device, stream=self.stream
        )

    def named(self) -> dict[str, str]:
        """Models by a short name, if short names tell them apart."""
        short = [Path(source).name or source for source in self.models]
        names = short if len(set(short)) == len(short) else self.models
        return dict(zip(names, self.models, strict=True))

    def model(self) -> Any:
        """One loaded model; or several by name, each loaded when its turn comes."""
        if len(self.models) == 1:
            return self.load(self.models[0])
        return {name: partial(self.load, source) for name, source in self.named().items()}


def pathways(
    qa: QaOption = None,
    model: ModelsOption = None,
    out: OutOption = None,
    n: NumberOption = None,
    parts: PartsOption = "group,intervention",
    answers: Annotated[
        Literal["generated", "given"],
        typer.Option("--answers", help="given: each answer once as right and once as wrong."),
    ] = "generated",
    mode: Annotated[
        Literal["zero", "-inf"], typer.Option("--mode", help="Cut weights, or scores.")
    ] = "zero",
    window: Annotated[int, typer.Option("--window", min=1, help="Blocks of a windowed cut.")] = 5,
    every: Annotated[int, typer.Option("--every", min=1, help="At every N-th layer only.")] = 1,
    chat: ChatOption = None,
    template: TemplateOption = None,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", min=1, help="Most tokens of an answer.")
    ] = 48,
    folds: Annotated[int, typer.Option("--folds", min=2, help="Folds of questions.")] = 5,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Divisions into folds.")] = 5,
    min_examples: Annotated[
        int, typer.Option("--min-examples", min=2, help="Smaller groups and classes are left out.")
    ] = 30,
    fields: FieldsOption = None,
    budget: BudgetOption = None,
    seed: SeedOption = 0,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    stream: StreamOption = False,
    engine: TwinOption = "packed",
    plan: PlanOption = False,
    as_json: JsonOption = False,
    resume: ResumeOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Answer questions, and measure ΔP against layer for question and answer anchored pathways."""
    choices = {
        "parts": named_parts(parts), "answers": answers, "mode": mode, "window": window,
        "every": every, "chat": chat, "template": template, "max_new_tokens": max_new_tokens,
        "folds": folds, "seeds": tuple(range(seed, seed + seeds)), "seed": seed,
        "min_examples": min_examples,
    }  # fmt: skip
    request = Request(
        list(qa or ()), list(model or (DEFAULT_MODEL,)), out, n, fields, choices, budget,
        dtype, device, stream, engine, plan, as_json, resume, overwrite,
    )  # fmt: skip
    _pathways(request, request.sets())


def named_parts(text: str) -> tuple[str, ...]:
    """The parts that a list names; ``all`` is every one. What is unknown is refused later."""
    from tlkit.studies.pathways.settings import PARTS

    names = [part.strip() for part in text.split(",") if part.strip()]
    return PARTS if names == ["all"] else tuple(names)


def _pathways(request: Request, sets: list[Any]) -> None:
    with Output(request.as_json) as output, keeping(request.store), output.progress() as bar:
        from tlkit.prompts.qa import describe_dropped
        from tlkit.studies import pathways as study

        for one in sets:
            output.say(describe_dropped(one))
        if request.plan:
            _plan(output, request, sets)
            return
        output.loading(*request.models)
        found = study.run(
            request.model(), sets, engine=request.engine, store=request.store,
            overwrite=request.overwrite, budget=request.budget, stages=bar.stage,
            **request.choices,
        )  # fmt: skip
        for reason in study.reasons(found):
            output.say(reason)
        if request.out is not None and request.store is None:
            _write(found, request.out, ", ".join(request.named()))
        show(output, found, request.out)


def _plan(output: Output, request: Request, sets: list[Any]) -> None:
    """Say what each model would cost, from its config alone where it is a folder with one."""
    from tlkit.models.outline import has_outline, outline
    from tlkit.studies import pathways as study

    plans, told = {}, []
    for name, source in request.named().items():
        known = has_outline(source)
        output.say(f"{'Reading the config of' if known else 'Loading'} {source} …")
        model = (
            outline(source, dtype=request.dtype, device=request.device) if known
            else request.load(source)
        )  # fmt: skip
        cost = study.plan(model, sets, **request.choices)
        plans[name] = cost.as_dict()
        told.append(str(cost) if len(request.models) == 1 else f"{name}\n{cost}")
    values = plans if len(plans) > 1 else next(iter(plans.values()))
    output.result({"plan": values}, "\n\n".join(told))


def _write(found: Any, path: Path, models: str) -> None:
    if path.suffix == ".csv":
        from tlkit.studies import pathways as study

        study.table(found).to_csv(path, index=False)
        return
    from tlkit.plots import report

    report(sections(found), path, title=f"Pathways of {models}")
