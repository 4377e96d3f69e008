"""The Python that gives the numbers on the screen."""

from typing import Any

from tlkit.app.screen import texts
from tlkit.app.state import METRICS, State
from tlkit.errors import SpecError
from tlkit.models.info import info
from tlkit.prompts.prompts import Prompts
from tlkit.spec.attention import EdgeIntervention
from tlkit.spec.interventions import Ablate, Patch
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import AnyIntervention
from tlkit.studies.maps import MAPS


def code(model: Any, state: State) -> str:
    """Python that measures what is on the screen: the changes, or without any, the map.

    It loads the model by the source that `tk.HookedTransformer.from_pretrained` was given; a model
    that was made of an object has none, and the code then uses the name ``model``.
    """
    metric = f"tk.{METRICS[state.metric]().__class__.__name__}()"
    lines = ["import tlkit as tk", "", *_model(model), *_prompts(model, state.prompts)]
    if state.changes:
        lines += ["condition = tk.Condition(", '    "explorer",', "    ("]
        lines += [f"        {written(one)}," for one in state.changes]
        lines += [
            "    ),",
            ")",
            "sweep = tk.Sweep.over([condition])",
            f"found = tk.run(model, prompts, sweep, {metric}, on={state.base!r})",
            'value = float(found["value"].squeeze())',
        ]
    else:
        by = next(name for name, axis in MAPS.items() if axis == state.axis)
        lines += [
            f"found = tk.patching.run(model, prompts, {state.site!r}, {metric}, by={by!r}, "
            f"on={state.base!r})",
            "tk.plot(found)",
        ]
    return "\n".join(lines) + "\n"


def written(change: AnyIntervention) -> str:
    """A change as the call that makes it."""
    if isinstance(change, EdgeIntervention):
        names = ("queries", "keys", "layers", "heads", "mode")
        given = {name: getattr(change, name, None) for name in names}
        inside = [f"{name}={value!r}" for name, value in given.items() if value is not None]
        return f"tk.{type(change).__name__}({', '.join(inside)})"
    site = _site(change.site)
    if isinstance(change, Patch):
        return f"tk.Patch({site}, source={change.source!r})"
    assert isinstance(change, Ablate)
    return f"tk.Ablate({site}, value={change.value!r})"


def _site(site: Site) -> str:
    given = {name: getattr(site, name) for name in ("layer", "head", "pos")}
    inside = "".join(f", {name}={value!r}" for name, value in given.items() if value is not None)
    return f"tk.Site({site.component!r}{inside})"


def _model(model: Any) -> list[str]:
    known = info(model)
    if known.source == known.family:  # made of an object, of which only its class is known
        return [f"# model: the {known.family} that the explorer was given", ""]
    dtype = "" if known.dtype == "float32" else f", dtype={known.dtype!r}"
    return [f"model = tk.HookedTransformer.from_pretrained({known.source!r}{dtype})"]


def _prompts(model: Any, prompts: Prompts) -> list[str]:
    """The call that makes exactly this pair: of texts where they give the same ids."""
    said = texts(model, prompts)
    answers = [
        [said[name]] if getattr(prompts, f"{name}s") is not None else None
        for name in ("answer", "wrong_answer")
    ]
    chat = ", chat=True" if prompts.chat else ""
    try:
        made = Prompts.from_pairs(
            model, [said["clean"]], [said["corrupted"]], *answers,  # type: ignore[arg-type]
            chat=prompts.chat,
        )  # fmt: skip
    except SpecError:
        made = None
    if made is not None and _same(made, prompts):
        given = [[said["clean"]], [said["corrupted"]], *answers]
        head = "prompts = tk.Prompts.from_pairs("
        names = ("clean", "corrupted", "answers", "wrong_answers")
        rows = [f"    {name}={value!r}," for name, value in zip(names, given, strict=True)]
        return [head, "    model,", *rows, *([f"    {chat[2:]},"] if chat else []), ")"]
    return _tokens(model, prompts)


def _tokens(model: Any, prompts: Prompts) -> list[str]:
    """The pair by its token ids, with spans where they decide what is aligned with what."""
    named = ("clean", "corrupted", "answers", "wrong_answers")
    rows = {name: getattr(prompts, name) for name in named}
    given: dict[str, Any] = {
        name: [list(row) for row in value] for name, value in rows.items() if value
    }
    if not _same(Prompts.from_tokens(**given), prompts):
        for name in ("spans", "corrupted_spans"):
            given[name] = {
                span: [None if one is None else (int(one[0]), int(one[1])) for one in several]
                for span, several in getattr(prompts, name).items()
            }
    tokenizer = ["    model=model,"] if getattr(model, "tokenizer", None) is not None else []
    return [
        "prompts = tk.Prompts.from_tokens(",
        *[f"    {name}={value!r}," for name, value in given.items()],
        *tokenizer,
        ")",
    ]


def _same(one: Prompts, other: Prompts) -> bool:
    return one.hash() == other.hash() and one.alignment == other.alignment
