"""``tlkit abliterate``: find a refusal direction, take it out, and say what that did."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

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
    SeedOption,
    check_device,
    check_out,
    check_share,
)
from tlkit.cli.output import Output
from tlkit.errors import SpecError

ENDINGS = (".html", ".zarr")


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    harmful: Path
    harmless: Path | None
    labels: tuple[str, str]
    model: str
    out: Path | None
    save: Path | None
    choices: dict[str, Any]
    fields: str | None
    n: int | None
    dtype: Any
    device: str | None
    plan: bool
    as_json: bool
    overwrite: bool

    def read(self) -> tuple[list[str], list[str]]:
        """Both kinds of prompt; what cannot be is refused before a model is loaded."""
        check_device(self.device)
        check_share("--held-out", self.choices["held_out"])
        if not (self.out or self.save or self.plan or self.as_json):
            raise SpecError(
                "abliterate needs --out NAME.html or .zarr, or --save FOLDER (or --plan, --json)."
            )
        if self.out is not None and not self.plan:
            check_out(self.out, ENDINGS, overwrite=self.overwrite)
        if self.save is not None and not self.plan:
            from tlkit.studies.abliteration.save import checked_folder

            checked_folder(self.save, overwrite=self.overwrite)
        return self._files()

    def _files(self) -> tuple[list[str], list[str]]:
        from tlkit.prompts.read import parse_fields, read_jsonl
        from tlkit.studies.abliteration.inputs import by_label

        fields = parse_fields(self.fields)
        if self.harmless is None or self.harmless == self.harmful:
            rows = read_jsonl(self.harmful, fields, ("prompt", "label"))
            found = by_label(rows, *self.labels)
        else:
            one, other = (
                read_jsonl(path, fields, ("prompt",), ("label",))
                for path in (self.harmful, self.harmless)
            )
            found = [row["prompt"] for row in one], [row["prompt"] for row in other]
        return found[0][: self.n], found[1][: self.n]


HarmfulOption = Annotated[
    Path, typer.Option("--harmful", metavar="PATH", help="JSON lines with a 'prompt' each.")
]
HarmlessOption = Annotated[
    Path | None,
    typer.Option("--harmless", metavar="PATH", help="The others; else --harmful has both."),
]
SaveOption = Annotated[
    Path | None, typer.Option("--save", metavar="FOLDER", help="Write the edited model there.")
]
LayersOption = Annotated[
    str | None, typer.Option("--layers", metavar="A-B,C", help="Counted from 0; default: all.")
]
PositionsOption = Annotated[
    str, typer.Option("--positions", metavar="-1,-2", help="Counted from a prompt's end.")
]
MaxKLOption = Annotated[
    float, typer.Option("--max-kl", help="Damage that a candidate should stay under, in nats.")
]
ApproximateOption = Annotated[
    bool, typer.Option("--approximate", help="Bake even where norms make it inexact.")
]


def abliterate(
    harmful: HarmfulOption,
    harmless: HarmlessOption = None,
    model: ModelOption = "smollm2-135m-instruct",
    out: OutOption = None,
    save: SaveOption = None,
    harmful_label: Annotated[str, typer.Option(help="Of prompts that are refused.")] = "harmful",
    harmless_label: Annotated[str, typer.Option(help="Of the others.")] = "harmless",
    layers: LayersOption = None,
    positions: PositionsOption = "-1",
    rank: Annotated[int, typer.Option(min=1, help="Dimensions taken out.")] = 1,
    max_kl: MaxKLOption = 0.1,
    generate: Annotated[int, typer.Option(min=1, help="Candidates that write answers.")] = 5,
    held_out: Annotated[float, typer.Option(help="Share of prompts only reported on.")] = 0.3,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Length of answers.")] = 32,
    chat: Annotated[bool, typer.Option("--chat/--no-chat", help="Ask by the template.")] = True,
    approximate: ApproximateOption = False,
    n: Annotated[int | None, typer.Option("--n", min=2, help="Only N of each kind.")] = None,
    fields: FieldsOption = None,
    seed: SeedOption = 0,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    plan: PlanOption = False,
    as_json: JsonOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Find the direction of refusal, take it out, and report what is left and what it cost."""
    choices = {
        "layers": numbers("--layers", layers), "positions": numbers("--positions", positions),
        "rank": rank, "max_kl": max_kl, "generate": generate, "held_out": held_out,
        "max_new_tokens": max_new_tokens, "chat": chat, "approximate": approximate, "seed": seed,
    }  # fmt: skip
    request = Request(
        harmful, harmless, (harmful_label, harmless_label), model, out, save, choices, fields, n,
        dtype, device, plan, as_json, overwrite,
    )  # fmt: skip
    _abliterate(request, *request.read())


def numbers(option: str, text: str | None) -> list[int] | None:
    """``-2,-1`` or ``3-6,9`` as whole numbers; None for nothing said.

    Raises:
        SpecError: It is no such list.
    """
    import re

    if text is None:
        return None
    found: list[int] = []
    for part in text.split(","):
        run = re.fullmatch(r"\s*(?:(-?\d+)|(\d+)-(\d+))\s*", part)
        if run is None:
            raise SpecError(f"{option} {text}: write numbers such as 3,5 or 3-9.")
        one, first, last = run.groups()
        found += [int(one)] if one is not None else range(int(first), int(last) + 1)
    if not found:
        raise SpecError(f"{option} {text} names nothing.")
    return found


def _abliterate(request: Request, harmful: list[str], harmless: list[str]) -> None:
    with Output(request.as_json) as output, keeping(None), output.progress() as bar:
        from tlkit.cli.abliterate_page import cost, sections, show
        from tlkit.models.load import HookedTransformer
        from tlkit.results.files import save
        from tlkit.studies import abliteration as study

        output.say(f"{len(harmful)} harmful and {len(harmless)} harmless prompts.")
        output.loading(request.model)
        model = HookedTransformer.from_pretrained(
            request.model, dtype=request.dtype, device=request.device
        )
        if request.plan:
            plan = cost(model, len(harmful), len(harmless), request.choices)
            output.result({"plan": plan}, "\n".join(f"{k}: {v}" for k, v in plan.items()))
            return
        found = study.run(model, harmful, harmless, stages=bar.stage, **request.choices)
        if request.out is not None and request.out.suffix == ".zarr":
            save(found, request.out, overwrite=request.overwrite)
        elif request.out is not None:
            from tlkit.plots import report

            report(sections(found), request.out, title=f"Abliteration of {request.model}")
        if request.save is not None:
            with study.bake(model, found, approximate=request.choices["approximate"]) as baked:
                study.save(baked, request.save, result=found, overwrite=request.overwrite)
        show(output, found, [path for path in (request.out, request.save) if path is not None])
