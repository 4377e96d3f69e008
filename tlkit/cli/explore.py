"""``tlkit explore``: the patching explorer in a browser."""

import threading
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tlkit.cli.exits import Interrupted
from tlkit.cli.options import (
    DeviceOption,
    DtypeOption,
    FieldsOption,
    JsonOption,
    ModelOption,
    StreamOption,
    check_device,
)
from tlkit.cli.output import Output
from tlkit.errors import SpecError


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    pairs: Path
    model: str
    site: str
    metric: Any
    noise: bool
    n: int | None
    chat: bool
    fields: str | None
    port: int | None
    browser: bool
    dtype: Any
    device: str | None
    stream: bool
    as_json: bool

    def check(self) -> None:
        """Refuse what cannot be, before a model is loaded."""
        check_device(self.device)
        from tlkit.app.server import check_installed
        from tlkit.app.state import SITES
        from tlkit.prompts.pairs import OPTIONAL, REQUIRED
        from tlkit.prompts.read import parse_fields, read_jsonl
        from tlkit.studies.maps import second_axis

        second_axis(self.site)  # says what sites there are
        if self.site not in SITES:
            raise SpecError(f"The explorer has no map of {self.site!r}; use tlkit patch.")
        check_installed()
        read_jsonl(self.pairs, parse_fields(self.fields), REQUIRED, OPTIONAL, self.n)


def explore(
    pairs_file: Annotated[
        Path | None, typer.Argument(metavar="[PAIRS]", help="JSON lines of prompt pairs.")
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option("--pairs", metavar="PATH", help="The same, as an option.")
    ] = None,
    model: ModelOption = "smollm2-135m-instruct",
    site: Annotated[
        str, typer.Option("--site", help="What the map patches at first: resid_pre, z, …")
    ] = "resid_pre",
    metric: Annotated[
        Literal["logit_diff", "answer_prob", "kl"] | None,
        typer.Option("--metric", help="What it measures at first."),
    ] = None,
    noise: Annotated[
        bool, typer.Option("--noise", help="Put corrupted into clean (noising) at first.")
    ] = False,
    n: Annotated[int | None, typer.Option("--n", min=1, help="Only the first N pairs.")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Put the chat template around.")] = False,
    fields: FieldsOption = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=1, max=65535, help="Of this machine; a free one if not given."),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only say where the page is.")
    ] = False,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    stream: StreamOption = False,
    as_json: JsonOption = False,
) -> None:
    """Click through patches in a browser; only this machine can reach the page."""
    if (pairs_file is None) == (pairs is None):
        raise SpecError("explore needs one file of pairs: tlkit explore --pairs PAIRS.jsonl.")
    request = Request(
        pairs_file or pairs or Path(), model, site, metric, noise, n, chat, fields, port,
        not no_browser, dtype, device, stream, as_json,
    )  # fmt: skip
    request.check()
    _explore(request)


def _explore(request: Request) -> None:
    from tlkit.app.server import Served, listen

    with listen(request.port) as taken, Output(request.as_json) as output:
        from tlkit.app.explore import first_state
        from tlkit.app.kernel import Kernel
        from tlkit.models.load import HookedTransformer
        from tlkit.prompts.pairs import pairs_from_jsonl
        from tlkit.prompts.read import parse_fields

        output.loading(request.model)
        model = HookedTransformer.from_pretrained(
            request.model, dtype=request.dtype, device=request.device, stream=request.stream
        )
        fields = parse_fields(request.fields)
        prompts = pairs_from_jsonl(model, request.pairs, fields, request.n, request.chat)
        direction = "noise" if request.noise else "denoise"
        state = first_state(model, prompts, request.site, request.metric, direction, 0)
        Kernel(model, state)  # whatever it refuses is said now, not by a page
        served = Served(model, state, taken)
        output.result({"url": served.url}, f"The explorer is at {served.url}")
        output.say("Ctrl+C ends it.")
        if request.browser:  # some browsers run in the terminal and return when they are closed
            threading.Thread(target=webbrowser.open, args=(served.url,), daemon=True).start()
        try:
            served.run()
        except KeyboardInterrupt:
            raise Interrupted("the explorer is closed.") from None
