"""``tlkit conditions``: what a change of the prompt does to heads' attention."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tlkit.cli.conditions_page import sections
from tlkit.cli.exits import keeping
from tlkit.cli.options import (
    DeviceOption,
    DtypeOption,
    FieldsOption,
    JsonOption,
    ModelOption,
    OutOption,
    OverwriteOption,
    SeedOption,
    StreamOption,
    check_device,
    check_out,
)
from tlkit.cli.output import Output
from tlkit.errors import SpecError

ENDINGS = (".html", ".zarr")


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    prompts: Path
    model: str
    out: Path | None
    conditions: dict[str, Any]
    control: str | None
    heads: list[tuple[int, int]]
    one_based: bool
    queries: Any
    first_token: bool
    chat: bool
    n: int | None
    fields: str | None
    seed: int
    dtype: Any
    device: str | None
    stream: bool
    as_json: bool
    overwrite: bool

    def rows(self) -> list[dict[str, Any]]:
        """The prompts' rows; what cannot be is refused before a model is loaded."""
        check_device(self.device)
        if self.out is None and not self.as_json:
            raise SpecError("conditions needs --out NAME.html or .zarr (or --json).")
        if self.out is not None:
            check_out(self.out, ENDINGS, overwrite=self.overwrite)
        if not self.conditions:
            raise SpecError(
                'conditions needs one to compare, such as --insert "Miess=/ " --times 55.'
            )
        if self.control is not None and self.control not in self.conditions:
            raise SpecError(
                f"--control {self.control!r} is none of the conditions "
                f"{', '.join(self.conditions)}; give it with --insert."
            )
        from tlkit.prompts.read import parse_fields, read_jsonl

        return read_jsonl(self.prompts, parse_fields(self.fields), ("prompt",), (), self.n)


def conditions(
    prompts: Annotated[
        Path, typer.Option("--prompts", metavar="PATH", help="JSON lines with a 'prompt' each.")
    ],
    insert: Annotated[
        list[str] | None,
        typer.Option("--insert", metavar="LABEL=TEXT", help="Text to put in; may be repeated."),
    ] = None,
    times: Annotated[
        int, typer.Option("--times", min=1, help="How often each --insert text is repeated.")
    ] = 1,
    at: Annotated[
        str, typer.Option("--at", help="start, end, before_question, or a character offset.")
    ] = "before_question",
    system: Annotated[
        list[str] | None,
        typer.Option("--system", metavar="LABEL=TEXT", help="A system prompt; needs --chat."),
    ] = None,
    control: Annotated[
        str | None,
        typer.Option("--control", metavar="LABEL", help="A condition to test others against, too."),
    ] = None,
    model: ModelOption = "smollm2-135m-instruct",
    out: OutOption = None,
    head: Annotated[
        list[str] | None,
        typer.Option("--head", metavar="LAYER.HEAD", help="A head to draw; may be repeated."),
    ] = None,
    one_based: Annotated[
        bool, typer.Option("--one-based", help="--head and the figures count from 1.")
    ] = False,
    queries: Annotated[
        Literal["all", "original"], typer.Option("--queries", help="Whose attention counts.")
    ] = "all",
    first_token: Annotated[
        bool, typer.Option("--first-token/--no-first-token", help="Whether it counts in tests.")
    ] = True,
    chat: Annotated[bool, typer.Option("--chat", help="Put the chat template around.")] = False,
    n: Annotated[int | None, typer.Option("--n", min=1, help="Only the first N prompts.")] = None,
    fields: FieldsOption = None,
    seed: SeedOption = 0,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    stream: StreamOption = False,
    as_json: JsonOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Compare heads' attention on prompts as they are, and changed (such as "Miess": / / / …)."""
    request = Request(
        prompts, model, out, _conditions(insert, times, at, system), control,
        [_head(text, one_based=one_based) for text in head or ()], one_based, queries, first_token,
        chat, n, fields, seed, dtype, device, stream, as_json, overwrite,
    )  # fmt: skip
    _conditions_run(request, request.rows())


def _conditions(
    insert: list[str] | None, times: int, at: str, system: list[str] | None
) -> dict[str, Any]:
    from tlkit.spec.insertions import Insert
    from tlkit.studies.conditions.transform import System

    place = int(at) if at.isdecimal() else at
    found: dict[str, Any] = {}
    for option, texts in (("--insert", insert), ("--system", system)):
        for given in texts or ():
            label, equals, text = given.partition("=")
            if not (label and equals and text):
                raise SpecError(f"{option} is LABEL=TEXT, not {given!r}.")
            if label in found or label == "None":
                raise SpecError(
                    f"{option} uses the label {label!r} twice (None is the plain prompts)."
                )
            found[label] = Insert(text * times, place) if option == "--insert" else System(text)
    return found


def _head(text: str, *, one_based: bool) -> tuple[int, int]:
    layer, dot, head = text.partition(".")
    if not (dot and layer.isdecimal() and head.isdecimal()):
        raise SpecError(f"--head is LAYER.HEAD such as 2.5, not {text!r}.")
    pair = int(layer) - one_based, int(head) - one_based
    if min(pair) < 0:
        raise SpecError(f"--head {text}: with --one-based layers and heads begin with 1.")
    return pair


def _check_heads(request: Request, model: Any) -> None:
    """Refuse heads that the model does not have, before anything is measured."""
    shift = int(request.one_based)
    for layer, head in request.heads:
        if layer >= model.cfg.n_layers or head >= model.cfg.n_heads:
            raise SpecError(
                f"--head {layer + shift}.{head + shift}: this model has layers {shift} to "
                f"{model.cfg.n_layers - 1 + shift} and heads {shift} to "
                f"{model.cfg.n_heads - 1 + shift}."
            )


def _conditions_run(request: Request, rows: list[dict[str, Any]]) -> None:
    with Output(request.as_json) as output, keeping(None), output.progress() as bar:
        from tlkit.models.load import HookedTransformer
        from tlkit.prompts.prompts import Prompts
        from tlkit.results.files import save
        from tlkit.studies import conditions as study

        output.loading(request.model)
        model = HookedTransformer.from_pretrained(
            request.model, dtype=request.dtype, device=request.device, stream=request.stream
        )
        _check_heads(request, model)
        prompts = Prompts.from_texts(model, [row["prompt"] for row in rows], chat=request.chat)
        found = study.run(
            model, prompts, request.conditions, queries=request.queries,
            first_token=request.first_token, seed=request.seed, progress=bar.stage("conditions"),
        )  # fmt: skip
        page = sections(
            model,
            prompts,
            found,
            request.conditions,
            request.control,
            request.heads,
            one_based=request.one_based,
        )
        if request.out is not None:
            if request.out.suffix == ".zarr":
                save(found, request.out, overwrite=request.overwrite)
            else:
                from tlkit.plots import report

                report(page.sections, request.out, title=f"Conditions in {request.model}")
        written = [] if request.out is None else [f"Wrote {request.out}."]
        values = {"out": request.out, "seconds": found.attrs["seconds"], "changed": page.ranked}
        output.result(values, *page.tables, *written)
