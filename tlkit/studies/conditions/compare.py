"""Which heads a condition changed."""

from typing import Any

import numpy as np

from tlkit.errors import SpecError
from tlkit.results.schema import build
from tlkit.results.statistics import benjamini_hochberg, paired_permutation

RESAMPLES = 10_000


def changed_heads(
    ds: Any,
    condition: str,
    against: str | None = None,
    statistic: str = "attention_weight",
    *,
    first_token: bool = True,
    seed: int = 0,
    permutations: int | None = None,
) -> Any:
    """Test every head: is a number of its attention another under a condition, prompt by prompt?

    Any insertion takes attention away from the rest, so a drop against the plain prompts says
    little; test against a control insertion of the same length as well.

    Args:
        ds: What `run` gave.
        condition: A condition's label.
        against: Another's; the plain prompts if None.
        statistic: What is compared: each prompt's mean ``attention_weight`` over its tokens, or
            another number of its heads.
        first_token: Whether the first token counts in that mean.
        seed: Draws sign flips.
        permutations: How many; if None, enough for the correction over all heads.

    Returns:
        A Dataset (layer, head): ``effect_size`` (mean paired difference over its standard
        deviation; 0 where nothing differs), ``difference``, ``p_value`` ((1 + b)/(B + 1),
        two-sided sign flips), ``p_adjusted`` (Benjamini-Hochberg over all heads).

    Raises:
        SpecError: There is no such condition or statistic.
    """
    labels = ds["condition"].values.tolist()
    against = str(ds.attrs["baseline"]) if against is None else against
    for name in (condition, against):
        if name not in labels:
            raise SpecError(f"There is no condition {name!r}; there are {', '.join(labels)}.")
    values = _numbers(ds, statistic, first_token=first_token)
    first, second = (values[labels.index(name)] for name in (against, condition))
    for name, one in ((against, first), (condition, second)):
        if np.isnan(one).all():
            raise SpecError(f"{statistic} is not measured under {name!r}: compare two insertions.")
    found = _tested(first, second, seed, permutations)
    dims = ("layer", "head")
    units = ds[statistic].attrs["units"]
    return build(
        {
            "effect_size": (dims, found["effect_size"]),
            "difference": (dims, found["difference"], units),
            "p_value": (dims, found["p_value"]),
            "p_adjusted": (dims, found["p_adjusted"]),
        },
        {"layer": ds["layer"].values.tolist()},
        {**ds.attrs, "study": "changed heads", "condition": condition, "against": against,
         "statistic": statistic},
    )  # fmt: skip


def ranked(found: Any, n: int = 10) -> Any:
    """The heads that changed most, as a pandas DataFrame: layer, head, and what was tested.

    Args:
        found: What `changed_heads` gave.
        n: How many.
    """
    import pandas as pd

    if "effect_size" not in found or "condition" in found.dims:
        raise SpecError("ranked sorts what changed_heads gave, not a whole study.")
    size = np.abs(found["effect_size"].values).ravel()
    rows = []
    for place in np.argsort(-np.nan_to_num(size), kind="stable")[:n]:
        i, j = np.unravel_index(place, found["effect_size"].shape)
        one = found.isel(layer=i, head=j)
        rows.append({
            "layer": int(one["layer"]), "head": int(one["head"]),
            **{name: float(one[name]) for name in found.data_vars},
        })  # fmt: skip
    return pd.DataFrame(rows)


def tests(
    ds: Any, base: str, *, first_token: bool, seed: int, permutations: int | None
) -> Any:  # fmt: skip
    """The dataset with every condition's test against the plain prompts in it."""
    labels = ds["condition"].values.tolist()
    values = _numbers(ds, "attention_weight", first_token=first_token)
    dims = ("condition", "layer", "head")
    shape = tuple(ds.sizes[dim] for dim in dims)
    made = {name: np.full(shape, np.nan) for name in ("effect_size", "p_value", "p_adjusted")}
    for i, label in enumerate(labels):
        if label != base:
            found = _tested(values[labels.index(base)], values[i], seed, permutations)
            for name, array in made.items():
                array[i] = found[name]
    units = {"effect_size": "standard deviations"}
    return ds.assign({
        name: (dims, array, {"units": units.get(name, "probability")})
        for name, array in made.items()
    })  # fmt: skip


def _numbers(ds: Any, statistic: str, *, first_token: bool) -> np.ndarray:
    """One number per head and prompt, ``[condition, layer, head, example]``."""
    if statistic not in ds or "example" not in ds[statistic].dims:
        raise SpecError(f"There is no statistic {statistic!r}; 'attention_weight' is one.")
    data = ds[statistic].transpose("condition", "layer", "head", ..., "example")
    if "pos" not in data.dims:
        return data.values.astype(float)
    values = data.values[..., 0 if first_token else 1 :, :]
    # A token that is missing under one condition is left out of all. One condition at a time:
    # the weights are the largest part of a result.
    there = ~np.isnan(values).any(0)
    counts = there.sum(2)
    sums = [np.where(there, one, 0.0).sum(2, dtype=float) for one in values]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(counts > 0, np.stack(sums) / counts, np.nan)


def _tested(
    first: np.ndarray, second: np.ndarray, seed: int, permutations: int | None
) -> dict[str, np.ndarray]:
    if permutations is not None and permutations < 1:
        raise SpecError(f"permutations is {permutations}; a test needs at least 1.")
    heads = int(np.prod(first.shape[:2]))
    count = max(RESAMPLES, 40 * heads) if permutations is None else permutations
    test = paired_permutation(second, first, seed=seed, permutations=count)
    change = second - first
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.nanstd(change, axis=-1, ddof=1) if change.shape[-1] > 1 else np.nan
        size = np.where(test.difference == 0, 0.0, test.difference / spread)
        size = np.where(np.isinf(size), np.nan, size)  # no spread at all: not to be scaled
    return {
        "difference": test.difference, "effect_size": size, "p_value": test.p_value,
        "p_adjusted": benjamini_hochberg(test.p_value),
    }  # fmt: skip
