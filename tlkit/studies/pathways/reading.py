"""What a study found, as curves and as a table."""

import json
from typing import Any, Literal

import numpy as np

from tlkit.errors import SpecError
from tlkit.results.schema import build
from tlkit.results.statistics import mean_interval
from tlkit.studies.pathways.part import GROUPS
from tlkit.studies.pathways.settings import MIN_EXAMPLES

Reading = Literal["group", "held_out", "knockout", "patch"]

CONTROL = "random tokens"
CAPTIONS: dict[Reading, str] = {
    "group": "ΔP of the verdict first given, question cut off in blocks 0 to k; groups by whether "
    "that verdict turned at k, so that a gap between them is certain and only its size, the "
    "control and the held-out groups say something.",
    "held_out": "ΔP of the verdict first given, question cut off in blocks 0 to k; groups chosen "
    "by probes from one half of the questions, ΔP measured by probes from the other half.",
    "knockout": "ΔP of the answer's probability when, in blocks 0 to k, later tokens no longer "
    "see the exact question (Q), or the answer's tokens no longer see each other (A).",
    "patch": "ΔP of the answer's probability when the stream that enters block k is taken from a "
    "paired question's run, at the exact question (Q) or where the answer is predicted (A).",
}
"""What each reading's figure shows, in a sentence."""


def curves(ds: Any, reading: Reading | None = None, *, min_examples: int | None = None) -> Any:
    """One curve per set of questions and group, ready to be drawn.

    Args:
        ds: What `run` gave.
        reading: ``"group"`` (by verdict flip), ``"held_out"``, ``"knockout"`` or ``"patch"`` (of
            the intervention reading); the first that was measured if None.
        min_examples: Groups with fewer examples at a layer are NaN there; by default what the
            study was asked for.

    Returns:
        A Dataset: ``delta_p`` (dataset, group, layer, example), percentage points, NaN for
        examples of another group; groups Q-anchored, A-anchored and, as a control, the same
        knockout of random tokens on all examples. ``group_size`` (dataset, group, layer) says n,
        before small groups are left out. ``attrs["caption"]`` says what it is.

    Raises:
        SpecError: The reading is unknown, or was not measured.
    """
    measured: list[Reading] = [name for name in CAPTIONS if _measured(ds, name)]
    if reading is None:
        reading = measured[0] if measured else "group"
    if reading not in CAPTIONS:
        raise SpecError(f"There is no reading {reading!r}; there are {', '.join(CAPTIONS)}.")
    if not _measured(ds, reading):
        raise SpecError(f"The reading {reading!r} was not measured; {_why(ds)}")
    least = (
        int(ds.attrs.get("min_examples", MIN_EXAMPLES)) if min_examples is None else min_examples
    )
    values, names = _grouped(ds, reading), [*GROUPS]
    if reading != "patch":
        names.append(CONTROL)
    size = (~np.isnan(values)).sum(-1)
    values = np.where((size >= least)[..., None], values, np.nan).astype(np.float32)
    layers = [
        int(k) for k, there in zip(ds["layer"].values, size.any((0, 1)), strict=True) if there
    ]
    at = [i for i, k in enumerate(ds["layer"].values) if int(k) in layers]
    return build(
        {
            "delta_p": (("dataset", "group", "layer", "example"), values[:, :, at]),
            "group_size": (("dataset", "group", "layer"), size[:, :, at], "examples"),
        },
        {"dataset": ds["dataset"].values.tolist(), "group": names, "layer": layers},
        {**ds.attrs, "reading": reading, "caption": CAPTIONS[reading], "min_examples": least},
    )


def _measured(ds: Any, reading: str) -> bool:
    if reading in ("group", "held_out"):
        return "delta_p" in ds and bool(ds["delta_p"].notnull().any())
    name = "delta_p_intervention"
    return name in ds and bool(ds[name].sel(kind=reading).notnull().any())


def _why(ds: Any) -> str:
    """The reasons that a study noted."""
    return " ".join(reasons(ds)) or "ask for it with readings=[…]."


