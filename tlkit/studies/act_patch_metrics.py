"""Metrics as TransformerLens's patching functions take them: functions of a batch's logits."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from tlkit.engine.whole_batch import BatchMetric
from tlkit.errors import SpecError

REDUCE = ("scalar", "mean", "none")


class Metrics:
    """Checked metrics.

    A function may declare ``positions`` (an int such as -1, or several) and ``vocabulary`` (token
    ids): it then gets logits of just these, in the order in which it names them, and costs only
    that.

    Args:
        patching_metric: A function of logits ``[batch, pos, vocab]``, or a mapping of them.
        reduce: ``"scalar"``: it returns a number; ``"mean"``, ``"none"``: one per example.
        batch: Examples.
        length: Tokens of each.

    Raises:
        SpecError: There is no metric, or ``reduce`` is unknown.
    """

    def __init__(self, patching_metric: Any, reduce: str, batch: int, length: int) -> None:
        if reduce not in REDUCE:
            raise SpecError(f"reduce={reduce!r} is not known; use {', '.join(REDUCE)}.")
        self.several = isinstance(patching_metric, Mapping)
        self.functions: dict[str, Callable[[Tensor], Any]] = (
            dict(patching_metric) if self.several else {"metric": patching_metric}
        )
        if not self.functions:
            raise SpecError("The mapping of metrics is empty; name at least one.")
        for name, function in self.functions.items():
            if not callable(function):
                raise SpecError(f"Metric {name!r} is no function of logits, but {function!r}.")
        self.reduce, self.batch, self.length = reduce, batch, length

    def metrics(self) -> list[BatchMetric]:
        """Each with what it reads."""
        return [
            BatchMetric(
                self._checked(name, function), self._positions(name, function), _ids(function)
            )
            for name, function in self.functions.items()
        ]  # fmt: skip

    def _positions(self, name: str, function: Any) -> tuple[int, ...]:
        declared = getattr(function, "positions", None)
        if declared is None:
            return tuple(range(self.length))
        several = (declared,) if isinstance(declared, int) else tuple(declared)
        for p in several:
            if not -self.length <= p < self.length:
                raise SpecError(f"Metric {name!r} reads position {p} of {self.length} tokens.")
        return tuple(p % self.length for p in several)

    def _checked(self, name: str, function: Any) -> Callable[[Tensor], Tensor]:
        """The function, its value held to what ``reduce`` promises.

        Raises:
            SpecError: It returned something else.
        """
        shape = () if self.reduce == "scalar" else (self.batch,)
        wanted = "a scalar" if self.reduce == "scalar" else f"one value per example, [{self.batch}]"

        def value(logits: Tensor) -> Tensor:
            found = torch.as_tensor(function(logits)).detach()
            if tuple(found.shape) != shape:
                raise SpecError(
                    f"Metric {name!r} must return {wanted} under reduce={self.reduce!r}; it "
                    f"returned {tuple(found.shape)}."
                )
            return found.to(logits.device, torch.float32)

        return value


def _ids(function: Any) -> tuple[int, ...] | None:
    declared = getattr(function, "vocabulary", None)
    return None if declared is None else tuple(int(i) for i in declared)
