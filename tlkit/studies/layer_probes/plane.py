"""`tk.layer_probes.projection`: prompts as points of a plane, by their features at one layer."""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts
from tlkit.results.provenance import provenance
from tlkit.results.schema import build
from tlkit.studies.layer_probes.activations import Activations
from tlkit.studies.layer_probes.features import Making
from tlkit.studies.layer_probes.rows import labelled

METHODS = ("pca", "tsne")


def projection(
    model: Any, rows: Iterable[Any], layer: int, *, positive: str, site: str = "resid_post",
    method: str = "pca", making: Making | None = None, chat: bool = False, seed: int = 0,
) -> Any:  # fmt: skip
    """Lay prompts out in two dimensions by their standardised features at one layer.

    All prompts shape the picture (it is no test); distances of t-SNE mean little.

    Args:
        model: A loaded model.
        rows: Mappings with ``prompt`` and ``label``.
        layer: Which layer, counted from 0.
        positive: The label of the positive class.
        site: What is read.
        method: ``"pca"`` or ``"tsne"``.
        making: How features are made, as in `run`; `Making()` if None.
        chat: Put the chat template around the prompts.
        seed: Where t-SNE starts.

    Returns:
        An xarray Dataset over ``example``: ``x``, ``y``, ``label``, ``text``.

    Raises:
        SpecError: Something cannot be used; the message names it.
    """
    if method not in METHODS:
        raise SpecError(f"There is no method {method!r}; there are {', '.join(METHODS)}.")
    given = labelled(rows, positive)
    making = making or Making()
    making.check(len(given.texts))
    depth = Parts(model).n_layers
    if not 0 <= layer < depth:
        raise SpecError(f"There is no layer {layer}; there are 0 to {depth - 1}.")
    prompts = Prompts.from_texts(model, given.texts, chat=chat)
    with tempfile.TemporaryDirectory(prefix="tlkit-probes-") as folder:
        features = making.features
        kept = Activations(Path(folder), model, prompts, [site], features, making.last_tokens)
        kept.fill()
        found = making.of(kept.layer(site, layer))
    points = _laid_out(found, method, seed)
    attrs = provenance(
        model, prompts, study="projection", seed=seed, method=method, features=features,
        layer=layer, site=site, positive=positive,
        about=f"{method} of {features} features, {site}, layer {layer}",
    )  # fmt: skip
    variables = {
        "x": (("example",), points[:, 0], "standard deviations"),
        "y": (("example",), points[:, 1], "standard deviations"),
        "label": (("example",), np.array(given.labels), "text"),
        "text": (("example",), np.array(given.texts), "text"),
    }
    return build(variables, {}, attrs)


def _laid_out(features: np.ndarray, method: str, seed: int) -> np.ndarray:
    """``[prompt, 2]``."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from sklearn.preprocessing import StandardScaler

    x = StandardScaler().fit_transform(features)
    if method == "pca":
        return PCA(2, random_state=seed).fit_transform(x)
    perplexity = min(30.0, (len(x) - 1) / 3)  # must be below the number of prompts
    return TSNE(2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(x)
