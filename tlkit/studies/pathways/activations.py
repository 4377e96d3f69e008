"""Activations of whole sequences at some positions, for probes."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tlkit.engine.edits import Worked
from tlkit.engine.sequences import Sequences
from tlkit.engine.states import states
from tlkit.engine.values import Progress
from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts


@runtime_checkable
class Running(Protocol):
    """How a model is run."""

    packed: bool
    budget: int | None

    @property
    def parts(self) -> Parts:
        """The model's modules."""
        ...


def read_states(
    how: Running, rows: Sequence[Sequence[int]], positions: Sequence[tuple[int, ...]], *,
    site: str = "resid_post", layers: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> np.ndarray:  # fmt: skip
    """Read a site at as many positions of each sequence.

    Args:
        how: The model and how it is run.
        rows: Token ids.
        positions: Where, as many of each.
        site: What is read.
        layers: Where; all if None.
        progress: Called with (sequences done, sequences in all).

    Returns:
        float32 ``[layer, example, position, d_model]``.
    """
    found = read_under(how, rows, positions, {}, site=site, layers=layers, progress=progress)
    return found["base"]


def read_under(
    how: Running, rows: Sequence[Sequence[int]], positions: Sequence[tuple[int, ...]],
    conditions: Mapping[str, Sequence[Worked]], *, site: str = "resid_post",
    layers: Sequence[int] | None = None, progress: Progress | None = None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """The same unchanged, ``"base"``, and under conditions; NaN where one is missing."""
    layers = range(how.parts.n_layers) if layers is None else layers
    sequences = Sequences(Prompts.from_tokens([list(ids) for ids in rows]), "clean")
    found = states(
        how.parts, sequences, positions, [(site, layer) for layer in layers], conditions,
        packed=how.packed, budget=how.budget, progress=progress,
    )  # fmt: skip
    return {
        name: np.stack([_array(some[site, layer]) for layer in layers])
        for name, some in found.items()
    }


def _array(rows: Sequence[Any]) -> np.ndarray:
    return np.stack([row.float().cpu().numpy() for row in rows])
