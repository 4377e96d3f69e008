"""What each part of a study costs: tokens times blocks that are computed, lanes, and probes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tlkit.studies.pathways.by_token import REPLACED
from tlkit.studies.pathways.reweighting import SIDES
from tlkit.studies.pathways.settings import PLACES, Settings


@dataclass(frozen=True)
class Sizes:
    """What a set of questions and a model are made of.

    Attributes:
        lengths: Tokens of each prompt.
        behind: Those of them from the exact question on, which a cut changes.
        new: Tokens of an answer.
        blocks: The model's blocks.
    """

    lengths: Sequence[int]
    behind: Sequence[int]
    new: int
    blocks: int

    @property
    def full(self) -> int:
        """Token-layers of one forward pass of all prompts with answers."""
        return sum(length + self.new for length in self.lengths) * self.blocks

    @property
    def rows(self) -> int:
        """Tokens that one cut of the question changes, over all prompts."""
        return sum(rows + self.new for rows in self.behind)


@dataclass(frozen=True)
class Cost:
    """Sums over a set's questions.

    Attributes:
        token_layers: Tokens times blocks that are computed.
        lanes: Knockouts, patches and scaled runs, each of one example.
        plain: Token-layers with one full forward pass for each cell.
        probes: Probes that are trained.
        unembedded: Positions whose logits are computed.
    """

    token_layers: int = 0
    lanes: int = 0
    plain: int = 0
    probes: int = 0
    unembedded: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.token_layers + other.token_layers, self.lanes + other.lanes,
            self.plain + other.plain, self.probes + other.probes,
            self.unembedded + other.unembedded,
        )  # fmt: skip


def answering(sizes: Sizes, settings: Settings) -> Cost:
    """Generating the answers; nothing if they are given."""
    if settings.answers == "given":
        return Cost()
    return Cost(sizes.full, 0, sizes.full, 0, sizes.new * len(sizes.lengths))


def cost(sizes: Sizes, settings: Settings) -> Cost:
    """All parts that are asked for."""
    whole = answering(sizes, settings)
    for part in settings.asked:
        whole += _PARTS[part](sizes, settings)
    return whole


def _fits(settings: Settings) -> int:
    return settings.folds * len(settings.seeds)


def _group(sizes: Sizes, settings: Settings) -> Cost:
    work = sizes.full + 2 * sizes.rows * sizes.blocks
    probes = 4 * _fits(settings) * sizes.blocks
    return Cost(work, 2 * len(sizes.lengths), sizes.full * (1 + 2 * sizes.blocks), probes)


def _intervention(sizes: Sizes, settings: Settings) -> Cost:
    ks, blocks, count = settings.intervened(sizes.blocks), sizes.blocks, len(sizes.lengths)
    lanes = 5 * len(ks) * count
    trunk = blocks + sum(blocks - k - 1 for k in ks[:-1])
    patched = sum(blocks - k for k in ks)
    cut = sum(2 * (rows + sizes.new) + sizes.new for rows in sizes.behind)
    put = sum(rows + 2 * sizes.new for rows in sizes.behind)
    work = 3 * sizes.full + cut * trunk + put * patched
    return Cost(work, lanes, sizes.full * (1 + 5 * len(ks)), 0, lanes * sizes.new)


def _cuts(sizes: Sizes, settings: Settings) -> Cost:
    ks, blocks, count = settings.intervened(sizes.blocks), sizes.blocks, len(sizes.lengths)
    each = 2 * len(settings.modes)  # the question and random tokens
    work, lanes = 0, 0
    if "cumulative" in settings.scopes:
        work += sizes.full + each * sizes.rows * blocks
        lanes += each * count
    for scope, width in (("single", 1), ("window", settings.window)):
        if scope in settings.scopes:
            work += each * sizes.rows * sum(blocks - max(0, k - width + 1) for k in ks)
            lanes += each * count * len(ks)
    if set(settings.scopes) - {"cumulative"}:
        work += sizes.full * len(ks)
    plain = sizes.full * (1 + each * len(settings.scopes) * len(ks))
    return Cost(work, lanes, plain, _fits(settings) * len(ks))


def _probes(sizes: Sizes, settings: Settings) -> Cost:
    work = sizes.full * len(settings.sites)
    places = len(settings.sites) * len(PLACES) * sizes.blocks
    return Cost(work, 0, work, 2 * _fits(settings) * (places + 2))


def _tokens(sizes: Sizes, settings: Settings) -> Cost:
    work = sizes.full * (len(REPLACED) + 1)
    return Cost(work, 0, work, _fits(settings) * sizes.blocks)


def _boundary(sizes: Sizes, settings: Settings) -> Cost:
    probes = 2 * _fits(settings) * sizes.blocks
    return Cost(sizes.full, 0, sizes.full, probes, sizes.new * len(sizes.lengths))


def _detect(sizes: Sizes, settings: Settings) -> Cost:
    count, lanes = len(sizes.lengths), 1 + len(SIDES) * len(settings.factors)
    work = 4 * sizes.full + lanes * sizes.rows * sizes.blocks
    # In each fold: the layer, gates, experts, and a probe for each factor, by inner folds.
    inner = settings.folds * (len(settings.intervened(sizes.blocks)) + 2 + len(settings.factors))
    probes = settings.folds * (inner + 7)
    return Cost(work, lanes * count, sizes.full * (4 + lanes), probes, count * (sizes.new + 2))


def _saliency(sizes: Sizes, settings: Settings) -> Cost:
    work = 3 * sizes.full  # a backward pass costs about two forward passes
    return Cost(work, 0, work, settings.folds)


_PARTS: dict[str, Callable[[Sizes, Settings], Cost]] = {
    "group": _group,
    "intervention": _intervention,
    "cuts": _cuts,
    "probes": _probes,
    "tokens": _tokens,
    "boundary": _boundary,
    "detect": _detect,
    "saliency": _saliency,
}
