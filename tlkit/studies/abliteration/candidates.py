"""Every candidate direction by a cheap score, and the few best by what the model then says."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tlkit.engine.generate import greedy
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.models.text import encode
from tlkit.prompts.prompts import Prompts
from tlkit.spec.directions import Direction
from tlkit.studies.abliteration.forward import apart, kl, next_token, prefix_odds
from tlkit.studies.abliteration.projection import Strengths, projected
from tlkit.studies.answer_store import stop_tokens
from tlkit.studies.behaviour import Detector, classify

PREFIX_TOKENS, MOST_PREFIXES = 3, 4
Progress = Callable[[int, int], None]
Key = tuple[int, int]


@dataclass
class Scored:
    """What taking one direction out does.

    Attributes:
        score: Mean log-odds that a behaving prompt's answer starts as a refusal.
        kl: Mean KL of the first answer token on the others, unchanged || changed, nats.
        rate: Share of answers that are refusals, NaN where none were written.
        failed: Share of answers that are empty or garbled.
    """

    score: float
    kl: float
    rate: float = float("nan")
    failed: float = float("nan")


@dataclass(frozen=True)
class Writer:
    """Writes answers, and reads them as text."""

    model: Any
    chat: bool
    max_new_tokens: int

    def __call__(self, prompts: Prompts) -> tuple[list[list[int]], list[str]]:
        """Token ids and texts of greedy answers."""
        stop = stop_tokens(self.model, chat=self.chat and bool(self.model.tokenizer.chat_template))
        ids = greedy(self.model, prompts.clean, max_new_tokens=self.max_new_tokens, stop=stop)
        decode = self.model.tokenizer.decode
        return ids, [decode(one, skip_special_tokens=True) for one in ids]


def prefixes_of(
    model: Any, given: Sequence[str] | None, answers: Sequence[Sequence[int]],
    refused: Sequence[bool], *, chat: bool,
) -> list[tuple[int, ...]]:  # fmt: skip
    """Token ids of how refusals start: as given, or as the model's own most often do.

    Args:
        model: Whose tokens they are.
        given: Texts, or None.
        answers: Token ids of the model's answers to the behaving prompts.
        refused: Which of them are refusals.
        chat: Whether prompts end where the assistant begins; else a space comes first.

    Raises:
        SpecError: A given one is empty.
    """
    if given is not None:
        if not given or any(not one.strip() for one in given):
            raise SpecError("prefixes has an empty text; give how refusals start, or leave it out.")
        lead = "" if chat else " "
        found = [encode(model, lead + one.strip(), special=False).ids for one in given]
        return apart(found)
    starts = Counter(
        tuple(ids[:PREFIX_TOKENS]) for ids, yes in zip(answers, refused, strict=True) if yes
    )
    return apart([one for one, _ in starts.most_common(MOST_PREFIXES)])


class Bench:
    """Prompts on which candidates are tried, and what the unchanged model does on them."""

    def __init__(
        self, model: Any, harmful: Prompts, harmless: Prompts,
        prefixes: Sequence[tuple[int, ...]], weights: Strengths, write: Writer, detector: Detector,
    ) -> None:  # fmt: skip
        self.model, self.parts = model, Parts(model)
        self.harmful, self.harmless, self.prefixes = harmful, harmless, prefixes
        self.weights, self.write, self.detector = weights, write, detector
        self.base: Tensor = next_token(self.parts, harmless.clean)

    def score(self, direction: Direction) -> Scored:
        """Two batched passes of the prompts, nothing written."""
        with projected(self.model, direction, self.weights):
            odds = prefix_odds(self.parts, self.harmful.clean, self.prefixes)
            changed = next_token(self.parts, self.harmless.clean)
        return Scored(float(odds.mean()), float(kl(self.base, changed).mean()))

    def generate(self, direction: Direction, scored: Scored) -> None:
        """Answers to the behaving prompts, and how many are refusals."""
        with projected(self.model, direction, self.weights):
            _, texts = self.write(self.harmful)
        classes = [classify(text, self.detector) for text in texts]
        scored.rate = classes.count("refusal") / len(classes)
        scored.failed = (classes.count("empty") + classes.count("garbled")) / len(classes)


def choose(
    bench: Bench, found: Mapping[Key, Direction], most: float | int, max_kl: float | int,
    generate: int, progress: Progress | None = None,
) -> tuple[Key, dict[Key, Scored]]:  # fmt: skip
    """Score every candidate, let the best few write, and choose one.

    Of those that leave at most a share ``most`` of refusals, the one that changes harmless prompts
    least; if there are none, the one that leaves fewest. Candidates within ``max_kl`` come first
    among the latter, and so among the former by their KL.

    Returns:
        The chosen (layer, position), and what was found of each.
    """
    total = len(found) + min(generate, len(found))
    table: dict[Key, Scored] = {}
    for key, direction in found.items():
        table[key] = bench.score(direction)
        if progress:
            progress(len(table), total)
    limit = float(np.log(most) - np.log1p(-most))

    def cheap(key: Key) -> tuple[bool, bool, float]:
        one = table[key]
        removed = one.score <= limit
        return not removed, one.kl > max_kl, one.kl if removed else one.score

    best = sorted(table, key=cheap)[:generate]
    for done, key in enumerate(best, start=1):
        bench.generate(found[key], table[key])
        if progress:
            progress(len(table) + done, total)

    def written(key: Key) -> tuple[bool, bool, float, float]:
        one = table[key]
        # Empty and garbled answers are no success: they count as what was to be removed.
        bad = one.rate + one.failed
        removed = bad <= most
        return not removed, one.kl > max_kl, one.kl if removed else bad, one.kl

    return min(best, key=written), table


def random_direction(width: int, rank: int, seed: int) -> Direction:
    """A direction drawn evenly from all, as a control."""
    generator = torch.Generator().manual_seed(seed)
    return Direction(torch.randn(rank, width, generator=generator), method="random")
