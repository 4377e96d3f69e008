"""Paired questions: whose activations are put into whose run."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from tlkit.studies.pathways.examples import Example


def partners_of(examples: Sequence[Example], seed: int) -> list[int | None]:
    """Give each example another one of the same relation and shape, no two the same one.

    The same shape: the prompts have equally many tokens and the exact questions stand at the
    same positions, so that positions correspond one to one. A partner is another question whose
    exact answer is other tokens. Within each such set the examples are shuffled and then shifted
    by the number of places that pairs the most of them.

    Args:
        examples: The examples.
        seed: Shuffles.

    Returns:
        The partner's index, or None where there is none.
    """
    alike: dict[tuple, list[int]] = defaultdict(list)
    for index, one in enumerate(examples):
        alike[one.relation, one.prompt, one.question].append(index)
    found: list[int | None] = [None] * len(examples)
    generator = np.random.default_rng(seed)
    for several in alike.values():
        order = generator.permutation(several).tolist()
        shifts = [_paired(examples, order, shift) for shift in range(1, len(order))]
        for index, other in max(shifts, key=len, default={}).items():
            found[index] = other
    return found


def _paired(examples: Sequence[Example], order: Sequence[int], shift: int) -> dict[int, int]:
    """Who is paired with whom, each with the one some places behind."""
    pairs = zip(order, [*order[shift:], *order[:shift]], strict=True)
    return {index: other for index, other in pairs if _apart(examples[index], examples[other])}


def _said(example: Example) -> tuple[int, ...]:
    return example.ids[slice(*example.exact)]


def _apart(one: Example, other: Example) -> bool:
    """Whether answers differ, and questions: with given answers a question is there twice."""
    same = one.group == other.group and one.ids[: one.prompt] == other.ids[: other.prompt]
    return _said(one) != _said(other) and not same
