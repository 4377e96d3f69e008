"""The two kinds of prompt, told apart by their labels or given apart, checked before any run."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tlkit.engine.refusals import check_prompts
from tlkit.errors import SpecError
from tlkit.prompts.inputs import texts
from tlkit.prompts.prompts import Prompts


def as_prompts(model: Any, given: Any, kind: str, *, chat: bool) -> Prompts:
    """Prompts from texts, rows with ``prompt``, or `tk.Prompts` as they are.

    Args:
        model: A model with a tokenizer.
        given: The prompts.
        kind: What messages call them.
        chat: Whether texts are put into the chat template.

    Raises:
        SpecError: There are none, or one is no text.
    """
    if isinstance(given, Prompts):
        check_prompts(model, given)
        return given
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise SpecError(f"{kind} is {given!r}; give texts, rows with 'prompt', or tk.Prompts.")
    rows = [row.get("prompt") if isinstance(row, Mapping) else row for row in given]
    return Prompts.from_texts(model, texts(rows, kind), chat=chat)


def by_label(
    rows: Sequence[Mapping[str, Any]], harmful: str, harmless: str
) -> tuple[list[str], list[str]]:
    """Prompts of one file by their labels.

    Args:
        rows: Each with ``prompt`` and ``label``.
        harmful: Label of prompts that show the behaviour.
        harmless: Label of the others.

    Raises:
        SpecError: A label occurs nowhere, or both are one.
    """
    if harmful == harmless:
        raise SpecError(f"Both labels are {harmful!r}; the two kinds of prompt need one each.")
    found = tuple(
        [str(row["prompt"]) for row in rows if row.get("label") == label]
        for label in (harmful, harmless)
    )
    for label, prompts in zip((harmful, harmless), found, strict=True):
        if not prompts:
            there = sorted({str(row.get("label")) for row in rows})
            raise SpecError(f"No prompt has the label {label!r}; there are {', '.join(there)}.")
    return found[0], found[1]


def split(prompts: Prompts, share: float | int, seed: int, kind: str) -> tuple[Prompts, Prompts]:
    """Prompts to find and choose on, and others that are only reported on, drawn at random.

    Raises:
        SpecError: One of the two would be empty.
    """
    held = round(share * len(prompts))
    if not 0 < held < len(prompts):
        raise SpecError(
            f"Of {len(prompts)} {kind} prompts a share of {share:g} is held out, which leaves one "
            f"side empty; give more prompts, or another share."
        )
    order = np.random.default_rng(seed).permutation(len(prompts)).tolist()
    return prompts[sorted(order[held:])], prompts[sorted(order[:held])]


def checked_layers(layers: Iterable[int] | None, n_layers: int) -> list[int]:
    """Layers in order, each once.

    Raises:
        SpecError: There are none, or one does not exist.
    """
    chosen = sorted(set(range(n_layers) if layers is None else layers))
    strange = [layer for layer in chosen if not 0 <= layer < n_layers]
    if strange or not chosen:
        what = f"There is no layer {strange[0]}" if strange else "No layer is named"
        raise SpecError(f"{what}; this model has layers 0 to {n_layers - 1}.")
    return chosen


def checked_positions(positions: Iterable[int], *several: Prompts) -> list[int]:
    """Positions counted from each prompt's end, -1 the last token.

    Raises:
        SpecError: There are none, one is not negative, or a prompt is too short for one.
    """
    chosen = sorted(set(positions))
    if not chosen or chosen[-1] >= 0:
        raise SpecError("Positions count from each prompt's end: give -1, or (-3, -2, -1).")
    shortest = min(len(ids) for prompts in several for ids in prompts.clean)
    if -chosen[0] > shortest:
        raise SpecError(
            f"Position {chosen[0]} is before the start of a prompt of {shortest} tokens."
        )
    return chosen
