"""A study of layer probes as a table: each model's best layer, beside its controls."""

from typing import Any

import numpy as np

from tlkit.errors import SpecError
from tlkit.results.statistics import mean_interval

SCORES = ("f1", "macro_f1", "balanced_accuracy", "auc")


def table(ds: Any, variable: str = "f1") -> list[dict[str, Any]]:
    """One row per model and site: the layer with the highest mean score, and what it beats.

    The best of many layers is chosen on the scores that are shown: a little too high, by chance.

    Args:
        ds: What `run` gave.
        variable: ``"f1"``, ``"macro_f1"``, ``"balanced_accuracy"`` or ``"auc"``.

    Returns:
        Rows with ``model``, ``site``, ``layer``, the score with ``low`` and ``high`` (95 %,
        Student's t over folds, whose training sets overlap: narrower than the truth), ``layer 0``
        (the score there) and one column per control at that layer, where there is one.

    Raises:
        SpecError: There is no such score.
    """
    if variable not in SCORES or variable not in ds:
        raise SpecError(f"There is no score {variable!r}; there are {', '.join(SCORES)}.")
    rows = []
    for model in ds["model"].values.tolist():
        for site in ds["site"].values.tolist():
            one = ds.sel(model=model, site=site)
            interval = mean_interval(one[variable].transpose("layer", "fold").values)
            at = int(np.nanargmax(interval.mean))
            row = {
                "model": model, "site": site, "layer": int(one["layer"].values[at]),
                variable: float(interval.mean[at]), "low": float(interval.low[at]),
                "high": float(interval.high[at]), "layer 0": float(interval.mean[0]),
            }  # fmt: skip
            name = f"{variable}_control"
            if name in ds:
                controls = one[name].isel(layer=at).mean("fold")
                row |= {
                    str(control): float(controls.sel(control=control))
                    for control in controls["control"].values
                }
            rows.append(row)
    return rows
