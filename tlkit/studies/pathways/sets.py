"""The sets of questions of a study, by name; what is no such set is refused."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tlkit.errors import SpecError
from tlkit.models.info import info
from tlkit.prompts.qa import QA
from tlkit.studies.answers import Answers

Asked = QA | Answers
"""Questions, or the answers that a model gave to them."""


def named_sets(qa: Any) -> dict[str, Asked]:
    """Sets of questions by name.

    Args:
        qa: One set, several, or a mapping of names to sets. A set is a `tk.QA`, or what
            `tk.pathways.answer` made of one.

    Raises:
        SpecError: There is none, two have one name, something is no set of questions, or a set
            has fewer than two.
    """
    if isinstance(qa, Asked):
        named = {qa.name: qa}
    elif isinstance(qa, Mapping):
        named = {str(name): one for name, one in qa.items()}
    else:
        several: Sequence[Any] = list(qa)
        _check(several)
        named = {one.name: one for one in several}
        if len(named) < len(several):
            raise SpecError("Two sets of questions have one name; give a mapping of names to sets.")
    _check(list(named.values()))
    if not named:
        raise SpecError("pathways needs questions, such as tk.QA.from_jsonl(path).")
    for name, one in named.items():
        if len(one) < 2:
            raise SpecError(
                f"The set {name!r} holds one question, of which nothing can be learned; give at "
                f"least two."
            )
    return {name: replace(one, name=name) for name, one in named.items()}


def check_tokenizer(model: Any, named: Mapping[str, Asked]) -> None:
    """Refuse answers that were tokenised for another model.

    Raises:
        SpecError: With the set's name.
    """
    own = info(model).tokenizer_hash
    for name, one in named.items():
        if isinstance(one, Answers) and one.tokenizer_hash not in ("", own):
            raise SpecError(
                f"The answers {name!r} were read by a tokenizer that is not this model's; give "
                f"the questions (tk.QA), and each model answers them itself."
            )


def _check(several: Sequence[Any]) -> None:
    for one in several:
        if not isinstance(one, Asked):
            raise SpecError(f"{type(one).__name__} is no set of questions; make one with tk.QA.")


def asked_hash(named: Mapping[str, Asked]) -> str:
    """The sha256 of all sets, by name and in their order."""
    asked = "".join(f"{name} {one.hash()}" for name, one in named.items())
    return hashlib.sha256(asked.encode()).hexdigest()
