"""What a study found of ΔP, as curves and as a table."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from tlkit.errors import SpecError
from tlkit.results.schema import build
from tlkit.results.statistics import mean_interval
from tlkit.studies.pathways.group import delta_p, turned
from tlkit.studies.pathways.notes import reasons
from tlkit.studies.pathways.part import GROUPS
from tlkit.studies.pathways.settings import MIN_EXAMPLES

Reading = Literal["group", "held_out", "knockout", "patch"]
Definition = Literal["predicted", "wrong"]

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
DEFINITIONS: dict[Definition, str] = {
    "predicted": "of the class that was predicted first",
    "wrong": "of a wrong answer",
}
"""Whose probability changes."""


def leading(ds: Any) -> tuple[str, ...]:
    """The dimensions that come before all others: the model, if there are several, and the set."""
    return ("model", "dataset") if "model" in ds.dims else ("dataset",)


def require(ds: Any, variable: str, part: str) -> None:
    """Refuse a dataset without a part of the study.

    Raises:
        SpecError: With why it was not measured, or how to ask for it.
    """
    if variable not in ds or not bool(ds[variable].notnull().any()):
        why = " ".join(reasons(ds)) or f"ask for it with parts=[{part!r}]."
        raise SpecError(f"The part {part!r} was not measured; {why}")


def curves(
    ds: Any, reading: Reading | None = None, *, definition: Definition = "predicted",
    min_examples: int | None = None,
) -> Any:  # fmt: skip
    """One curve per (model,) set of questions and group, ready to be drawn.

    Args:
        ds: What `run` gave.
        reading: ``"group"`` (by verdict flip), ``"held_out"``, ``"knockout"`` or ``"patch"`` (of
            the intervention reading); the first that was measured if None.
        definition: Of the group reading's ΔP: of the class that was ``"predicted"`` first, or of
            ``"wrong"``, the probability of a hallucination, whatever was predicted.
        min_examples: Groups with fewer examples at a layer are NaN there; by default what the
            study was asked for.

    Returns:
        A Dataset: ``delta_p`` (dataset, group, layer, example), percentage points, NaN for
        examples of another group; groups Q-anchored, A-anchored and, as a control, the same
        knockout of random tokens on all examples. ``group_size`` (dataset, group, layer) says n,
        before small groups are left out. ``attrs["caption"]`` says what it is. Of several models
        all along ``model`` as well.

    Raises:
        SpecError: The reading is unknown, or was not measured.
    """
    measured: list[Reading] = [name for name in CAPTIONS if _measured(ds, name)]
    if reading is None:
        reading = measured[0] if measured else "group"
    if reading not in CAPTIONS:
        raise SpecError(f"There is no reading {reading!r}; there are {', '.join(CAPTIONS)}.")
    if not _measured(ds, reading):
        why = " ".join(reasons(ds)) or "ask for it with parts=[…]."
        raise SpecError(f"The reading {reading!r} was not measured; {why}")
    if definition not in DEFINITIONS or (definition == "wrong" and reading != "group"):
        raise SpecError("ΔP of 'wrong' is of the reading 'group'; any other has 'predicted' alone.")
    names = [*GROUPS] if reading == "patch" else [*GROUPS, CONTROL]
    caption = CAPTIONS[reading]
    if definition == "wrong":
        caption = caption.replace("the verdict first given", "the verdict that it is wrong")
    return lined(ds, _grouped(ds, reading, definition), names, min_examples,
                 reading=reading, definition=definition, caption=caption)  # fmt: skip


def lined(
    ds: Any, values: np.ndarray, names: Sequence[str], min_examples: int | None, *,
    axis: str | None = None, **more: str,
) -> Any:  # fmt: skip
    """Values ``[(model,) dataset, (axis,) group, layer, example]``, small groups left out."""
    least = (
        int(ds.attrs.get("min_examples", MIN_EXAMPLES)) if min_examples is None else min_examples
    )
    lead = (*leading(ds), *([axis] if axis else []))
    size = (~np.isnan(values)).sum(-1)
    values = np.where((size >= least)[..., None], values, np.nan).astype(np.float32)
    at = np.flatnonzero(size.any(tuple(range(size.ndim - 1)))).tolist()
    labels = {dim: ds[dim].values.tolist() for dim in lead}
    return build(
        {
            "delta_p": ((*lead, "group", "layer", "example"), values[..., at, :]),
            "group_size": ((*lead, "group", "layer"), size[..., at], "examples"),
        },
        {**labels, "group": list(names), "layer": ds["layer"].values[at].tolist()},
        {**ds.attrs, **more, "min_examples": least},
    )


def _measured(ds: Any, reading: str) -> bool:
    if reading in ("group", "held_out"):
        return "delta_p" in ds and bool(ds["delta_p"].notnull().any())
    name = "delta_p_intervention"
    return name in ds and bool(ds[name].sel(kind=reading).notnull().any())


def _grouped(ds: Any, reading: str, definition: str) -> np.ndarray:
    """Values ``[(model,) dataset, group, layer, example]``, the control last if there is one."""
    at = len(leading(ds))
    if reading == "patch":
        return ds["delta_p_intervention"].sel(kind="patch").values
    if reading == "knockout":
        own = ds["delta_p_intervention"].sel(kind="knockout").values
        control = np.expand_dims(ds["delta_p_intervention_control"].values, at)
        return np.concatenate([own, control], axis=at)
    suffix = "" if reading == "group" else "_held_out"
    names = (f"delta_p{suffix}", f"delta_p_control{suffix}")
    values, control = (ds[name].values for name in names)
    if definition == "wrong":
        base = ds["p_wrong"].values
        values, control = (
            100.0 * (ds[f"p_wrong_{name}"].values - base) for name in ("knockout", "control")
        )
    return split(values, control, ds[f"q_anchored{suffix}"].values, at)


def split(values: np.ndarray, control: np.ndarray, q_anchored: np.ndarray, at: int) -> np.ndarray:
    """Values of the Q-anchored, of the A-anchored, and the control's, along a new axis."""
    return np.stack(
        [np.where(q_anchored, values, np.nan), np.where(q_anchored, np.nan, values), control],
        axis=at,
    )


