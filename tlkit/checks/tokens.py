"""How text begins: one start token where the model's tokenizer puts one, also in a chat."""

from typing import Any

from tlkit.checks.check import Check
from tlkit.errors import SpecError
from tlkit.models.text import encode, token_labels
from tlkit.prompts.prompts import Prompts

TEXT = "The war lasted from the year 1732 to the year 17"
SHOWN = 12
"""Tokens of the list that is shown."""


def start_tokens(model: Any) -> list[Check]:
    """Count the start tokens of a text, and of the same text in the chat template."""
    names = ("one start token", "one start token in a chat")
    tokenizer = model.tokenizer
    if tokenizer is None:
        return [Check(name, None, "", "The model has no tokenizer.") for name in names]
    bos = tokenizer.bos_token_id
    puts = bos is not None and encode(tokenizer, TEXT).ids[:1] == [bos]
    checks = []
    for name, chat in zip(names, (False, True), strict=True):
        try:
            ids = Prompts.from_texts(model, [TEXT], chat=chat).clean[0]
        except SpecError as error:
            checks.append(Check(name, None, "", str(error)))
            continue
        checks.append(_counted(name, tokenizer, bos, puts, ids))
    return checks


def _counted(name: str, tokenizer: Any, bos: int | None, puts: bool, ids: tuple[int, ...]) -> Check:
    labels = token_labels(tokenizer, ids[:SHOWN])
    shown = "|".join(labels) + ("|…" if len(ids) > SHOWN else "")
    leading = 0
    while leading < len(ids) and ids[leading] == bos:
        leading += 1
    if puts:
        word = token_labels(tokenizer, [bos or 0])[0]
        return Check(name, leading == 1, shown, f"The text begins with {leading} {word}.")
    return Check(
        name,
        None if leading <= 1 else False,
        shown,
        "This model's tokenizer puts no start token before text.",
    )