def _grouped(ds: Any, reading: str) -> np.ndarray:
    """Values ``[dataset, group, layer, example]``, the control last where there is one."""
    if reading == "patch":
        return ds["delta_p_intervention"].sel(kind="patch").values
    if reading == "knockout":
        own = ds["delta_p_intervention"].sel(kind="knockout").values
        control = ds["delta_p_intervention_control"].values
        return np.concatenate([own, control[:, None]], axis=1)
    suffix = "" if reading == "group" else "_held_out"
    values, turned = ds[f"delta_p{suffix}"].values, ds[f"q_anchored{suffix}"].values
    control = ds[f"delta_p_control{suffix}"].values
    return np.stack(
        [np.where(turned, values, np.nan), np.where(turned, np.nan, values), control], axis=1
    )


def table(ds: Any, *, layers: Any = None, min_examples: int | None = None) -> Any:
    """ΔP of every reading that was measured, at some layers, with 95 % intervals.

    Args:
        ds: What `run` gave.
        layers: Which layers; about seven spread over the model if None.
        min_examples: See `curves`.

    Returns:
        A pandas DataFrame: reading, dataset, group, layer, delta_p, low, high, n. Groups that are
        too small have NaN and their n.
    """
    import pandas as pd

    rows = []
    for reading in CAPTIONS:
        if not _measured(ds, reading):
            continue
        found = curves(ds, reading, min_examples=min_examples)
        there = found["layer"].values.tolist()
        asked = [k for k in (layers if layers is not None else _spread(there)) if k in there]
        if not asked:
            raise SpecError(f"None of the layers {layers} was measured; there are {there}.")
        some = found.sel(layer=asked)
        interval = mean_interval(some["delta_p"].values)
        for at in np.ndindex(*interval.mean.shape):
            rows.append({
                "reading": reading,
                "dataset": str(some["dataset"].values[at[0]]),
                "group": str(some["group"].values[at[1]]),
                "layer": int(some["layer"].values[at[2]]),
                "delta_p": float(interval.mean[at]),
                "low": float(interval.low[at]),
                "high": float(interval.high[at]),
                "n": int(some["group_size"].values[at]),
            })  # fmt: skip
    return pd.DataFrame(rows)


def _spread(layers: list[int], count: int = 7) -> list[int]:
    """Some of the layers, first and last among them."""
    if len(layers) <= count:
        return layers
    return [layers[round(i * (len(layers) - 1) / (count - 1))] for i in range(count)]


def share_right(ds: Any) -> Any:
    """The share of right answers per set and relation.

    Returns:
        A pandas DataFrame: dataset, relation, right, wrong, unknown, share.
    """
    import pandas as pd

    rows = []
    for name in ds["dataset"].values.tolist():
        one = ds.sel(dataset=name)
        there = one["question"].values != ""
        relations, verdicts = one["relation"].values[there], one["verdict"].values[there]
        for relation in sorted(set(relations.tolist())):
            said = verdicts[relations == relation]
            counts = {
                verdict: int((said == verdict).sum()) for verdict in ("right", "wrong", "unknown")
            }
            rows.append({
                "dataset": name, "relation": relation, **counts,
                "share": counts["right"] / len(said),
            })  # fmt: skip
    return pd.DataFrame(rows)


def aucs(ds: Any) -> Any:
    """The probes' AUC beside that of probes taught shuffled labels, ready to be drawn.

    Returns:
        A Dataset: ``probe_auc`` (dataset, control, layer, seed).

    Raises:
        SpecError: No probes were trained.
    """
    if "probe_auc" not in ds or not bool(ds["probe_auc"].notnull().any()):
        raise SpecError(f"No probes were trained; {_why(ds)}")
    both = np.stack([ds["probe_auc"].values, ds["probe_auc_control"].values], axis=1)
    return build(
        {"probe_auc": (("dataset", "control", "layer", "seed"), both)},
        {
            "dataset": ds["dataset"].values.tolist(),
            "control": ["true labels", "shuffled labels"],
            "layer": ds["layer"].values.tolist(),
            "seed": ds["seed"].values.tolist(),
        },
        dict(ds.attrs),
    )


def reasons(ds: Any) -> list[str]:
    """Why numbers are missing, one sentence each, the set of questions first."""
    notes = json.loads(ds.attrs.get("notes", "{}"))
    return [f"{name}: {reason}" for name, note in notes.items() for reason in note["reasons"]]


def counts(ds: Any) -> Any:
    """What was found and what was not, per set of questions.

    Returns:
        A pandas DataFrame, one row per set.
    """
    import pandas as pd

    notes = json.loads(ds.attrs.get("notes", "{}"))
    return pd.DataFrame([{"dataset": name, **note["counts"]} for name, note in notes.items()])
