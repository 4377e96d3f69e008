"""The unit of every variable that the studies report."""

from __future__ import annotations

import numpy as np
import xarray as xr

METRIC_UNITS = "metric_units"
"""The unit of a variable that is measured in each metric's own unit."""

UNITS: dict[str, str] = {
    "value": METRIC_UNITS,
    "effect": METRIC_UNITS,
    "clean": METRIC_UNITS,
    "corrupted": METRIC_UNITS,
    "recovered": "fraction",
    "exact": "true or false",
    "delta_p": "percentage points",
    "delta_p_control": "percentage points",
    "answer_only_delta_p": "percentage points",
    "q_anchored": "true or false",
    "probe_auc": "AUC",
    "detector_auc": "AUC",
    "auc": "AUC",
    "flip_rate": "fraction",
    "attention_weight": "probability",
    "effect_size": "standard deviations",
    "p_value": "probability",
    "p_adjusted": "probability",
    "lambda_q": "ratio",
    "affine_residual": "fraction",
    "entropy": "nats",
    "sink_share": "fraction",
    "f1": "F1",
    "f1_control": "F1",
    "macro_f1": "F1",
    "balanced_accuracy": "fraction",
    "balanced_accuracy_control": "fraction",
    "kl": "nats",
    "loss": "nats per token",
    "answer_prob": "probability",
    "refusal_rate": "fraction",
    "candidate_score": "score",
}


def units_of(data: xr.DataArray) -> str:
    """The unit of an array of a dataset; of its metric, where one metric is left."""
    units = str(data.attrs.get("units", ""))
    if units != METRIC_UNITS:
        return units
    names = data.coords.get(METRIC_UNITS)
    found = [] if names is None else sorted({str(name) for name in np.ravel(names.values)})
    return found[0] if len(found) == 1 else " / ".join(found)
