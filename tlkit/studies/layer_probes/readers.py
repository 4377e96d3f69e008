"""Probes of every layer trained on labelled prompts, to be asked of prompts without a label."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tlkit.errors import SpecError
from tlkit.prompts.prompts import Prompts
from tlkit.studies.layer_probes.activations import Activations
from tlkit.studies.layer_probes.classify import pipeline
from tlkit.studies.layer_probes.factors import Factors, check_rank, learn
from tlkit.studies.layer_probes.features import Making
from tlkit.studies.layer_probes.rows import Labelled


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer's probe.

    Attributes:
        factors: What prompts are projected on; None where the activation itself is read.
        classifier: Fitted, with ``predict_proba``.
    """

    factors: Factors | None
    classifier: Any

    def probability(self, x: np.ndarray) -> np.ndarray:
        """Probability of the positive class, per prompt of ``[prompt, place, d_model]``."""
        rows = x[:, 0] if self.factors is None else self.factors.project(x)
        return self.classifier.predict_proba(rows)[:, 1]


def trained(
    model: Any, rows: Labelled, site: str, making: Making, *, chat: bool
) -> tuple[list[Layer], int]:
    """Train one logistic probe per layer.

    Returns:
        The probes, and how many places of a prompt they read.
    """
    with tempfile.TemporaryDirectory(prefix="tlkit-probes-") as folder:
        kept = _filled(folder, model, rows.texts, site, making, making.last_tokens, chat=chat)
        if making.features == "cp":
            width = min(making.compress, kept.parts.d_model)
            check_rank(making.rank, kept.places, width, len(rows.texts))
        found = [
            _layer(kept.layer(site, layer), rows.truth, making)
            for layer in range(kept.parts.n_layers)
        ]
        return found, kept.places


def asked(
    model: Any, texts: Sequence[str], site: str, making: Making, probes: Sequence[Layer],
    places: int, *, chat: bool,
) -> np.ndarray:  # fmt: skip
    """What probes say of prompts: ``[layer, prompt]``, the probability of the positive class."""
    with tempfile.TemporaryDirectory(prefix="tlkit-probes-") as folder:
        kept = _filled(folder, model, texts, site, making, places, chat=chat)
        pad = ((0, 0), (places - kept.places, 0), (0, 0))  # short prompts: zeros in front
        return np.stack([
            probe.probability(np.pad(kept.layer(site, layer), pad))
            for layer, probe in enumerate(probes)
        ])  # fmt: skip


def _filled(
    folder: str, model: Any, texts: Sequence[str], site: str, making: Making, places: int, *,
    chat: bool,
) -> Activations:  # fmt: skip
    prompts = Prompts.from_texts(model, texts, chat=chat)
    kept = Activations(Path(folder), model, prompts, [site], making.features, places)
    kept.fill()
    return kept


def _layer(x: np.ndarray, truth: np.ndarray, making: Making) -> Layer:
    if not np.isfinite(x).all():
        raise SpecError("A probe needs finite activations; some of these are not.")
    factors = None
    if making.features == "cp":
        factors = learn(
            x, rank=making.rank, compress=making.compress, iterations=making.iterations,
            seed=making.seeds[0],
        )  # fmt: skip
    rows = x[:, 0] if factors is None else factors.project(x)
    return Layer(factors, pipeline("logistic").fit(rows, truth))
