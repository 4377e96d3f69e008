"""What a model says while a component is ablated: greedy continuations, judged by functions."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from tlkit.engine.edits import Compiler, Edit
from tlkit.engine.generate import greedy
from tlkit.engine.generating import generate
from tlkit.engine.hooked import capture
from tlkit.engine.record import watch_slot
from tlkit.engine.sequences import Sequences
from tlkit.engine.sources import Sources
from tlkit.errors import SpecError
from tlkit.prompts.tokens import tokenizer_of
from tlkit.spec.sweeps import Condition
from tlkit.studies.ablation.inputs import Subject
from tlkit.studies.ablation.settings import Behaviour, Settings
from tlkit.studies.answer_store import stop_tokens


@dataclass(frozen=True, eq=False)
class Said:
    """Continuations under some conditions, the first of which changes nothing.

    Attributes:
        texts: ``[condition, example]``.
        judged: Per behaviour 1, 0, or NaN where nothing was said, ``[condition, example]``.
    """

    texts: np.ndarray
    judged: dict[str, np.ndarray]


def check_room(subject: Subject, settings: Settings) -> None:
    """Refuse continuations that a model cannot make.

    Raises:
        SpecError: It has no tokenizer, or a prompt leaves no room.
    """
    if not settings.behaviour:
        return
    tokenizer_of(subject.model)
    longest = max(map(len, subject.prompts.clean))
    if longest + settings.max_new_tokens > subject.parts.context:
        raise SpecError(
            f"A prompt of {longest} tokens and {settings.max_new_tokens} more are over "
            f"{subject.parts.context}, for which {subject.name} was made; lower max_new_tokens."
        )


def said(
    subject: Subject,
    conditions: Sequence[Condition],
    settings: Settings,
    told: Callable[[int, int], None] | None = None,
) -> Said:
    """Continue every prompt unchanged and under every condition.

    Args:
        subject: A model with its prompts.
        conditions: What is changed, in the prompt and at every new token.
        settings: The study's choices.
        told: Called with (conditions done, conditions in all).
    """
    tokenizer, rows = tokenizer_of(subject.model), []
    several = [Condition("base", ()), *conditions]
    continued = _continuing(subject, several, settings)
    stops = stop_tokens(subject.model, chat=subject.prompts.chat)
    for number, condition in enumerate(several, start=1):
        found = continued(condition, stops)
        rows.append([tokenizer.decode(ids, skip_special_tokens=True) for ids in found])
        if told:
            told(number, len(several))
    return Said(np.array(rows, dtype=str), _judged(rows, settings.behaviour))


def _judged(
    rows: Sequence[Sequence[str]], behaviour: Mapping[str, Behaviour]
) -> dict[str, np.ndarray]:
    """An empty continuation has no behaviour: it counts neither for nor against."""
    return {
        name: np.array(
            [[float(bool(judge(text))) if text.strip() else np.nan for text in row] for row in rows]
        )
        for name, judge in behaviour.items()
    }


Continuing = Callable[[Condition, set[int]], list[list[int]]]


def _continuing(subject: Subject, several: Sequence[Condition], settings: Settings) -> Continuing:
    """How prompts are continued: in batches where every position gets the same, else one by one."""
    most = settings.max_new_tokens
    constant = settings.value in ("zero", "skip") or (settings.value == "mean" and settings.pooled)
    if not constant or settings.engine == "reference":

        def slowly(condition: Condition, stops: set[int]) -> list[list[int]]:
            found = generate(
                subject.model, subject.prompts, condition, max_new_tokens=most, steps="every"
            )  # fmt: skip
            return [_cut(ids, stops) for ids in found]

        return slowly
    parts, sequences = subject.parts, Sequences(subject.prompts, "clean")
    compiler = Compiler(sequences, parts.n_layers, parts.n_heads, parts.n_kv_heads)
    edits = {one.name: compiler.work_out(one, 0).edits for one in several}
    wanted = [edit for some in edits.values() for edit in some]
    sources = Sources(lambda ids, places: capture(parts, ids, places), sequences, wanted)

    def quickly(condition: Condition, stops: set[int]) -> list[list[int]]:
        with contextlib.ExitStack() as stack:
            for edit in edits[condition.name]:
                source = sources.get(edit, 0)
                write = _writer(edit, None if source is None else source[0])
                handle = watch_slot(parts, edit.component, edit.layer, write)
                stack.callback(handle.remove)
            return greedy(subject.model, subject.prompts.clean, max_new_tokens=most, stop=stops)

    return quickly


def _writer(edit: Edit, source: Tensor | None) -> Callable[[str, int, Tensor], None]:
    """A function that puts the same into every row of a site."""

    def write(component: str, layer: int, value: Tensor) -> None:
        value.copy_(edit.intervention.edit(value, source))  # type: ignore[union-attr]

    return write


def _cut(ids: list[int], stops: set[int]) -> list[int]:
    """A continuation up to a token that ends it."""
    end = next((at for at, token in enumerate(ids) if token in stops), len(ids))
    return ids[:end]
