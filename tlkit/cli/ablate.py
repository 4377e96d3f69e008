"""``tlkit ablate``: what each layer or head does, of one model or of several sisters."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tlkit.cli.ablate_page import sections, shown, told
from tlkit.cli.exits import keeping
from tlkit.cli.options import (
    DeviceOption,
    DtypeOption,
    FieldsOption,
    JsonOption,
    OutOption,
    OverwriteOption,
    PlanOption,
    SeedOption,
    StreamOption,
    check_device,
    check_out,
)
from tlkit.cli.output import Output
from tlkit.errors import SpecError

ENDINGS = (".html", ".zarr")
BRANCHES = "attn_out,mlp_out,block"

ComponentsOption = Annotated[
    str, typer.Option("--components", metavar="NAME,…", help="attn_out, mlp_out, block; or none.")
]
ReferenceOption = Annotated[
    Path | None, typer.Option("--reference", metavar="PATH", help="Prompts of mean and resample.")
]
SaysOption = Annotated[
    list[str] | None,
    typer.Option("--says", metavar="TEXT", help="Continue, and count who says TEXT."),
]
TwinOption = Annotated[
    Literal["packed", "reference"], typer.Option("--engine", help="reference is the slow twin.")
]


@dataclass(frozen=True)
class Request:
    """What was asked for.

    Attributes:
        choices: What goes to the study as it is.
    """

    prompts: Path
    reference: Path | None
    models: list[str]
    choices: dict[str, Any]
    says: list[str]
    out: Path | None
    n: int | None
    fields: str | None
    dtype: Any
    device: str | None
    stream: bool
    budget: str | None
    plan: bool
    as_json: bool
    overwrite: bool

    def rows(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
        """Prompts and reference; what cannot be is refused before a model is loaded."""
        check_device(self.device)
        if self.out is None and not self.plan and not self.as_json:
            raise SpecError("ablate needs --out NAME.html or .zarr (or --plan, or --json).")
        if self.out is not None and not self.plan:
            check_out(self.out, ENDINGS, overwrite=self.overwrite)
        if len(set(self.models)) < len(self.models):
            raise SpecError("--model names a model twice.")
        if "" in self.says or len(set(self.says)) < len(self.says):
            raise SpecError("--says needs a text, and each once.")
        from tlkit.engine.budget import bytes_of
        from tlkit.prompts.read import parse_fields, read_jsonl
        from tlkit.studies.ablation.settings import Settings

        bytes_of(self.budget)
        plain = {name: self.choices[name] for name in ("value", "windows", "max_new_tokens")}
        Settings.of(self.choices["components"], self.behaviour, None, **plain)
        fields = parse_fields(self.fields)
        rows = read_jsonl(self.prompts, fields, ("prompt",), ("answer",), self.n)
        if self.reference is None:
            return rows, None
        if self.choices["value"] not in ("mean", "resample"):
            raise SpecError("--reference is for --value mean or resample.")
        return rows, read_jsonl(self.reference, fields, ("prompt",), ("answer",))

    @property
    def behaviour(self) -> dict[str, Any]:
        """A function for each text that continuations are searched for."""
        return {text: _says(text) for text in self.says}


def _says(wanted: str) -> Any:
    def says(text: str) -> bool:
        return wanted.casefold() in text.casefold()

    return says


def ablate(
    prompts: Annotated[
        Path,
        typer.Option("--prompts", metavar="PATH", help="JSON lines with a 'prompt' each."),
    ],
    model: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="SOURCE", help="A model; repeated, its sisters too."),
    ] = None,
    out: OutOption = None,
    value: Annotated[
        Literal["zero", "mean", "resample", "skip"],
        typer.Option("--value", help="What stands in a component's place."),
    ] = "zero",
    components: ComponentsOption = BRANCHES,
    heads: Annotated[bool, typer.Option("--heads", help="Ablate every head, too.")] = False,
    windows: Annotated[
        int, typer.Option("--windows", min=1, help="Layers that are ablated together.")
    ] = 1,
    reference: ReferenceOption = None,
    per_position: Annotated[
        bool, typer.Option("--per-position", help="A mean for each position.")
    ] = False,
    says: SaysOption = None,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", min=1, help="Most tokens of a continuation.")
    ] = 32,
    chat: Annotated[bool, typer.Option("--chat", help="Put the chat template around.")] = False,
    n: Annotated[int | None, typer.Option("--n", min=1, help="Only the first N prompts.")] = None,
    fields: FieldsOption = None,
    budget: Annotated[
        str | None, typer.Option("--budget", help="Memory besides the weights, as 4GiB.")
    ] = None,
    seed: SeedOption = 0,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    stream: StreamOption = False,
    engine: TwinOption = "packed",
    plan: PlanOption = False,
    as_json: JsonOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Ablate attention, MLPs, blocks and heads, and compare a model with its sisters."""
    names = [] if components == "none" else [name.strip() for name in components.split(",")]
    choices = {
        "value": value, "components": (*names, *(["heads"] if heads else [])), "windows": windows,
        "pooled": not per_position, "max_new_tokens": max_new_tokens, "chat": chat, "seed": seed,
        "engine": engine,
    }  # fmt: skip
    request = Request(
        prompts, reference, list(model or ("smollm2-135m-instruct",)), choices, list(says or ()),
        out, n, fields, dtype, device, stream, budget, plan, as_json, overwrite,
    )  # fmt: skip
    _ablate(request, *request.rows())


def _ablate(request: Request, rows: list[Any], reference: list[Any] | None) -> None:
    with Output(request.as_json) as output, keeping(None), output.progress() as bar:
        from tlkit.models.load import HookedTransformer
        from tlkit.results.files import save
        from tlkit.studies import ablation as study

        models = {}
        for source in request.models:
            output.loading(source)
            models[source] = HookedTransformer.from_pretrained(
                source, dtype=request.dtype, device=request.device, stream=request.stream
            )
        choices = {
            **request.choices, "reference": reference, "behaviour": request.behaviour or None,
            "budget": request.budget,
        }  # fmt: skip
        if request.plan:
            cost = study.plan(models, rows, **choices)
            output.result({"plan": cost.as_dict()}, str(cost))
            return
        found = study.run(models, rows, progress=bar.stage("ablations"), **choices)
        if request.out is not None and request.out.suffix == ".zarr":
            save(found, request.out, overwrite=request.overwrite)
        elif request.out is not None:
            from tlkit.plots import report

            report(sections(found, request.choices["seed"]), request.out, title="Ablation")
        written = [] if request.out is None else [f"Wrote {request.out}."]
        values = {"out": request.out, **told(found, request.choices["seed"])}
        output.result(values, *shown(found), *written)
