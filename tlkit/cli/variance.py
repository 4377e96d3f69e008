"""``tlkit variance``: how attention varies on long documents, of one model or of two."""

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
    SeedOption,
    StreamOption,
    check_device,
    check_out,
)
from tlkit.cli.output import Output
from tlkit.errors import SpecError

ENDINGS = (".html", ".zarr")
ABOUT = {
    "temporal": "Variance of the last queries' weights on the tokens before them, summed over "
    "tokens and heads (Qin et al. 2025).",
    "column": "Variance over tokens of the attention that all queries give them, scaled over a "
    "layer's heads to 0 … 1 (Wan et al. 2024).",
    "rank": "How far the most attended tokens move in the order of attention from layer to layer, "
    "in shares of the document.",
}


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    documents: Path
    model: str
    compare: list[str]
    out: Path | None
    max_tokens: int | None
    longer: Any
    window: int
    n: int | None
    fields: str | None
    seed: int
    dtype: Any
    device: str | None
    stream: bool
    as_json: bool
    overwrite: bool

    def rows(self) -> list[dict[str, Any]]:
        """The documents; what cannot be is refused before a model is loaded."""
        check_device(self.device)
        if self.out is None and not self.as_json:
            raise SpecError("variance needs --out NAME.html or .zarr (or --json).")
        if self.out is not None:
            check_out(self.out, ENDINGS, overwrite=self.overwrite)
        if len({self.model, *self.compare}) <= len(self.compare):
            raise SpecError("--compare names a model that is there already.")
        from tlkit.prompts.read import parse_fields, read_jsonl

        return read_jsonl(self.documents, parse_fields(self.fields), ("text",), ("id",), self.n)


def variance(
    documents: Annotated[
        Path, typer.Option("--documents", metavar="PATH", help="JSON lines with a 'text' each.")
    ],
    model: ModelOption = "smollm2-135m-instruct",
    compare: Annotated[
        list[str] | None,
        typer.Option("--compare", metavar="SOURCE", help="Another model; may be repeated."),
    ] = None,
    out: OutOption = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", min=4, help="Most tokens of a document.")
    ] = None,
    longer: Annotated[
        Literal["middle", "end", "windows"],
        typer.Option("--longer", help="What is left out of longer ones; or cut into windows."),
    ] = "middle",
    window: Annotated[
        int, typer.Option("--window", min=2, help="The last queries that are looked at.")
    ] = 32,
    n: Annotated[int | None, typer.Option("--n", min=1, help="Only the first N.")] = None,
    fields: FieldsOption = None,
    seed: SeedOption = 0,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    stream: StreamOption = False,
    as_json: JsonOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Measure attention variance per layer on long documents, original against fine-tuned."""
    request = Request(
        documents, model, list(compare or ()), out, max_tokens, longer, window, n, fields, seed,
        dtype, device, stream, as_json, overwrite,
    )  # fmt: skip
    _variance(request, request.rows())


def _variance(request: Request, rows: list[dict[str, Any]]) -> None:
    with Output(request.as_json) as output, keeping(None), output.progress() as bar:
        from tlkit.models.load import HookedTransformer
        from tlkit.results.files import save
        from tlkit.studies import variance as study

        models = {}
        for source in (request.model, *request.compare):
            output.loading(source)
            models[source] = HookedTransformer.from_pretrained(
                source, dtype=request.dtype, device=request.device, stream=request.stream
            )
        found = study.run(
            models, rows, max_tokens=request.max_tokens, longer=request.longer,
            window=request.window, progress=bar.stage("documents"),
        )  # fmt: skip
        if request.out is not None and request.out.suffix == ".zarr":
            save(found, request.out, overwrite=request.overwrite)
        elif request.out is not None:
            from tlkit.plots import report

            report(_sections(found, request), request.out, title="Attention variance")
        _show(output, found, request)


def _sections(found: Any, request: Request) -> list[Any]:
    from tlkit.plots import Section, curve, heatmap
    from tlkit.studies import variance as study

    made = []
    for kind, text in ABOUT.items():
        drawn = curve(
            study.by_layer(found, kind), "layer", lines="model", variable="layer_variance",
            title=f"{kind} variance",
        )  # fmt: skip
        items: list[Any] = [text, drawn]
        if request.compare and found.sizes["document"] < 6:
            items.append(
                f"{found.sizes['document']} documents are too few to tell models apart: give more."
            )
        for other in request.compare if found.sizes["document"] > 1 else ():
            tested = study.compare(found, request.model, other, kind, seed=request.seed)
            title = f"{other} less {request.model}"
            items += [
                curve(_difference(found, request.model, other, kind), title=title),
                f"{title}, tested over documents:",
                _rows(tested),
            ]
        made.append(Section(f"{kind} variance", items))
    for name in found["model"].values.tolist():
        one = found.sel(model=name)
        made.append(Section(f"Heads of {name}", [
            heatmap(one["variance"].sel(kind="temporal"), title="temporal variance"),
            heatmap(one["sink_share"], title="attention on the first token"),
            heatmap(one["entropy_rest"], title="entropy without the first token, over its largest"),
        ]))  # fmt: skip
    return [*made, Section("How it was run", [dict(found.attrs)])]


def _difference(found: Any, first: str, second: str, kind: str) -> Any:
    """The second model's variance less the first's, document by document."""
    values = found["layer_variance"].sel(kind=kind)
    change = values.sel(model=second, drop=True) - values.sel(model=first, drop=True)
    return change.assign_attrs(values.attrs)


def _rows(tested: Any) -> list[dict[str, Any]]:
    names = ("difference", "low", "high", "p_value", "p_adjusted")
    return [
        {"layer": int(layer), **{name: float(tested[name].sel(layer=layer)) for name in names}}
        for layer in tested["layer"].values
    ]


def _show(output: Output, found: Any, request: Request) -> None:
    from rich.table import Table

    values = found["layer_variance"].sel(kind="temporal").mean("document")
    layers = values["layer"].values.tolist()
    asked = [layers[round(i * (len(layers) - 1) / 6)] for i in range(7)] if layers[6:] else layers
    table = Table(title="temporal variance, mean over documents", box=None, pad_edge=False)
    for column in ("layer", *values["model"].values.tolist()):
        table.add_column(column, justify="right")
    for layer in asked:
        row = [f"{float(x):.3f}" for x in values.sel(layer=layer).values]
        table.add_row(str(layer), *row)
    every = {
        kind: found["layer_variance"].sel(kind=kind).mean("document").values
        for kind in found["kind"].values.tolist()
    }
    result = {
        "out": request.out, "models": values["model"].values, "layer_variance": every,
        "documents": found.attrs["documents"], "seconds": found.attrs["seconds"],
    }  # fmt: skip
    written = [] if request.out is None else [f"Wrote {request.out}."]
    output.result(result, table, *written)
