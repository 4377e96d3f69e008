"""Cutting and scaling attention edges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tlkit.errors import SpecError
from tlkit.spec.sites import Positions, places, positions

Indices = int | Sequence[int] | None


@dataclass(frozen=True)
class EdgeIntervention:
    """A change of the attention edges from ``queries`` to ``keys``.

    Args:
        queries: Positions, a span's name, or None: every position strictly after the last key,
            so that edges within the key span stay.
        keys: Positions or a span's name.
        layers: Layers, or None for all.
        heads: Query heads, or None for all.
    """

    queries: Positions = None
    keys: Positions = None
    layers: Indices = None
    heads: Indices = None

    def __post_init__(self) -> None:
        if self.keys is None:
            raise SpecError(f"{type(self).__name__} needs keys: a span's name or positions.")
        kind = type(self).__name__
        for name in ("layers", "heads"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise SpecError(f"{name} of {kind} are whole numbers, not {value!r}.")
            object.__setattr__(self, name, places(value, f"{name} of {kind}"))
        for name in ("queries", "keys"):
            value = places(getattr(self, name), f"{name} of {kind}")
            object.__setattr__(self, name, value)

    def edges(
        self, prompt: int, length: int, spans: Mapping[str, Sequence[Any]], example: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The query and key positions in a prompt, of ``length`` tokens with what follows it."""
        keys = positions(self.keys, prompt, spans, example)
        if not keys:
            return (), ()
        if self.queries is None:
            return tuple(range(max(keys) + 1, length)), keys
        return positions(self.queries, prompt, spans, example), keys


@dataclass(frozen=True)
class Knockout(EdgeIntervention):
    """Attention knockout (Geva et al. 2023, arXiv:2304.14767).

    ``mode="zero"`` sets the weights to 0 after the softmax, without renormalising; ``"-inf"``
    sets the scores to minus infinity before it, so that the other weights grow. A query with no
    key left attends to nothing: its row is 0.
    """

    mode: Literal["zero", "-inf"] = "zero"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode not in ("zero", "-inf"):
            raise SpecError(f"Knockout(mode={self.mode!r}) is not known; use 'zero' or '-inf'.")

    @property
    def factor(self) -> float | None:
        """What the weights are multiplied by, or None where scores are cut."""
        return 0.0 if self.mode == "zero" else None


@dataclass(frozen=True)
class ScaleEdges(EdgeIntervention):
    """Multiply attention weights, after the softmax, by a factor (not renormalised)."""

    factor: float = 1.0
