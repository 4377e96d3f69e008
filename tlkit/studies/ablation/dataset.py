"""The results of all models in one dataset."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tlkit.results.schema import build
from tlkit.studies.ablation.behaviour import Said
from tlkit.studies.ablation.cells import labels
from tlkit.studies.ablation.inputs import Subject
from tlkit.studies.ablation.measures import UNITS
from tlkit.studies.ablation.settings import HEADS, Settings

FRACTION = "fraction"


@dataclass(frozen=True, eq=False)
class Found:
    """One model's results.

    Attributes:
        subject: The model with its prompts.
        swept: What `tk.run` gave: ``value`` (metric, condition, example), ``base``.
        said: Its continuations, if a behaviour was asked for.
    """

    subject: Subject
    swept: Any
    said: Said | None


def dataset(found: Sequence[Found], settings: Settings, attrs: dict[str, Any]) -> Any:
    """Every model's effects on common axes, NaN where a model has no such layer or head."""
    parts = [one.subject.parts for one in found]
    depth, heads = (max(getattr(one, name) for one in parts) for name in ("n_layers", "n_heads"))
    examples = len(found[0].subject.prompts)
    names = [one.subject.name for one in found]
    coords: dict[str, Any] = {"model": names, "depth": ("model", [p.n_layers for p in parts])}
    coords["layer"] = labels(settings, depth)
    if settings.branches:
        coords["site"] = list(settings.branches)
    branch = (len(found), len(settings.branches), len(coords["layer"]), examples)
    single = (len(found), depth, heads, examples)
    variables: dict[str, tuple] = {}
    for metric in found[0].swept["metric"].values.tolist():
        whole, base = np.full(branch, np.nan), np.full((len(found), examples), np.nan)
        each = np.full(single, np.nan)
        for i, one in enumerate(found):
            values = one.swept["value"].sel(metric=metric).values
            base[i] = one.swept["base"].sel(metric=metric).values
            layers, own = one.subject.parts.n_layers, one.subject.parts.n_heads
            count = layers - settings.windows + 1
            rows = len(settings.branches) * count
            whole[i, :, :count] = values[:rows].reshape(-1, count, examples)
            if settings.heads:
                each[i, :layers, :own] = values[rows:].reshape(layers, own, examples)
        variables |= _named(metric, whole, each, base, settings)
    if settings.behaviour:
        variables |= _behaviours(found, settings, branch, coords)
    return build(variables, coords, attrs)


def _named(
    metric: str, whole: np.ndarray, each: np.ndarray, base: np.ndarray, settings: Settings
) -> dict[str, tuple]:
    """One metric's variables."""
    made: dict[str, tuple] = {}
    units = UNITS[metric]
    if settings.branches:
        dims = ("model", "site", "layer", "example")
        made[metric] = (dims, whole.astype(np.float32), units)
    if HEADS in settings.components:
        dims = ("model", "layer", "head", "example")
        made[f"head_{metric}"] = (dims, each.astype(np.float32), units)
    if metric != "kl":  # which is 0 where nothing is changed
        made[f"{metric}_base"] = (("model", "example"), base.astype(np.float32), units)
    return made


def _behaviours(
    found: Sequence[Found], settings: Settings, branch: tuple[int, ...], coords: dict[str, Any]
) -> dict[str, tuple]:
    """Behaviours as variables; what was said goes to the coordinates."""
    detectors = list(settings.behaviour)
    judged = np.full((*branch[:3], len(detectors), branch[3]), np.nan, np.float32)
    base = np.full((branch[0], len(detectors), branch[3]), np.nan, np.float32)
    texts, plain = np.full(branch, "", object), np.full((branch[0], branch[3]), "", object)
    for i, one in enumerate(found):
        assert one.said is not None
        count = one.subject.parts.n_layers - settings.windows + 1
        shape = (branch[1], count, branch[3])
        texts[i, :, :count] = one.said.texts[1:].reshape(shape)
        plain[i] = one.said.texts[0]
        for d, name in enumerate(detectors):
            judged[i, :, :count, d] = one.said.judged[name][1:].reshape(shape)
            base[i, d] = one.said.judged[name][0]
    coords["detector"] = detectors
    dims = ("model", "site", "layer", "example")
    coords["continuation"] = (dims, texts.astype(str))
    coords["continuation_base"] = (("model", "example"), plain.astype(str))
    return {
        "behaviour": (("model", "site", "layer", "detector", "example"), judged, FRACTION),
        "behaviour_base": (("model", "detector", "example"), base, FRACTION),
    }
