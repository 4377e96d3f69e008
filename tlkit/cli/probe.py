"""``tlkit probe``: at which layer are two kinds of prompt told apart?"""

from collections.abc import Callable
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
DEFAULT_MODEL = "smollm2-135m-instruct"
ABOUT = (
    "Each cell: how well a classifier on one layer's activations tells prompts that it has not "
    "seen. A score means something only above the controls, which need no activations (majority, "
    "positive, length, words) or no truth (shuffled labels)."
)
JOINT = "Test prompts shaped the features (transductive): scores are too high by an unknown amount."


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    prompts: Path
    models: list[str]
    positive: str
    out: Path | None
    store: Path | None
    asked: dict[str, Any]
    n: int | None
    fields: str | None
    dtype: Any
    device: str | None
    stream: bool
    plan: bool
    as_json: bool
    overwrite: bool

    def rows(self) -> list[dict[str, Any]]:
        """The labelled prompts; what cannot be is refused before a model is loaded."""
        check_device(self.device)
        if self.out is None and not (self.as_json or self.plan):
            raise SpecError("probe needs --out NAME.html or .zarr (or --json or --plan).")
        if self.out is not None:
            check_out(self.out, ENDINGS, overwrite=self.overwrite)
        if len(set(self.models)) < len(self.models):
            raise SpecError("--model names a model twice.")
        if self.store is not None and self.store.exists() and not self.store.is_dir():
            raise SpecError(f"--store {self.store} is a file: give a folder.")
        from tlkit.prompts.read import parse_fields, read_jsonl
        from tlkit.studies.layer_probes.settings import settings

        kinds = (str, int, bool)
        rows = read_jsonl(
            self.prompts, parse_fields(self.fields), {"prompt": str, "label": kinds},
            {"group": (str, int)}, self.n,
        )  # fmt: skip
        settings(rows, positive=self.positive, **self.asked)
        return rows

    def loaders(self) -> dict[str, Callable[[], Any]]:
        """Functions that load a model when its turn comes."""
        return {source: self._loader(source) for source in self.models}

    def _loader(self, source: str) -> Callable[[], Any]:
        def load() -> Any:
            from tlkit.models.load import HookedTransformer

            return HookedTransformer.from_pretrained(
                source, dtype=self.dtype, device=self.device, stream=self.stream
            )

        return load


def probe(
    prompts: Annotated[
        Path,
        typer.Option("--prompts", metavar="PATH", help="JSON lines: prompt, label; maybe group."),
    ],
    positive: Annotated[
        str, typer.Option("--positive", metavar="LABEL", help="The label whose F1 is told.")
    ],
    model: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="SOURCE", help="A model; may be repeated, one row each."),
    ] = None,
    out: OutOption = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="FOLDER", help="Keep activations; a rerun goes on there."),
    ] = None,
    features: Annotated[
        Literal["cp", "last", "mean"],
        typer.Option("--features", help="CP factors, the last token, or the mean over tokens."),
    ] = "cp",
    classifier: Annotated[
        Literal["logistic", "linear_svm", "rbf_svm", "forest"],
        typer.Option("--classifier", help="scikit-learn's, on standardised features."),
    ] = "logistic",
    folds: Annotated[int, typer.Option("--folds", min=2, help="Of the cross-validation.")] = 5,
    transductive: Annotated[
        bool, typer.Option("--transductive", help="Decompose test prompts too, as the paper does.")
    ] = False,
    rank: Annotated[int, typer.Option("--rank", min=1, help="CP components.")] = 20,
    last_tokens: Annotated[
        int, typer.Option("--last-tokens", min=1, help="Tokens of a prompt that CP sees.")
    ] = 64,
    compress: Annotated[
        int, typer.Option("--compress", min=1, help="Directions that CP sees (SVD).")
    ] = 32,
    iterations: Annotated[int, typer.Option("--iterations", min=1, help="Of CP, at most.")] = 50,
    starts: Annotated[int, typer.Option("--starts", min=1, help="Of CP and forest; averaged.")] = 3,
    chat: Annotated[bool, typer.Option("--chat", help="Put the chat template around.")] = False,
    n: Annotated[int | None, typer.Option("--n", min=1, help="Only the first N prompts.")] = None,
    fields: FieldsOption = None,
    seed: SeedOption = 0,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    stream: StreamOption = False,
    plan: PlanOption = False,
    as_json: JsonOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Map, layer by layer, how well two kinds of prompt are told apart, for one or more models."""
    asked = {
        "features": features, "classifier": classifier, "folds": folds, "rank": rank,
        "inductive": not transductive, "last_tokens": last_tokens, "compress": compress,
        "iterations": iterations, "seeds": tuple(range(seed, seed + starts)), "chat": chat,
    }  # fmt: skip
    _probe(Request(
        prompts, model or [DEFAULT_MODEL], positive, out, store, asked, n, fields, dtype,
        device, stream, plan, as_json, overwrite,
    ))  # fmt: skip


def _probe(request: Request) -> None:
    rows = request.rows()
    with Output(request.as_json) as output, keeping(None), output.progress() as bar:
        from tlkit.studies import layer_probes as study

        common: dict[str, Any] = {"positive": request.positive, **request.asked}
        if request.plan:
            costs = study.plan(request.loaders(), rows, **common)
            output.result({"plan": costs}, *(f"{name}: {_cost(c)}" for name, c in costs.items()))
            return
        output.say(f"Probing {', '.join(request.models)} …")
        found = study.run(
            request.loaders(), rows, store=request.store, progress=bar.stage("prompts, layers"),
            **common,
        )  # fmt: skip
        if request.out is not None:
            _write(found, request.out, overwrite=request.overwrite)
        _show(output, found, study.table(found), request.out)


def _cost(cost: dict[str, int]) -> str:
    return (
        f"{cost['prompts']:,} prompts of {cost['tokens']:,} tokens through {cost['layers']} "
        f"layers once; {cost['bytes'] / 1e9:.2f} GB of activations on disk; "
        f"{cost['decompositions']:,} decompositions, {cost['fits']:,} classifiers."
    )


def _write(found: Any, path: Path, *, overwrite: bool) -> None:
    if path.suffix == ".zarr":
        from tlkit.results.files import save

        save(found, path, overwrite=overwrite)
        return
    from tlkit.plots import Section, plot, report
    from tlkit.studies.layer_probes import table

    joint = [JOINT] if found.attrs["mode"] == "transductive" else []
    items = [ABOUT, *joint, plot(found), "The best layer of each, beside controls:", table(found)]
    other = "balanced_accuracy"
    sections = [
        Section(f"F1 of {found.attrs['positive']!r} by layer", items),
        Section("Balanced accuracy by layer", [plot(found, variable=other), table(found, other)]),
        Section("How it was run", [dict(found.attrs)]),
    ]
    report(sections, path, title="Layer probes")


def _show(output: Output, found: Any, rows: list[dict[str, Any]], path: Path | None) -> None:
    from rich.table import Table

    shown = Table(title="best layer, mean over folds", box=None, pad_edge=False)
    for name in rows[0]:
        shown.add_column(name, justify="left" if name in ("model", "site") else "right")
    for row in rows:
        shown.add_row(*(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()))
    f1 = found["f1"].mean("fold")
    values = {
        "out": path, "mode": found.attrs["mode"], "best": rows,
        "f1": {
            name: {site: f1.sel(model=name, site=site).values for site in f1["site"].values}
            for name in f1["model"].values
        },
        "seconds": found.attrs["seconds"],
    }  # fmt: skip
    output.result(values, shown, *([] if path is None else [f"Wrote {path}."]))
