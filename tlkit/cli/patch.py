"""``tlkit patch``: which activations carry the answer."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tlkit.cli.exits import Interrupted, keeping
from tlkit.cli.options import (
    DeviceOption,
    DtypeOption,
    EngineOption,
    ExecutorOption,
    FieldsOption,
    JsonOption,
    ModelOption,
    OutOption,
    OverwriteOption,
    PlanOption,
    ResumeOption,
    SeedOption,
    StreamOption,
    WorkersOption,
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
BudgetOption = Annotated[
    str | None, typer.Option("--budget", help="Memory besides the weights, as 4GiB.")
]


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
    single_token: Annotated[
        bool, typer.Option("--single-token", help="Leave out pairs with longer answers.")
    ] = False,
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
    budget: BudgetOption = None,
    seed: SeedOption = 0,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    stream: StreamOption = False,
    engine: EngineOption = "packed",
    executor: ExecutorOption = None,
    workers: WorkersOption = None,
    plan: PlanOption = False,
    as_json: JsonOption = False,
    resume: ResumeOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Patch activations of the clean run into the corrupted one, and map what they restore."""
    request = Request(
        _one_file(pairs_file, pairs), model, out, list(site or _usual(out)), by, metric, n, noise,
        chat, single_token, fields, audit, top, remainder, budget, seed, dtype, device, stream,
        engine, plan, as_json, resume, overwrite, executor, workers,
    )  # fmt: skip
    request.check()
    _patch(request)


def _patch(request: Request) -> None:
    with Output(request.as_json) as output, keeping(request.store), output.progress() as bar:
        from tlkit.models.load import HookedTransformer
        from tlkit.prompts.pairs import pairs_from_jsonl
        from tlkit.prompts.read import parse_fields
        from tlkit.studies import patching

        output.loading(request.model)
        model = HookedTransformer.from_pretrained(
            request.model, dtype=request.dtype, device=request.device, stream=request.stream
        )
        fields = parse_fields(request.fields)
        prompts = pairs_from_jsonl(model, request.pairs, fields, request.n, request.chat)
        if request.single_token:
            prompts = _single(prompts, output)
        if request.plan:
            _say_plan(output, model, prompts, request)
            return
        found: list[Any] = []
        try:
            for name in request.sites:
                found.append(patching.run(
                    model, prompts, name, METRICS[request.metric](), **request.asked,
                    engine=request.engine, store=request.store, overwrite=request.overwrite,
                    budget=request.budget, audit=request.audit, seed=request.seed, **request.verify,
                    progress=bar.stage(f"patching {name}"), executor=request.spread,
                ))  # fmt: skip
        except KeyboardInterrupt:
            if not found or request.out is None:
                raise
            _write(found, request.out, request.model)
            raise Interrupted(f"{request.out} has what was finished: {_names(found)}.") from None
        if request.out is not None and request.store is None:
            _write(found, request.out, request.model)
        _show(output, found, request.out)


def _single(prompts: Any, output: Output) -> Any:
    """The pairs whose answers are one token each."""
    sides = [side for side in (prompts.answers, prompts.wrong_answers) if side]
    kept = [i for i in range(len(prompts)) if all(len(side[i]) == 1 for side in sides)]
    output.say(f"{len(kept)} of {len(prompts)} pairs have answers of one token.")
    if not kept:
        raise SpecError("No pair has answers of one token; use --metric answer_prob.")
    return prompts[kept]


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
        audit = {k: v for k, v in one.attrs.items() if k.startswith("audit_")}
        values[one.attrs["site"]] = {"top": cells, "seconds": one.attrs["seconds"], **audit}
        table = Table(title=f"{one.attrs['site']}: largest mean effects", box=None, pad_edge=False)
        axes = [str(name) for name in one["exact"].dims]
        for column in (*axes, "effect", "prompts"):
            table.add_column(column, justify="right")
        for cell in cells:
            row = [str(cell[name]) for name in axes]
            table.add_row(*row, f"{cell['value']:+.3f} {cell['units']}", str(cell["n"]))
        tables.append(table)
    audits = [
        f"{one.attrs['site']}: {one.attrs['audit_jobs']} cells run again by the reference engine; "
        f"the largest difference is {one.attrs['audit_difference']:.2g}."
        for one in found
        if "audit_jobs" in one.attrs
    ]
    written = [] if path is None else [f"Wrote {path}."]
    output.result({"out": path, "maps": values}, *tables, *audits, *written)
