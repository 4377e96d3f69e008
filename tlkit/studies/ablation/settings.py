"""What an ablation study was asked for, checked before a model runs."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tlkit.errors import SpecError
from tlkit.spec.sites import whole

BRANCHES = ("attn_out", "mlp_out", "block")
HEADS = "heads"
COMPONENTS = (*BRANCHES, HEADS)
VALUES = ("zero", "mean", "resample", "skip")
METRICS = ("kl", "loss", "answer_prob")
ENGINES = ("packed", "reference")

Behaviour = Callable[[str], Any]


@dataclass(frozen=True)
class Settings:
    """The choices of a study (see `tlkit.studies.ablation.study.run`).

    Attributes:
        branches: Those of ``attn_out``, ``mlp_out`` and ``block`` that are ablated.
        heads: Whether single heads are, too.
        metrics: What is measured; None: all that the prompts allow.
        behaviour: Name to a function of a continuation's text.
    """

    value: str = "zero"
    components: tuple[str, ...] = BRANCHES
    windows: int = 1
    pooled: bool = True
    metrics: tuple[str, ...] | None = None
    behaviour: Mapping[str, Behaviour] = field(default_factory=dict)
    max_new_tokens: int = 32
    seed: int = 0
    engine: str = "packed"

    @property
    def branches(self) -> tuple[str, ...]:
        """The components that are ablated whole."""
        return tuple(one for one in self.components if one != HEADS)

    @property
    def heads(self) -> bool:
        """Whether single heads are ablated."""
        return HEADS in self.components

    @classmethod
    def of(cls, components: Any, behaviour: Any, metrics: Any, **plain: Any) -> "Settings":
        """Settings from what a user gave, checked as far as no model is needed.

        Raises:
            SpecError: Something is not known, or two choices do not go together.
        """
        several = _names(components, "component", COMPONENTS)
        measured = None if metrics is None else _names(metrics, "metric", METRICS)
        made = cls(
            components=several, behaviour=_behaviours(behaviour), metrics=measured, **plain
        )  # fmt: skip
        made._check()
        return made

    def _check(self) -> None:
        for what, value, known in (
            ("value", self.value, VALUES), ("engine", self.engine, ENGINES),
        ):  # fmt: skip
            if value not in known:
                raise SpecError(f"There is no {what} {value!r}; there are {', '.join(known)}.")
        for name in ("windows", "max_new_tokens"):
            if whole(getattr(self, name), name) < 1:
                raise SpecError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        if self.heads and self.windows > 1:
            raise SpecError(
                "Heads are ablated one by one, so they need windows=1; leave 'heads' out, or "
                "measure them in a run of their own."
            )
        if self.heads and self.value == "skip":
            raise SpecError("A head cannot be skipped; value='zero' takes away what it writes.")
        if self.behaviour and not self.branches:
            raise SpecError(
                f"A behaviour is measured under whole components and not under single heads; name "
                f"one of {', '.join(BRANCHES)}, too."
            )

    def check_depth(self, name: str, n_layers: int) -> None:
        """Refuse windows that a model is too shallow for.

        Raises:
            SpecError: It has fewer layers.
        """
        if self.windows > n_layers:
            raise SpecError(
                f"A window of {self.windows} layers does not fit {name}, which has {n_layers}; use "
                f"windows={n_layers} or fewer."
            )


def _names(given: Any, what: str, known: tuple[str, ...]) -> tuple[str, ...]:
    several = (given,) if isinstance(given, str) else given
    if not isinstance(several, Iterable):
        raise SpecError(f"{what}s are names out of {', '.join(known)}, not {given!r}.")
    found = tuple(several)
    for one in found:
        if one not in known:
            raise SpecError(f"There is no {what} {one!r}; there are {', '.join(known)}.")
    if not found or len(set(found)) < len(found):
        raise SpecError(f"Name at least one {what}, and each once: {', '.join(known)}.")
    return found


def _behaviours(given: Any) -> dict[str, Behaviour]:
    """Behaviours by name; a lone function goes by its own name."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        named = {str(name): one for name, one in given.items()}
    else:
        named = {str(getattr(given, "__name__", "behaviour")): given}
    for name, one in named.items():
        if not callable(one):
            raise SpecError(
                f"The behaviour {name!r} is {one!r}, which cannot be called; give a function of a "
                f"text that says whether the behaviour is there."
            )
    return named
