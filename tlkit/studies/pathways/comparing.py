"""Intervals of an AUC, and the paired comparison of two; questions are drawn, not answers."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from tlkit.results.statistics import Interval, PairedTest, auc


def auc_interval(
    scores: np.ndarray, labels: np.ndarray, groups: Sequence[str], *, seed: int,
    resamples: int = 1_000, level: float = 0.95,
) -> Interval:  # fmt: skip
    """AUC with the percentile bootstrap interval, whole groups drawn again.

    Args:
        scores: ``[example]``, higher for class 1.
        labels: Bool ``[example]``.
        groups: What is drawn as one, such as the question.
        seed: Draws.
        resamples: How often.
        level: Share of such intervals that hold the true AUC.
    """
    members = _members(groups)
    generator = np.random.default_rng(seed)
    drawn = []
    for _ in range(resamples):
        chosen = generator.integers(len(members), size=len(members))
        some = np.concatenate([members[i] for i in chosen])
        drawn.append(auc(scores[some], labels[some]))
    low, high = np.nanquantile(drawn, [0.5 - level / 2, 0.5 + level / 2])
    return Interval(np.array(auc(scores, labels)), low, high, np.array(len(scores)))


def paired_auc(
    first: np.ndarray, second: np.ndarray, labels: np.ndarray, groups: Sequence[str], *,
    seed: int, permutations: int = 1_000,
) -> PairedTest:  # fmt: skip
    """Whether two detectors' AUCs differ on the same examples.

    Ranks of both are exchanged at random, group by group (Venkatraman and Begg 1996,
    doi:10.1093/biomet/83.4.835). Two-sided; p = (1 + b) / (B + 1).

    Returns:
        AUC of the first minus that of the second, p, and the number of examples.
    """
    one, other = rankdata(first), rankdata(second)
    observed = auc(one, labels) - auc(other, labels)
    names, of_group = np.unique(np.asarray(groups), return_inverse=True)
    generator = np.random.default_rng([seed, 4])
    further = 0
    for _ in range(permutations):
        swap = generator.integers(0, 2, len(names))[of_group] == 1
        difference = auc(np.where(swap, other, one), labels) - auc(
            np.where(swap, one, other), labels
        )
        further += abs(difference) >= abs(observed) - 1e-12
    p_value = (1 + further) / (permutations + 1)
    return PairedTest(np.array(observed), np.array(p_value), np.array(len(labels)))


def _members(groups: Sequence[str]) -> list[np.ndarray]:
    names = np.asarray(groups)
    return [np.flatnonzero(names == name) for name in dict.fromkeys(names.tolist())]
