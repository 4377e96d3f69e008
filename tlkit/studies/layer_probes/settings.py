"""What a study of layer probes was asked for, checked before any model is loaded."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, TypedDict

from tlkit.errors import SpecError
from tlkit.studies.layer_probes.classify import check_classifier
from tlkit.studies.layer_probes.controls import CONTROLS, check_controls
from tlkit.studies.layer_probes.features import Making
from tlkit.studies.layer_probes.rows import Fold, Labelled, folds_of, labelled

SITES = ("resid_post", "attn_out")
"""What a block puts out (the stream behind it), and what its attention adds to the stream."""


class Asked(TypedDict, total=False):
    """The keywords of `run` that say how; `settings` has their defaults."""

    features: str
    """``"cp"``: coordinates on CP factors; ``"last"``: the last token's activation; ``"mean"``:
    the mean over the prompt's tokens."""
    inductive: bool
    """Factors of training prompts alone, on which test prompts are projected; False decomposes all
    prompts together, as the paper does, so that test prompts shape the features."""
    classifier: str
    """``"logistic"``, ``"linear_svm"``, ``"rbf_svm"`` or ``"forest"``."""
    rank: int
    """Number of CP components."""
    last_tokens: int
    """Tokens of a prompt that CP sees."""
    compress: int
    """Directions of the activations that CP sees, those of the largest singular values."""
    iterations: int
    """Most rounds of alternating least squares."""
    seeds: Sequence[int]
    """Starts of the decomposition, whose scores are averaged; the first also draws the folds."""
    folds: int
    """Parts of the cross-validation."""
    groups: Sequence[Any] | None
    """One per row: prompts of one group are never in training and test at once."""
    sites: Sequence[str]
    """Components that are probed."""
    chat: bool
    """Put the chat template around the prompts."""
    controls: Sequence[str]
    """Some of `tlkit.studies.layer_probes.controls.CONTROLS`."""


@dataclass(frozen=True, eq=False)
class Settings:
    """Prompts, folds and how they are told apart.

    Attributes:
        rows: The labelled prompts.
        making: How features are made.
        classifier: Which classifier.
        n_folds: Folds of the cross-validation.
        sites: Components that are read.
        chat: Whether the chat template is put around the prompts.
        controls: Which controls.
    """

    rows: Labelled
    making: Making
    classifier: str
    n_folds: int
    sites: tuple[str, ...]
    chat: bool
    controls: tuple[str, ...]

    @cached_property
    def folds(self) -> list[Fold]:
        """The folds, drawn by the first seed; the same for every model, site and layer."""
        return folds_of(self.rows, self.n_folds, self.making.seeds[0])

    def described(self) -> dict[str, Any]:
        """What was asked, for a dataset's ``spec``."""
        return {
            **asdict(self.making), "classifier": self.classifier, "folds": self.n_folds,
            "sites": self.sites, "chat": self.chat, "controls": self.controls,
            "positive": self.rows.positive,
        }  # fmt: skip


def settings(
    rows: Iterable[Any],
    *,
    positive: str,
    features: str = "cp",
    inductive: bool = True,
    classifier: str = "logistic",
    rank: int = 20,
    last_tokens: int = 64,
    compress: int = 32,
    iterations: int = 50,
    seeds: Sequence[int] = (0, 1, 2),
    folds: int = 5,
    groups: Sequence[Any] | None = None,
    sites: Sequence[str] = SITES,
    chat: bool = False,
    controls: Sequence[str] = CONTROLS,
) -> Settings:
    """Read what was asked; the arguments are those of `run`.

    Raises:
        SpecError: Something cannot be used; the message names it.
    """
    check_classifier(classifier)
    check_controls(controls)
    if not sites or len(set(sites)) < len(sites):
        raise SpecError(f"sites are different components such as {', '.join(SITES)}.")
    making = Making(
        features, inductive, rank, last_tokens, compress, iterations, _drawn(
            features, classifier, tuple(seeds))
    )  # fmt: skip
    making.check()
    found = Settings(
        labelled(rows, positive, groups), making, classifier, folds, tuple(sites), chat,
        tuple(controls),
    )  # fmt: skip
    making.check(min(len(train) for train, _ in found.folds))
    return found


def _drawn(features: str, classifier: str, seeds: tuple[int, ...]) -> tuple[int, ...]:
    """The seeds that change anything: without CP and forest, nothing but the folds is drawn."""
    return seeds if features == "cp" or classifier == "forest" else seeds[:1]
