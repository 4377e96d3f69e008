"""What a condition makes of prompts, and where each of their own tokens went."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tlkit.errors import SpecError
from tlkit.prompts.alignment import UNMAPPED, align
from tlkit.prompts.insertion import inserted
from tlkit.prompts.prompts import Prompts, Rows
from tlkit.prompts.spans import Span
from tlkit.spec.attention import EdgeIntervention
from tlkit.spec.insertions import Insert
from tlkit.spec.interventions import Intervention
from tlkit.spec.sweeps import Condition

LEAST_KEPT = 0.5
"""Share of a prompt's tokens that prompts given as a condition must still have."""


@dataclass(frozen=True)
class Replace:
    """Other words in the text: ``Replace("Solve", "Compute")``; all its occurrences change.

    Attributes:
        old: What is replaced.
        new: By what.
    """

    old: str
    new: str

    def __post_init__(self) -> None:
        if not self.old:
            raise SpecError("Replace needs words that are to be replaced.")


@dataclass(frozen=True)
class System:
    """A system prompt, through the chat template.

    Attributes:
        text: The system's message.
    """

    text: str


@dataclass(frozen=True)
class Changed:
    """Prompts under one condition.

    Attributes:
        ids: Token ids.
        maps: For each position of each original prompt its position here, or -1.
        inserted: Where new tokens stand in each prompt, if in one place.
        condition: What is done while the model runs, if anything.
        merged_seams: Seams at which the tokenizer, given the joined text, would have merged
            original tokens with new ones; the original tokens are kept.
    """

    ids: Rows
    maps: Rows
    inserted: tuple[Span, ...] | None = None
    condition: Condition | None = None
    merged_seams: int = 0


def changed(model: Any, prompts: Prompts, name: str, condition: Any) -> Changed:
    """Carry a condition out on prompts.

    Raises:
        SpecError: The condition is of no known kind, or cannot be carried out on these prompts.
    """
    own = tuple(tuple(range(len(ids))) for ids in prompts.clean)
    if condition is None:
        return Changed(prompts.clean, own)
    if isinstance(condition, (Intervention, EdgeIntervention)):
        condition = Condition(name, (condition,))
    if isinstance(condition, Condition):
        return Changed(prompts.clean, own, condition=condition)
    if isinstance(condition, Insert):
        put = inserted(model, prompts, condition)
        return Changed(
            put.prompts.clean, put.maps, put.inserted, merged_seams=sum(put.merged_seams)
        )
    if isinstance(condition, (Replace, System)):
        return _rewritten(model, prompts, name, condition)
    if isinstance(condition, Prompts):
        if len(condition) != len(prompts):
            raise SpecError(
                f"Condition {name!r} has {len(condition)} prompts and there are {len(prompts)}; "
                f"conditions are compared prompt by prompt."
            )
        maps = _aligned(prompts.clean, condition.clean, name)
        for example, row in enumerate(maps):
            kept = sum(position != UNMAPPED for position in row)
            if kept < len(row) * LEAST_KEPT:
                raise SpecError(
                    f"Condition {name!r}: {kept} of the {len(row)} tokens of prompt {example} are "
                    f"left; conditions are compared on the tokens of the same prompts."
                )
        return Changed(condition.clean, maps)
    raise SpecError(
        f"Condition {name!r} is a {type(condition).__name__}; a condition is None, tk.Insert, "
        f"Replace, System, prompts, or an intervention."
    )


def _rewritten(model: Any, prompts: Prompts, name: str, how: Replace | System) -> Changed:
    if not prompts.clean_texts:
        raise SpecError(f"Condition {name!r} changes texts, and these prompts were given as ids.")
    if isinstance(how, System):
        if not prompts.chat:
            raise SpecError(
                f"Condition {name!r} is a system prompt, which needs a chat template: make the "
                f"prompts with chat=True."
            )
        ids = _with_system(model, prompts.clean_texts, how.text)
    else:
        missing = [i for i, text in enumerate(prompts.clean_texts) if how.old not in text]
        if missing:
            raise SpecError(
                f"Condition {name!r}: prompt {missing[0]} does not have the words {how.old!r}."
            )
        texts = [text.replace(how.old, how.new) for text in prompts.clean_texts]
        ids = Prompts.from_texts(model, texts, chat=prompts.chat).clean
    return Changed(ids, _aligned(prompts.clean, ids, name))


def _with_system(model: Any, texts: Sequence[str], system: str) -> Rows:
    from tlkit.models.text import render_chat
    from tlkit.prompts.tokens import tokenizer_of, with_one_bos

    tokenizer = tokenizer_of(model)
    rows = []
    for text in texts:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
        rendered = render_chat(tokenizer, messages, generation_prompt=True)
        rows.append(tuple(with_one_bos(tokenizer, rendered)[0]))
    return tuple(rows)


def _aligned(old: Rows, new: Rows, name: str) -> Rows:
    """For each old position its new one; what has no counterpart is -1."""
    maps = []
    for example, (one, two) in enumerate(zip(old, new, strict=True)):
        found = [UNMAPPED] * len(one)
        for position, source in enumerate(align(one, two)):
            if source != UNMAPPED and one[source] == two[position]:
                found[source] = position
        if all(position == UNMAPPED for position in found):
            raise SpecError(f"Condition {name!r}: nothing of prompt {example} is left.")
        maps.append(tuple(found))
    return tuple(maps)


def named(conditions: Any) -> dict[str, Any]:
    """Conditions by label; the plain prompts are one of them.

    Raises:
        SpecError: There is none but the plain prompts.
    """
    if not isinstance(conditions, Mapping):
        raise SpecError(
            'Conditions are a mapping of labels, such as {"None": None, "Miess": tk.Insert("/ ")}.'
        )
    found = {str(name): one for name, one in conditions.items()}
    if len(found) < len(conditions):
        raise SpecError("Two conditions have one label.")
    plain = [name for name, one in found.items() if one is None]
    if len(plain) > 1:
        raise SpecError(f"The plain prompts are there twice: {', '.join(plain)}.")
    if not plain and "None" in found:
        raise SpecError("The label 'None' is for the plain prompts; give the condition another.")
    if not plain:
        found = {"None": None, **found}
    if len(found) < 2:
        raise SpecError("There is nothing to compare: give a condition besides None.")
    return found
