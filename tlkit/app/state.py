"""What is on the explorer's screen, as frozen data."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts
from tlkit.spec.interventions import Patch
from tlkit.spec.metrics import KL, AnswerProb, LogitDiff
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import AnyIntervention, Condition
from tlkit.studies.maps import second_axis

Side = Literal["clean", "corrupted"]
Direction = Literal["denoise", "noise"]

SITES = ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out", "z", "q", "k", "v")
METRICS: dict[str, Callable[[], Any]] = {
    "logit_diff": LogitDiff,
    "answer_prob": AnswerProb,
    "kl": KL,
}
RUNS: dict[Direction, tuple[Side, Side]] = {
    "denoise": ("corrupted", "clean"),
    "noise": ("clean", "corrupted"),
}
"""The run that is changed, and the one that patches are taken from."""


@dataclass(frozen=True)
class State:
    """What is on the screen.

    Attributes:
        pairs: One `tk.Prompts` of one pair for each example; edited ones too.
        example: Which of them is looked at.
        site: What a cell of the map patches.
        metric: What is measured.
        direction: ``"denoise"`` puts clean into corrupted, ``"noise"`` the other way round.
        changes: What is changed at once: patched cells, cut edges, heads without output.
    """

    pairs: tuple[Prompts, ...]
    example: int = 0
    site: str = "resid_pre"
    metric: str = "logit_diff"
    direction: Direction = "denoise"
    changes: tuple[AnyIntervention, ...] = ()

    @property
    def prompts(self) -> Prompts:
        """The pair that is looked at."""
        return self.pairs[self.example]

    @property
    def base(self) -> Side:
        """The run that is changed."""
        return RUNS[self.direction][0]

    @property
    def source(self) -> Side:
        """The run that patches are taken from."""
        return RUNS[self.direction][1]

    @property
    def axis(self) -> Literal["pos", "head"]:
        """What the map has beside its layers."""
        return "head" if second_axis(self.site) == "head" else "pos"

    @property
    def condition(self) -> Condition:
        """The changes, as one condition."""
        return Condition("explorer", self.changes)

    @property
    def map_key(self) -> tuple[Any, ...]:
        """What the map's numbers depend on."""
        return (*self.bench_key, self.site)

    @property
    def bench_key(self) -> tuple[Any, ...]:
        """What the measuring of one example depends on."""
        return (self.prompts.hash(), self.prompts.alignment, self.metric, self.direction)

    def cell(self, layer: int, at: int) -> Patch:
        """The patch that a cell of the map stands for."""
        return Patch(Site(self.site, layer=layer).at(**{self.axis: at}), source=self.source)

    def shown(self, **fields: Any) -> "State":
        """This state with another map; changes of another example or direction are dropped.

        Raises:
            SpecError: There is no such example, site, metric or direction.
        """
        known = {
            "example": range(len(self.pairs)),
            "site": SITES,
            "metric": tuple(METRICS),
            "direction": tuple(RUNS),
        }
        for name, value in fields.items():
            if name not in known:
                raise SpecError(f"The explorer has no {name!r}; it has {', '.join(known)}.")
            if value not in known[name] or type(value) is not type(known[name][0]):
                raise SpecError(
                    f"There is no {name} {value!r}; there are {', '.join(map(str, known[name]))}."
                )
        kept = {"example", "direction"}.isdisjoint(fields)
        return replace(self, **fields, changes=self.changes if kept else ())

    def edited(self, prompts: Prompts) -> "State":
        """This state with another pair in place of the one that is looked at."""
        pairs = (*self.pairs[: self.example], prompts, *self.pairs[self.example + 1 :])
        return replace(self, pairs=pairs, changes=())


def sites_of(parts: Parts) -> list[str]:
    """The sites that a model has."""
    return [name for name in SITES if parts.unsupported(name) is None]


def width_of(parts: Parts, state: State) -> int:
    """How many columns the map has."""
    if state.axis == "pos":
        return len(state.prompts.ids(state.base)[0])
    return parts.n_kv_heads if state.site in ("k", "v") else parts.n_heads
