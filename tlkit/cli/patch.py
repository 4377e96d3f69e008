"""``tlkit patch``: which activations carry the answer."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tlkit.cli.exits import Interrupted, keeping
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
    remove_run,
)
from tlkit.cli.output import Output
from tlkit.cli.patch_request import Request
from tlkit.errors import SpecError
from tlkit.spec.metrics import KL, AnswerProb, AnswerRank, LogitDiff

METRICS = {
    "logit_diff": LogitDiff,
    "answer_prob": AnswerProb,
    "answer_rank": AnswerRank,
    "kl": KL,
}


def patch(
    pairs_file: Annotated[
        Path | None, typer.Argument(metavar="[PAIRS]", help="JSON lines of prompt pairs.")
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option("--pairs", metavar="PATH", help="The same, as an option.")
    ] = None,
    model: ModelOption = "smollm2-135m-instruct",
    out: OutOption = None,
    site: Annotated[
        list[str] | None,
        typer.Option("--site", help="What to patch: resid_pre, attn_out, z, …; may be repeated."),
    ] = None,
    by: Annotated[
        Literal["positions", "heads"] | None,
        typer.Option("--by", help="Second axis of the map; heads for z, q, k, v and pattern."),
    ] = None,
    metric: Annotated[
        Literal["logit_diff", "answer_prob", "answer_rank", "kl"],
        typer.Option("--metric", help="What to read at the end."),
    ] = "logit_diff",
    n: Annotated[int | None, typer.Option("--n", min=1, help="Only the first N pairs.")] = None,
    noise: Annotated[
        bool, typer.Option("--noise", help="Put corrupted into clean (noising).")
    ] = False,
    chat: Annotated[bool, typer.Option("--chat", help="Put the chat template around.")] = False,
    fields: FieldsOption = None,
    audit: Annotated[
        float, typer.Option("--audit", help="Share of cells that the reference runs again.")
    ] = 0.0,
    top: Annotated[
        int | None, typer.Option("--top", min=1, help="Cells that --engine verified runs.")
    ] = None,
    remainder: Annotated[
        int | None, typer.Option("--remainder", min=0, help="And how many of the others.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", help="Memory besides the weights, as 4GiB.")
    ] = None,
    seed: SeedOption = 0,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    engine: EngineOption = "packed",
    plan: PlanOption = False,
    as_json: JsonOption = False,
    resume: ResumeOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Patch activations of the clean run into the corrupted one, and map what they restore."""
    request = Request(
        _one_file(pairs_file, pairs), model, out, list(site or _usual(out)), by, metric, n, noise,
        chat, fields, audit, top, remainder, budget, seed, dtype, device, engine, plan, as_json,
        resume, overwrite,
    )  # fmt: skip
    request.check()
    _patch(request)


def _patch(request: Request) -> None:
    with Output(request.as_json) as output, keeping(request.store), output.progress() as bar:
        from tlkit.models.load import HookedTransformer
        from tlkit.prompts.pairs import pairs_from_jsonl
        from tlkit.prompts.read import parse_fields
        from tlkit.studies import patching

        output.say(f"Loading {request.model} …")
        model = HookedTransformer.from_pretrained(
            request.model, dtype=request.dtype, device=request.device
        )
        fields = parse_fields(request.fields)
        prompts = pairs_from_jsonl(model, request.pairs, fields, request.n, request.chat)
        if request.plan:
            _say_plan(output, model, prompts, request)
            return
        if request.store is not None and request.overwrite:
            remove_run(request.store)
        found: list[Any] = []
        try:
            for name in request.sites:
                found.append(patching.run(
                    model, prompts, name, METRICS[request.metric](), **request.asked,
                    engine=request.engine, store=request.store, budget=request.budget,
                    audit=request.audit, seed=request.seed, **request.verify,
                    progress=bar.stage(f"patching {name}"),
                ))  # fmt: skip
        except KeyboardInterrupt:
            if not found or request.out is None:
                raise
            _write(found, request.out, request.model)
            raise Interrupted(f"{request.out} has what was finished: {_names(found)}.") from None
        if request.out is not None and request.store is None:
            _write(found, request.out, request.model)
        _show(output, found, request.out)


def _names(found: list[Any]) -> str:
    return ", ".join(one.attrs["site"] for one in found)


def _one_file(argument: Path | None, option: Path | None) -> Path:
    if (argument is None) == (option is None):
        raise SpecError("patch needs one file of pairs: tlkit patch PAIRS.jsonl --out map.html.")
    return argument or option or Path()


def _usual(out: Path | None) -> list[str]:
    """A page has room for both usual maps; a store or table holds one."""
    return ["resid_pre", "z"] if out is not None and out.suffix == ".html" else ["resid_pre"]


def _say_plan(output: Output, model: Any, prompts: Any, request: Request) -> None:
    from tlkit.engine.planning import plan
    from tlkit.studies import patching

    plans = {
        name: plan(
            model, prompts, patching.sweep(model, prompts, name, **request.asked),
            METRICS[request.metric](), on=request.asked["on"], engine=request.engine,
            budget=request.budget,
        )
        for name in request.sites
    }  # fmt: skip
    output.result(
        {"plan": {name: one.as_dict() for name, one in plans.items()}},
        *[f"{name}: {one}" for name, one in plans.items()],
    )


def _write(found: list[Any], path: Path, model: str) -> None:
    if path.suffix == ".csv":
        from tlkit.results import to_csv

        to_csv(found[0], path, overwrite=True)
        return
    from tlkit.plots import Section, report

    sections = [Section(f"Patching {one.attrs['site']}", [one]) for one in found]
    report(sections, path, title=f"Activation patching in {model}")


def _show(output: Output, found: list[Any], path: Path | None) -> None:
    from rich.table import Table

    from tlkit.results import top

    tables, values = [], {}
    for one in found:
        cells = top(one, 5)
        values[one.attrs["site"]] = {"top": cells, "seconds": one.attrs["seconds"]}
        table = Table(title=f"{one.attrs['site']}: largest mean effects", box=None, pad_edge=False)
        axes = [str(name) for name in one["exact"].dims]
        for column in (*axes, "effect", "prompts"):
            table.add_column(column, justify="right")
        for cell in cells:
            row = [str(cell[name]) for name in axes]
            table.add_row(*row, f"{cell['value']:+.3f} {cell['units']}", str(cell["n"]))
        tables.append(table)
    written = [] if path is None else [f"Wrote {path}."]
    output.result({"out": path, "maps": values}, *tables, *written)
