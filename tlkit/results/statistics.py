"""Intervals, paired tests and rank statistics over examples; NaN means not measured."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tlkit.errors import SpecError


class Interval(NamedTuple):
    """A mean with its bounds and the number of values behind it."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n: np.ndarray


class PairedTest(NamedTuple):
    """The mean paired difference and its two-sided permutation p-value."""

    difference: np.ndarray
    p_value: np.ndarray
    n: np.ndarray


def mean_interval(values: ArrayLike, axis: int = -1, level: float = 0.95) -> Interval:
    """Mean along an axis with Student's t interval, NaN left out.

    Args:
        values: any shape; the result has it without `axis`.
        axis: the axis of the examples.
        level: share of such intervals that hold the true mean.

    Returns:
        mean, low, high and n. Bounds are NaN where fewer than 2 values are left.
    """
    from scipy.special import stdtrit

    _check_level(level)
    data = np.moveaxis(np.asarray(values, dtype=np.float64), axis, -1)
    there = ~np.isnan(data)
    n = there.sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(there, data, 0.0).sum(-1) / n
        spread = np.where(there, (data - mean[..., None]) ** 2, 0.0).sum(-1)
        error = np.sqrt(spread / (n - 1) / n)
        half = stdtrit(np.maximum(n - 1, 1), 0.5 + level / 2) * error
    half = np.where(n > 1, half, np.nan)
    return Interval(mean, mean - half, mean + half, n)


def wilson_interval(right: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """The interval of a share (Wilson 1927), inside 0 to 1 however few there are.

    Example:
        >>> [round(x, 3) for x in wilson_interval(1, 2)]
        [0.095, 0.905]
    """
    from scipy.special import ndtri

    _check_level(level)
    if n < 1:
        return float("nan"), float("nan")
    z = float(ndtri(0.5 + level / 2))
    share, more = right / n, z * z / n
    middle = (share + more / 2) / (1 + more)
    half = z / (1 + more) * float(np.sqrt(share * (1 - share) / n + more / (4 * n)))
    return max(0.0, middle - half), min(1.0, middle + half)


def bootstrap_interval(
    values: ArrayLike,
    axis: int = -1,
    level: float = 0.95,
    *,
    seed: int,
    resamples: int = 2_000,
) -> Interval:
    """Mean along an axis with the percentile bootstrap interval, NaN left out.

    Whole examples are drawn again, the same for every cell, so that cells stay
    comparable (Efron and Tibshirani 1993, chapter 13).
    """
    _check_level(level)
    data = np.moveaxis(np.asarray(values, dtype=np.float64), axis, -1)
    there = ~np.isnan(data)
    filled = np.where(there, data, 0.0)
    size, n = data.shape[-1], there.sum(-1)
    if size == 0:
        raise SpecError("An interval needs at least one value along its axis: none was given.")
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(size, np.full(size, 1 / size), size=resamples)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = (filled @ counts.T) / (there @ counts.T)
        mean = filled.sum(-1) / n
    low, high = (
        _quantile(means, share, enough=n > 1) for share in (0.5 - level / 2, 0.5 + level / 2)
    )
    return Interval(mean, low, high, n)


def paired_permutation(
    first: ArrayLike,
    second: ArrayLike,
    axis: int = -1,
    *,
    seed: int,
    permutations: int = 10_000,
) -> PairedTest:
    """Two-sided sign-flip test of first minus second; pairs with a NaN are left out.

    p = (1 + b) / (B + 1), where b of B random sign flips give a mean difference at
    least as far from 0: never 0 (Phipson and Smyth 2010). The same flips serve every
    cell; the order of the examples changes nothing.
    """
    one, two = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if one.shape != two.shape:
        raise SpecError(
            f"A paired test got arrays of shapes {one.shape} and {two.shape}: "
            f"give the same examples in both."
        )
    data = np.moveaxis(one - two, axis, -1)
    there = ~np.isnan(data)
    # In order of size, so that the draw does not depend on the order of the examples.
    filled, n = np.sort(np.where(there, data, 0.0), axis=-1), there.sum(-1)
    observed = np.abs(filled.sum(-1))
    slack = 1e-9 * np.abs(filled).sum(-1)
    rng = np.random.default_rng(seed)
    further = np.zeros(observed.shape)
    for start in range(0, permutations, 500):
        rows = min(500, permutations - start)
        signs = rng.integers(0, 2, size=(rows, data.shape[-1])) * 2.0 - 1.0
        further += (np.abs(filled @ signs.T) >= (observed - slack)[..., None]).sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        difference = filled.sum(-1) / n
    p_value = np.where(n > 0, (1 + further) / (permutations + 1), np.nan)
    return PairedTest(difference, p_value, n)


def benjamini_hochberg(p_values: ArrayLike) -> np.ndarray:
    """Adjusted p-values that bound the false discovery rate over all cells given.

    Rejecting where the adjusted p is at most 0.05 keeps that rate under 5 % (Benjamini
    and Hochberg 1995). NaN is no test: it stays NaN and is not counted.
    """
    p = np.asarray(p_values, dtype=np.float64)
    flat = p.ravel()
    tested = np.flatnonzero(~np.isnan(flat))
    if ((flat[tested] < 0) | (flat[tested] > 1)).any():
        raise SpecError("A p-value lies between 0 and 1: some of these do not.")
    order = tested[np.argsort(flat[tested], kind="stable")]
    scaled = flat[order] * order.size / np.arange(1, order.size + 1)
    adjusted = np.full(flat.shape, np.nan)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return adjusted.reshape(p.shape)


def auc(scores: ArrayLike, labels: ArrayLike) -> float:
    """Area under the ROC curve: how often a positive outscores a negative, ties half.

    NaN where only one class is there. A score of NaN is refused.
    """
    from scipy.stats import rankdata

    score, positive = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=bool)
    if score.shape != positive.shape or score.ndim != 1:
        raise SpecError(
            f"AUC needs one score a label: got {score.shape} scores, {positive.shape} labels."
        )
    if np.isnan(score).any():
        raise SpecError("AUC cannot rank a score of NaN: drop those examples first.")
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    if not n_positive or not n_negative:
        return float("nan")
    ranks = rankdata(score)[positive].sum()
    return float((ranks - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise SpecError(f"A level of {level} is no share: give one between 0 and 1, e.g. 0.95.")


def _quantile(means: np.ndarray, share: float, *, enough: np.ndarray) -> np.ndarray:
    """A quantile over resamples; those that drew only missing values do not count."""
    ordered = np.sort(means, axis=-1)
    last = np.maximum((~np.isnan(means)).sum(-1) - 1, 0)
    place = share * last
    below = np.floor(place).astype(int)
    above = np.ceil(place).astype(int)
    low, high = (
        np.take_along_axis(ordered, index[..., None], axis=-1)[..., 0] for index in (below, above)
    )
    return np.where(enough, low + (high - low) * (place - below), np.nan)
