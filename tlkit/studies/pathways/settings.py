"""What a pathways study is asked to do, checked before any model work."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tlkit.engine.refusals import check_seed
from tlkit.errors import SpecError
from tlkit.studies.pathways.group import Probing
from tlkit.studies.probes import STRENGTH

PARTS = ("group", "intervention", "cuts", "probes", "tokens", "boundary", "detect", "saliency")
"""What a study may measure, in the order in which it is done."""
USUAL = ("group", "intervention")
ON_GROUPS = ("cuts", "tokens", "boundary", "saliency")
"""Parts that read the groups of the group reading, which is then done, too."""
MIN_EXAMPLES = 30
SCOPES = ("cumulative", "single", "window")
MODES = ("zero", "-inf")
PLACES = ("exact answer", "answer end", "prompt end")
SITES = ("resid_post", "attn_out", "mlp_out")


@dataclass(frozen=True)
class Settings:
    """The choices of a study.

    Attributes:
        parts: What is measured, of `PARTS`. ``"group"``: probes on the states at the exact
            answer's last token, the question cut off in blocks 0 to k, examples grouped by
            whether the verdict turns. ``"intervention"``: the answer's probability under
            knockouts and patches; no probes. ``"cuts"``: the same verdicts under cumulative,
            single-layer and windowed knockouts, both modes. ``"probes"``: what probes tell by
            layer, site and position. ``"tokens"``: verdicts after tokens were replaced, and of
            the answer alone. ``"boundary"``: what the groups know, and whether a probe tells
            them apart. ``"detect"``: detectors of wrong answers. ``"saliency"``: attention edges
            from the question that the verdict hangs on. ``readings`` is another name for it.
        mode: How edges are cut: ``"zero"`` the weights, or ``"-inf"`` the scores.
        layers: Layers of the intervention reading, of the cuts by layer, and of the
            detectors; if None, every one, or
        every: every N-th, from layer 0 on.
        answers: ``"generated"`` by the model, or ``"given"``: each answer once as right and once
            as wrong (see `tlkit.studies.pathways.giving`).
        chat: Whether to ask through the chat template, thinking mode off; if None, where there
            is one.
        template: What is asked, with ``{question}`` in it, or ``"short"`` for two examples with
            short answers before it (see `tlkit.studies.answers.answer`).
        stop: Where an answer ends (see `tlkit.studies.answers.answer`).
        max_new_tokens: Most tokens of an answer.
        folds: Folds of questions; probes are asked of questions that they have not seen.
        seeds: One division into folds for each; probabilities are averaged over them.
        c: Inverse strength of the probes' L2 penalty.
        balanced: Whether probes weigh right and wrong answers alike.
        scopes: Which blocks the ``cuts`` cut: ``"cumulative"`` 0 to k, ``"single"`` k alone,
            ``"window"`` k and those before it.
        modes: How the ``cuts`` cut.
        window: Blocks of a window.
        sites: Where the ``probes`` read.
        factors: By which pathway reweighting may scale attention edges.
        seed: Draws control tokens, halves of the questions, pairs of questions, and resamples.
        min_examples: Fewest right and fewest wrong answers for which probes are trained.
    """

    parts: tuple[str, ...] = USUAL
    mode: Any = "zero"
    layers: tuple[int, ...] | None = None
    every: int = 1
    answers: str = "generated"
    chat: bool | None = None
    template: str | None = None
    stop: Any = "sentence"
    max_new_tokens: int = 48
    folds: int = 5
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    c: float | int = STRENGTH
    balanced: bool = True
    scopes: tuple[str, ...] = SCOPES
    modes: tuple[Any, ...] = MODES
    window: int = 5
    sites: tuple[str, ...] = SITES
    factors: tuple[float | int, ...] = (0.5, 1.5, 2.0)
    seed: int = 0
    min_examples: int = MIN_EXAMPLES

    @classmethod
    def of(cls, choices: Mapping[str, Any]) -> "Settings":
        """Make them of keywords.

        Raises:
            SpecError: There is no choice of that name.
        """
        names = [one.name for one in fields(cls)]
        several = ("parts", "layers", "seeds", "scopes", "modes", "sites", "factors")
        made: dict[str, Any] = {}
        for name, value in choices.items():
            name = "parts" if name == "readings" else name
            if name not in names:
                raise SpecError(f"pathways has no choice {name!r}; it has {', '.join(names)}.")
            if name in several and value is not None:
                made[name] = (value,) if isinstance(value, str) else tuple(value)
            else:
                made[name] = value
        return cls(**made)

    def checked(self, n_layers: int | None = None) -> "Settings":
        """Refuse what cannot be; what depends on the model only where its depth is given.

        Raises:
            SpecError: A part, mode, layer or number cannot be used.
        """
        for name, several, known in (
            ("Parts", self.parts, PARTS), ("Scopes of cuts", self.scopes, SCOPES),
            ("Modes of cuts", self.modes, MODES), ("Sites", self.sites, SITES),
        ):  # fmt: skip
            unknown = [one for one in several if one not in known]
            if unknown or not several:
                raise SpecError(f"{name} are {', '.join(known)}; not {unknown or 'none at all'}.")
        if self.mode not in MODES:
            raise SpecError(f"mode={self.mode!r} is not known; use 'zero' or '-inf'.")
        if self.answers not in ("generated", "given"):
            raise SpecError(f"answers={self.answers!r} is not known; use 'generated' or 'given'.")
        if self.layers == () or any(k < 0 for k in self.layers or ()):
            raise SpecError(f"layers {list(self.layers or ())}: give layers from 0 on.")
        if n_layers is not None:
            wrong = [k for k in self.layers or () if k >= n_layers]
            if wrong:
                raise SpecError(f"layers {wrong}: this model has layers 0 to {n_layers - 1}.")
        return self._numbers()

    def _numbers(self) -> "Settings":
        for seed in (self.seed, *self.seeds):
            check_seed(seed)
        if self.folds < 2 or not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise SpecError("Probes need at least 2 folds, and seeds that differ.")
        if self.min_examples < 2:
            raise SpecError(f"min_examples is {self.min_examples}; a group needs at least 2.")
        if not self.c > 0:
            raise SpecError(f"c is {self.c}; the inverse strength of a penalty is above 0.")
        if self.every < 1:
            raise SpecError(f"every is {self.every}; take every layer (1), every other one (2), …")
        if self.window < 1:
            raise SpecError(f"window is {self.window}; a window has at least one block.")
        if not self.factors or not all(factor >= 0 for factor in self.factors):
            raise SpecError(f"factors {list(self.factors)}: attention is scaled by 0 or more.")
        return self

    @property
    def asked(self) -> tuple[str, ...]:
        """The parts in the order in which they are done, with those that others need."""
        wanted = {*self.parts}
        if wanted & {*ON_GROUPS}:
            wanted.add("group")
        return tuple(part for part in PARTS if part in wanted)

    def intervened(self, n_layers: int) -> list[int]:
        """The layers of everything that may be measured at some of them, rising."""
        every = range(0, n_layers, self.every)
        return sorted(set(every if self.layers is None else self.layers))

    @property
    def probing(self) -> Probing:
        """How probes are trained."""
        return Probing(self.folds, self.seeds, self.c, self.balanced, self.seed)

    @property
    def class_size(self) -> int:
        """How many right and how many wrong answers the group reading needs."""
        return max(self.min_examples, 2 * self.folds)

    def plain(self) -> dict[str, Any]:
        """What the numbers depend on, as plain values: all but which parts are asked for."""
        return {name: value for name, value in asdict(self).items() if name != "parts"}
