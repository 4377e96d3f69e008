"""One pair under one metric: numbers and next tokens of any set of changes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tlkit.app.state import METRICS, State
from tlkit.engine.session import Session
from tlkit.spec.interventions import Patch
from tlkit.spec.readout import Readout
from tlkit.spec.sweeps import AnyIntervention


class _NextTokens:
    """A metric that keeps the logits which it is shown, and measures nothing."""

    name = "next_tokens"
    unit = "logits"

    def __init__(self) -> None:
        self.logits = torch.empty(0)

    def positions(self, prompt_length: int, answer_length: int, length: int) -> tuple[int, ...]:
        """The prompt's last position."""
        return (prompt_length - 1,)

    def vocabulary(self, prompts: Any) -> tuple[int, ...] | None:
        """All."""
        return None

    def __call__(self, readout: Readout) -> Tensor:
        """Nothing; the last row's logits are kept."""
        self.logits = readout.logits[-1, 0]
        return readout.logits.new_zeros(len(readout.examples))


class Bench:
    """Measures single changes on one pair; base and source runs are made once.

    Cells of the map and what was clicked have sessions of their own: a cell needs the metric
    alone, a click the whole vocabulary.

    Raises:
        SpecError: The metric cannot be read off this pair, or the model is not served.
    """

    def __init__(self, model: Any, state: State) -> None:
        self.unit = str(METRICS[state.metric]().unit)
        self._next = _NextTokens()
        metric, base = METRICS[state.metric], state.base
        self._cells = Session(model, state.prompts, metric(), on=base)
        self._clicks = Session(model, state.prompts, [metric(), self._next], on=base)
        self._alone: dict[str, float] = {}
        self.continuations: dict[str, str] = {}
        """Texts that were generated already."""

    def baseline(self, run: Any = None) -> float:
        """The metric of an unchanged run: of the one that is changed, if None."""
        return float(self._cells.baseline(run)[0, 0])

    def cells(self, changes: Sequence[AnyIntervention]) -> Float[np.ndarray, " cell"]:
        """The metric under each of several changes, each alone; NaN where there is no such place.

        Args:
            changes: Patches, one for each cell.
        """
        return self._cells.several([[one] for one in changes])[:, 0, 0]

    def idle(self, change: AnyIntervention) -> bool:
        """Whether a change provably changes nothing, so that measuring it costs nothing."""
        return self._cells.idle([change])

    def together(self, changes: Sequence[AnyIntervention]) -> tuple[float, Float[Tensor, " vocab"]]:
        """The metric under all changes at once, and the logits of the next token."""
        value = float(self._clicks.values(changes)[0, 0])
        return value, self._next.logits

    def alone(self, change: AnyIntervention) -> float:
        """The metric under one change."""
        key = repr(change)  # some interventions are equal to none but themselves
        if key not in self._alone:
            self._alone[key] = float(self._cells.values([change])[0, 0])
        return self._alone[key]

    def warm(self, patch: Patch) -> None:
        """Make the runs that the first click on this site needs."""
        self._clicks.values([patch])
