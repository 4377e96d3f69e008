"""``tlkit check``: does everything promised about a model hold for this one?"""

import typer
from rich.table import Table

from tlkit.cli.exits import DONE, FAILED
from tlkit.cli.options import (
    DeviceOption,
    DtypeOption,
    JsonOption,
    ModelOption,
    SeedOption,
    StreamOption,
    check_device,
)
from tlkit.cli.output import Output

_MARKS = {True: "pass", False: "FAIL", None: "-"}


def check(
    model: ModelOption = "smollm2-135m-instruct",
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    stream: StreamOption = False,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Hold a model to what tlkit promises: Hugging Face's numbers, sites, tokens, caching."""
    check_device(device)
    with Output(as_json) as output, output.progress() as bar:
        from tlkit import checks
        from tlkit.models.load import HookedTransformer

        output.loading(model)
        loaded = HookedTransformer.from_pretrained(model, dtype=dtype, device=device, stream=stream)
        found = checks.run(loaded, seed=seed, progress=bar.stage("checking"))
        table = Table("check", "", "measured", "what it means", box=None, pad_edge=False)
        for one in found:
            table.add_row(one.name, _MARKS[one.passed], one.measured, one.detail)
        failed = [one.name for one in found if one.passed is False]
        values = {"model": model, "passed": not failed, "failed": failed}
        line = f"{model}: {', '.join(failed)} failed." if failed else f"{model}: nothing failed."
        output.result({**values, "checks": [vars(one) for one in found]}, table, line)
    raise typer.Exit(FAILED if failed else DONE)
