"""What a run of the study is asked for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from tlkit.errors import SpecError
from tlkit.studies.abliteration.projection import Strengths
from tlkit.studies.behaviour import checked


@dataclass(frozen=True)
class Settings:
    """How a direction is found, chosen and tried.

    Attributes:
        layers: Which layers' directions are candidates; all if None.
        positions: Token positions, counted from each prompt's end.
        site: Where the stream is read (see `directions`).
        rank: Dimensions of each candidate (see `directions`).
        chat: Whether texts are put into the chat template.
        detectors: Names to functions of an answer that say whether it shows the behaviour;
            refusal phrases if None. The first one decides.
        prefixes: How refusals start; the starts of the model's own most frequent ones if None.
        weights: Strength by layer (see `strengths_of`).
        max_kl: Candidates that change the first token on harmless prompts by more (nats) are taken
            only where no other removes the behaviour.
        most: Share of refusals up to which the behaviour counts as removed.
        generate: How many of the best candidates write answers.
        held_out: Share of the prompts that are only reported on.
        max_new_tokens: Length of answers.
        approximate: Whether a bake is tried where norms make it inexact (see `bake`).
        seed: Draws the held-out prompts and the random control.
    """

    layers: Iterable[int] | None = None
    positions: Iterable[int] = (-1,)
    site: str = "resid_pre"
    rank: int = 1
    chat: bool = True
    detectors: Any = None
    prefixes: Sequence[str] | None = None
    weights: Strengths = None
    max_kl: float | int = 0.1
    most: float | int = 0.1
    generate: int = 5
    held_out: float | int = 0.3
    max_new_tokens: int = 32
    approximate: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("most", "held_out"):
            if not 0 < getattr(self, name) < 1:
                raise SpecError(f"{name} is a share between 0 and 1, not {getattr(self, name)}.")
        for name in ("max_kl", "generate", "max_new_tokens"):
            if not getattr(self, name) > 0:
                raise SpecError(f"{name} is {getattr(self, name)}; it must be above 0.")
        checked(self.detectors)


def settings_of(choices: Mapping[str, Any]) -> Settings:
    """Settings from keywords.

    Raises:
        SpecError: There is no such setting, or a value cannot be.
    """
    known = [field.name for field in fields(Settings)]
    unknown = [name for name in choices if name not in known]
    if unknown:
        raise SpecError(f"There is no {unknown[0]!r}; run takes {', '.join(known)}.")
    return Settings(**choices)
