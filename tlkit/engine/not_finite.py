"""Numbers that came out as NaN or infinite: which ones, and whether the model is to blame."""

from typing import Any

import numpy as np

from tlkit.engine.work import Work
from tlkit.errors import warn

NAMED = 3
"""How many of them a message names."""


def tell_not_finite(
    work: Work, values: np.ndarray, baselines: dict[str, np.ndarray], attrs: dict[str, Any]
) -> None:
    """Warn of values that are not finite, and put the sentence into the attributes.

    A cell that an example lacks is NaN by design and not told.

    Args:
        work: The request.
        values: ``[metric, cell, example]``.
        baselines: Per run ``[metric, example]``.
        attrs: The result's attributes.
    """
    runs = [
        f"the unchanged {name} run of example {example}"
        for name, found in baselines.items() if name != "base"
        for example in np.flatnonzero(~np.isfinite(found).all(0))
    ]  # fmt: skip
    lacking = np.array([[w.status == "missing" for w in row] for row in work.worked])
    wrong = ~np.isfinite(values).all(0) & ~lacking
    cells = [
        f"{work.conditions[cell].name}, example {example}" for cell, example in np.argwhere(wrong)
    ]
    said = runs + cells
    if not said:
        return
    names = "; ".join(said[:NAMED]) + ("; …" if len(said) > NAMED else "")
    blame = (
        "the model itself or the metric gives no number there"
        if runs else "the interventions drive the model or the metric out of range"
    )  # fmt: skip
    attrs["not_finite"] = (
        f"{len(cells)} of {int((~lacking).sum())} values and {len(runs)} unchanged runs are NaN or "
        f"infinite ({names}): {blame}."
    )
    warn(attrs["not_finite"])
