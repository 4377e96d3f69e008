"""What a study found of probes and detectors, as datasets to draw and tables to read."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tlkit.errors import SpecError
from tlkit.results.schema import build
from tlkit.results.statistics import mean_interval
from tlkit.studies.pathways.by_place import UNITS
from tlkit.studies.pathways.notes import reasons
from tlkit.studies.pathways.reading import leading, require


def aucs(ds: Any) -> Any:
    """The probes' AUC beside that of probes taught shuffled labels, ready to be drawn.

    Returns:
        A Dataset: ``probe_auc`` ((model,) dataset, control, layer, seed).

    Raises:
        SpecError: No probes were trained.
    """
    if "probe_auc" not in ds or not bool(ds["probe_auc"].notnull().any()):
        why = " ".join(reasons(ds)) or "ask for it with parts=['group']."
        raise SpecError(f"No probes were trained; {why}")
    return _with_control(ds, "probe_auc", "probe_auc_control", "labels", "pathways probes")


def awareness(ds: Any) -> Any:
    """The AUC of probes that tell the groups apart, beside those taught shuffled groups.

    Returns:
        A Dataset: ``awareness_auc`` ((model,) dataset, control, layer, seed).

    Raises:
        SpecError: They were not trained.
    """
    require(ds, "awareness_auc", "boundary")
    return _with_control(
        ds, "awareness_auc", "awareness_auc_shuffled", "groups", "pathways awareness"
    )


def _with_control(ds: Any, name: str, control: str, what: str, study: str) -> Any:
    lead = leading(ds)
    both = np.stack([ds[name].values, ds[control].values], axis=len(lead))
    labels = {dim: ds[dim].values.tolist() for dim in (*lead, "layer", "seed")}
    return build(
        {name: ((*lead, "control", "layer", "seed"), both, "AUC")},
        {**labels, "control": [f"true {what}", f"shuffled {what}"]},
        {**ds.attrs, "study": study},
    )


def places(ds: Any) -> Any:
    """Each site's and position's best layer by AUC, with its other scores and the controls.

    Returns:
        A pandas DataFrame: (model,) dataset, site, pos, layer, auc, f1, balanced_accuracy, brier,
        ece (means over divisions into folds), auc_low and auc_high (95 % over divisions),
        auc_shuffled, random_features_auc, answer_string_auc.

    Raises:
        SpecError: The part was not measured.
    """
    import pandas as pd

    require(ds, "place_auc", "probes")
    rows = []
    for labels, one in _each(ds, (*leading(ds), "site", "pos")):
        means = one["place_auc"].mean("seed").values
        if np.isnan(means).all():
            continue
        layer = int(np.nanargmax(means))
        best = one.isel(layer=layer)
        interval = mean_interval(best["place_auc"].values)
        rows.append({
            **labels, "layer": int(best["layer"]),
            **{name: float(best[f"place_{name}"].mean()) for name in UNITS},
            "auc_low": float(interval.low), "auc_high": float(interval.high),
            "auc_shuffled": float(best["place_auc_shuffled"].mean()),
            "random_features_auc": float(one["random_features_auc"].mean()),
            "answer_string_auc": float(one["answer_string_auc"].mean()),
        })  # fmt: skip
    return pd.DataFrame(rows)


def detectors(ds: Any) -> Any:
    """Each detector's AUC with its interval, and how it differs from a single probe.

    Returns:
        A pandas DataFrame: (model,) dataset, detector, auc, low, high (95 %, bootstrap over
        questions), difference and p_value (paired, against ``probe``), n.

    Raises:
        SpecError: The part was not measured.
    """
    import pandas as pd

    require(ds, "detector_auc", "detect")
    rows = []
    names = {"auc": "auc", "low": "auc_low", "high": "auc_high", "difference": "difference",
             "p_value": "p_value"}  # fmt: skip
    for labels, one in _each(ds, (*leading(ds), "detector")):
        if bool(one["detector_auc"].notnull()):
            rows.append({
                **labels,
                **{name: float(one[f"detector_{key}"]) for name, key in names.items()},
                "n": int(one["detector_score"].notnull().sum()),
            })  # fmt: skip
    return pd.DataFrame(rows)


def flips(ds: Any) -> Any:
    """How often a verdict turned when tokens were replaced, at each layer's best probe.

    Returns:
        A pandas DataFrame: (model,) dataset, control (what was replaced), group, layer, flip_rate,
        low, high (Wilson's 95 %), n; at the layer whose probe tells best.

    Raises:
        SpecError: The part was not measured.
    """
    import pandas as pd

    from tlkit.results.statistics import wilson_interval

    require(ds, "flip_rate_n", "tokens")
    rows = []
    for labels, one in _each(ds, (*leading(ds), "control", "group")):
        told = one["probe_auc"].mean("seed").values
        if np.isnan(told).all():
            continue
        best = one.isel(layer=int(np.nanargmax(told)))
        n = int(best["flip_rate_n"])
        rate = float(best["flip_rate"])
        low, high = wilson_interval(round(rate * n) if n else 0, n)
        rows.append({
            **labels, "layer": int(best["layer"]),
            "flip_rate": rate, "low": low, "high": high, "n": n,
        })  # fmt: skip
    return pd.DataFrame(rows)


def _each(ds: Any, dims: Sequence[str]) -> Iterator[tuple[dict[str, str], Any]]:
    """Each cell of some dimensions: its labels, and the dataset there."""
    for at in np.ndindex(*(ds.sizes[dim] for dim in dims)):
        one = ds.isel(dict(zip(dims, at, strict=True)))
        yield {dim: str(one[dim].item()) for dim in dims}, one
