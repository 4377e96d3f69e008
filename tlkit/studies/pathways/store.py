"""From what was found to a dataset, and back: how a study is kept and gone on with."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tlkit.errors import SpecError
from tlkit.results.files import open as open_store
from tlkit.results.schema import build
from tlkit.studies.pathways.by_layers import cut_names
from tlkit.studies.pathways.by_token import REPLACED
from tlkit.studies.pathways.detection import DETECTORS
from tlkit.studies.pathways.intervention import KINDS
from tlkit.studies.pathways.part import GROUPS, TEXTS, Part, filled, stacked, unstacked
from tlkit.studies.pathways.sets import Asked, asked_hash
from tlkit.studies.pathways.settings import PLACES, Settings

SAME = (
    "study", "weight_hash", "tokenizer_hash", "spec", "prompt_hash", "engine", "tlkit_version",
)  # fmt: skip
"""What two runs must share for one to go on with the other."""
UNLOADED = ("study", "spec", "prompt_hash")
"""Those of them that are known before a model is loaded."""


@dataclass
class One:
    """What was found with one model.

    Attributes:
        about: How it was made.
        n_layers: The model's blocks.
        sets: Name to what was found on a set of questions.
    """

    about: dict[str, Any]
    n_layers: int
    sets: dict[str, Part]

    def complete(self, named: Mapping[str, Asked], settings: Settings) -> bool:
        """Whether every part of every set is done."""
        return all(
            name in self.sets and set(settings.asked) <= set(self.sets[name].done) for name in named
        )


def dataset_of(one: One, settings: Settings, more: Mapping[str, Any]) -> Any:
    """All sets of one model in one dataset."""
    notes = {name: part.note() for name, part in one.sets.items()}
    variables, coords = stacked(one.sets)
    if not variables:  # nothing could be measured; the answers are still there
        shape = (len(one.sets), one.n_layers, max(part.count for part in one.sets.values()))
        variables["delta_p"] = (("dataset", "layer", "example"), np.full(shape, np.nan, np.float32),
                                "percentage points")  # fmt: skip
    return _built(variables, coords, {"dataset": list(one.sets)}, one.n_layers, settings,
                  {**one.about, **more, "notes": json.dumps(notes)})  # fmt: skip


def side_by_side(ones: Mapping[str, One], settings: Settings, more: Mapping[str, Any]) -> Any:
    """Several models in one dataset, along ``model``.

    Sets are done in one order with every model, so that what a model has stands in front; what it
    has not, and layers that are not its own, are missing.
    """
    apart = {name: dataset_of(one, settings, {}) for name, one in ones.items() if one.sets}
    sets = max((list(one.sets) for one in ones.values()), key=len)
    depth = max(one.n_layers for one in ones.values())
    longest = max(ds.sizes.get("example", 0) for ds in apart.values())
    sizes = {"dataset": len(sets), "layer": depth, "example": longest}
    known = {
        str(key): ds[key]
        for ds in reversed(apart.values())
        for key in (*ds.data_vars, *(name for name in TEXTS if name in ds.coords))
    }

    def joined(key: str) -> tuple[tuple[str, ...], np.ndarray]:
        like = known[key]
        shape = [sizes.get(str(dim), size) for dim, size in like.sizes.items()]
        rows = [ds[key].values if key in ds.variables else None for ds in apart.values()]
        kinds = [like.dtype if row is None else row.dtype for row in rows]
        whole = [filled(row, shape, kind) for row, kind in zip(rows, kinds, strict=True)]
        return ("model", *map(str, like.dims)), np.stack(whole)

    variables = {
        key: (*joined(key), like.attrs["units"]) for key, like in known.items() if key not in TEXTS
    }
    labels = {"model": list(apart), "dataset": sets}
    coords = {key: joined(key) for key in TEXTS if key in known}
    return _built(variables, coords, labels, depth, settings, {**_shared(ones), **more})


def _shared(ones: Mapping[str, One]) -> dict[str, Any]:
    """How it was made: what all models share, then each model's own as JSON."""
    models = {name: {**one.about, "n_layers": one.n_layers} for name, one in ones.items()}
    notes = {
        name: {key: part.note() for key, part in one.sets.items()} for name, one in ones.items()
    }
    first = next(iter(ones.values())).about
    own = ("model", "revision", "family", "dtype", "bos", "weight_hash", "tokenizer_hash", "engine")
    shared = {key: value for key, value in first.items() if key not in own}
    return {**shared, "models": json.dumps(models), "notes": json.dumps(notes)}


def _built(
    variables: Mapping[str, tuple], coords: Mapping[str, tuple], labels: Mapping[str, Any],
    n_layers: int, settings: Settings, attrs: Mapping[str, Any],
) -> Any:  # fmt: skip
    dims = {dim for row in variables.values() for dim in row[0]}
    optional = {
        "layer": list(range(n_layers)),
        "group": list(GROUPS),
        "kind": list(KINDS),
        "seed": list(settings.seeds),
        "condition": cut_names(settings.scopes, settings.modes),
        "site": list(settings.sites),
        "pos": list(PLACES),
        "control": list(REPLACED),
        "detector": list(DETECTORS),
    }
    named = {name: values for name, values in optional.items() if name in dims}
    # Texts belong to examples: a study of probes alone has none.
    texts = {name: row for name, row in coords.items() if dims.issuperset(row[0])}
    return build(variables, {**labels, **texts, **named}, attrs)


def finished(
    store: Any, settings: Settings, named: Mapping[str, Asked], names: Sequence[str]
) -> dict[str, One]:
    """What a store already has, by the model's name (empty for a model alone).

    Raises:
        SpecError: The store is of another study, or of other settings or questions.
    """
    if store is None or not Path(store).exists():
        return {}
    dataset = open_store(store)
    wanted = {
        "study": "pathways", "spec": json.dumps(settings.plain(), sort_keys=True),
        "prompt_hash": asked_hash(named),
    }  # fmt: skip
    check_alike(dataset.attrs, wanted, UNLOADED)
    notes = json.loads(dataset.attrs["notes"])
    if ("models" in dataset.attrs) != bool(names):
        kind = "one model" if names else "several models"
        raise SpecError(f"{store} holds a study of {kind}; choose another name, or delete it.")
    if not names:
        return {"": One(dict(dataset.attrs), 0, unstacked(dataset, notes))}
    found = {}
    for name, about in json.loads(dataset.attrs["models"]).items():
        depth = int(about.pop("n_layers"))
        if name in names and notes.get(name):
            own = dataset.sel(model=name).isel(layer=slice(depth), missing_dims="ignore")
            found[name] = One(about, depth, unstacked(own, notes[name]))
    return found


def check_alike(kept: Mapping[str, Any], wanted: Mapping[str, Any], names: Sequence[str]) -> None:
    """Refuse to go on with another study.

    Raises:
        SpecError: With what to do.
    """
    if any(kept.get(name) != wanted.get(name) for name in names):
        raise SpecError(
            "The store holds another study (other weights, questions, answers, settings or "
            "engine); choose another name, or delete it."
        )
