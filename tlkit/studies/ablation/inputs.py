"""Each model's prompts and reference, made with its own tokenizer."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tlkit.engine.refusals import check_prompts
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts
from tlkit.studies.ablation.settings import Settings


@dataclass(frozen=True, eq=False)
class Subject:
    """A model with what it reads.

    Attributes:
        name: What it is called in results.
        model: The model.
        parts: Its sizes and modules.
        prompts: What it is ablated on.
        reference: What means and other examples are taken from; None where resampling draws from
            the prompts themselves, so that none is its own replacement.
    """

    name: str
    model: Any
    parts: Parts
    prompts: Prompts
    reference: Prompts | None


def subjects(
    models: Any, prompts: Any, reference: Any, settings: Settings, *, chat: bool
) -> list[Subject]:
    """Every model with its prompts, checked.

    Raises:
        SpecError: There are no models or prompts, or prompts do not fit a model.
    """
    named = dict(models) if isinstance(models, Mapping) else {_name(models): models}
    if not named or len({str(name) for name in named}) < len(named):
        raise SpecError("ablation needs a model, or a mapping of names to models.")
    given = prompts if isinstance(prompts, Prompts) else _rows(prompts, "prompts")
    drawn = reference
    if reference is not None and not isinstance(reference, Prompts):
        drawn = _rows(reference, "reference")
    made = []
    for name, model in named.items():
        own = _single(_made(model, given, chat=chat))
        check_prompts(model, own)
        parts = Parts(model)
        settings.check_depth(name, parts.n_layers)
        source = _reference(name, model, own, drawn, settings, chat=chat)
        made.append(Subject(str(name), model, parts, own, source))
    return made


def _reference(
    name: str, model: Any, own: Prompts, given: Any, settings: Settings, *, chat: bool
) -> Prompts | None:
    source = None if given is None else _single(_made(model, given, chat=chat))
    if source is not None:
        try:
            check_prompts(model, source)
        except SpecError as error:
            raise SpecError(f"The reference does not fit {name}: {error}") from None
    if settings.value == "resample":
        same = source is None or source.clean == own.clean
        if same and len(own) < 2:
            raise SpecError(
                "Resampling takes another prompt's activations and there is one prompt; give "
                "more, or a reference."
            )
        return None if same else source
    return own if source is None else source


def _made(model: Any, given: Any, *, chat: bool) -> Prompts:
    if isinstance(given, Prompts):
        return given
    texts, answers = given
    return Prompts.from_texts(model, texts, answers, chat=chat)


def _single(prompts: Prompts) -> Prompts:
    """The prompts without corrupted twins, which ablation has no use for."""
    return replace(
        prompts, corrupted=None, corrupted_spans={}, alignment=None, corrupted_texts=(),
        corrupted_tokens=(),
    )  # fmt: skip


def _rows(given: Any, what: str) -> tuple[list[str], list[str] | None]:
    """Texts and answers out of texts, or rows with ``prompt`` and perhaps ``answer``."""
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        raise SpecError(f"The {what} must be several texts or rows, or tk.Prompts; got {given!r}.")
    texts, answers = [], []
    for number, row in enumerate(given):
        if isinstance(row, str):
            row = {"prompt": row}
        if not isinstance(row, Mapping) or not isinstance(row.get("prompt"), str):
            raise SpecError(f"Row {number} of the {what} is no text and no row with a 'prompt'.")
        texts.append(row["prompt"])
        answers.append(row.get("answer"))
    if not texts:
        raise SpecError(f"There are no {what}; give texts, or rows with a 'prompt'.")
    without = [number for number, answer in enumerate(answers) if answer is None]
    if len(without) == len(answers):
        return texts, None
    if without:
        raise SpecError(f"Row {without[0]} of the {what} has no 'answer' and others have.")
    return texts, answers


def _name(model: Any) -> str:
    return str(getattr(getattr(model, "cfg", None), "model_name", None) or "model")