def by_cut(
    ds: Any, *, definition: Definition = "predicted", min_examples: int | None = None
) -> Any:
    """Curves of every cut of the part ``"cuts"``: each has groups of its own verdicts.

    Args:
        ds: What `run` gave.
        definition: See `curves`.
        min_examples: See `curves`.

    Returns:
        The Dataset of `curves`, with ``condition`` (the cut) behind ``dataset``.

    Raises:
        SpecError: The part was not measured, or the definition is unknown.
    """
    require(ds, "p_wrong_cut", "cuts")
    if definition not in DEFINITIONS:
        raise SpecError(f"ΔP is {', '.join(DEFINITIONS)}; not {definition!r}.")
    at = len(leading(ds))
    base = np.expand_dims(ds["p_wrong"].values, at)
    cut, control = (ds[f"p_wrong_cut{suffix}"].values for suffix in ("", "_control"))
    groups = turned(base, cut)
    values = (
        [delta_p(base, one) for one in (cut, control)] if definition == "predicted"
        else [100.0 * (one - base) for one in (cut, control)]
    )  # fmt: skip
    missing = np.isnan(cut)
    whole = split(values[0], values[1], groups & ~missing, at + 1)
    return lined(
        ds, whole, [*GROUPS, CONTROL], min_examples, axis="condition", study="pathways cuts",
        definition=definition,
    )  # fmt: skip


def table(ds: Any, *, layers: Any = None, min_examples: int | None = None) -> Any:
    """ΔP of every reading that was measured, at some layers, with 95 % intervals.

    Args:
        ds: What `run` gave.
        layers: Which layers; about seven spread over the model if None.
        min_examples: See `curves`.

    Returns:
        A pandas DataFrame: reading, (model,) dataset, group, layer, delta_p, low, high, n. Groups
        that are too small have NaN and their n.
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
        dims = some["group_size"].dims
        for at in np.ndindex(*interval.mean.shape):
            rows.append({
                "reading": reading,
                **{dim: some[dim].values[i].item() for dim, i in zip(dims, at, strict=True)},
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
