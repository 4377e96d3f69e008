"""What a pathways study is asked to do, checked before any model work."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from tlkit.errors import SpecError
from tlkit.prompts.qa import QA
from tlkit.studies.pathways.group import Probing
from tlkit.studies.probes import STRENGTH

READINGS = ("group", "intervention")
MIN_EXAMPLES = 30


@dataclass(frozen=True)
class Settings:
    """The choices of a study.

    Attributes:
        readings: ``"group"``: probes on the states at the exact answer's last token, the question
            cut off in blocks 0 to k, examples grouped by whether the verdict turns.
            ``"intervention"``: the answer's probability under knockouts and patches at the
            question and at the answer; no probes.
        mode: How edges are cut: ``"zero"`` the weights, or ``"-inf"`` the scores.
        layers: Layers of the intervention reading; all if None.
        chat: Whether to ask through the chat template; if None, where there is one.
        template: What is asked, with ``{question}`` in it, or ``"short"`` for two examples with
            short answers before it (see `tlkit.studies.answers.answer`).
        stop: Where an answer ends (see `tlkit.studies.answers.answer`).
        max_new_tokens: Most tokens of an answer.
        folds: Folds of questions; probes are asked of questions that they have not seen.
        seeds: One division into folds for each; probabilities are averaged over them.
        c: Inverse strength of the probes' L2 penalty.
        balanced: Whether probes weigh right and wrong answers alike.
        seed: Draws control tokens, halves of the questions, and paired questions.
        min_examples: Fewest right and fewest wrong answers for which probes are trained.
    """

    readings: tuple[str, ...] = READINGS
    mode: Any = "zero"
    layers: tuple[int, ...] | None = None
    chat: bool | None = None
    template: str | None = None
    stop: Any = "sentence"
    max_new_tokens: int = 48
    folds: int = 5
    seeds: tuple[int, ...] = (0, 1, 2)
    c: float | int = STRENGTH
    balanced: bool = True
    seed: int = 0
    min_examples: int = MIN_EXAMPLES

    @classmethod
    def of(cls, choices: Mapping[str, Any]) -> "Settings":
        """Make them of keywords.

        Raises:
            SpecError: There is no choice of that name.
        """
        names = [one.name for one in fields(cls)]
        for name in choices:
            if name not in names:
                raise SpecError(f"pathways has no choice {name!r}; it has {', '.join(names)}.")
        several = ("readings", "layers", "seeds")
        made: dict[str, Any] = {
            name: tuple(value) if name in several and value is not None else value
            for name, value in choices.items()
        }
        return cls(**made)

    def checked(self, n_layers: int) -> "Settings":
        """Refuse what cannot be.

        Raises:
            SpecError: A reading, mode, layer or number cannot be used.
        """
        unknown = [name for name in self.readings if name not in READINGS]
        if unknown or not self.readings:
            raise SpecError(f"Readings are group, intervention; not {unknown or 'none at all'}.")
        if self.mode not in ("zero", "-inf"):
            raise SpecError(f"mode={self.mode!r} is not known; use 'zero' or '-inf'.")
        wrong = [k for k in self.layers or () if not 0 <= k < n_layers]
        if wrong or self.layers == ():
            raise SpecError(f"layers {list(wrong)}: this model has layers 0 to {n_layers - 1}.")
        if self.folds < 2 or not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise SpecError("Probes need at least 2 folds, and seeds that differ.")
        if self.min_examples < 2:
            raise SpecError(f"min_examples is {self.min_examples}; a group needs at least 2.")
        if not self.c > 0:
            raise SpecError(f"c is {self.c}; the inverse strength of a penalty is above 0.")
        return self

    def intervened(self, n_layers: int) -> list[int]:
        """The layers of the intervention reading, rising."""
        return sorted(set(range(n_layers) if self.layers is None else self.layers))

    @property
    def probing(self) -> Probing:
        """How probes are trained."""
        return Probing(self.folds, self.seeds, self.c, self.balanced, self.seed)

    @property
    def class_size(self) -> int:
        """How many right and how many wrong answers the group reading needs."""
        return max(self.min_examples, 2 * self.folds)

    def plain(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)


def named_sets(qa: Any) -> dict[str, QA]:
    """Sets of questions by name.

    Raises:
        SpecError: There is none, two have one name, or something is no set of questions.
    """
    if isinstance(qa, QA):
        return {qa.name: qa}
    if isinstance(qa, Mapping):
        named = {str(name): one for name, one in qa.items()}
    else:
        several: Sequence[Any] = list(qa)
        _check(several)
        named = {one.name: one for one in several}
        if len(named) < len(several):
            raise SpecError("Two sets of questions have one name; give a mapping of names to sets.")
    _check(list(named.values()))
    named = {name: replace(one, name=name) for name, one in named.items()}
    if not named:
        raise SpecError("pathways needs questions, such as tk.QA.from_jsonl(path).")
    return named


def _check(several: Sequence[Any]) -> None:
    for one in several:
        if not isinstance(one, QA):
            raise SpecError(f"{type(one).__name__} is no set of questions; make one with tk.QA.")
