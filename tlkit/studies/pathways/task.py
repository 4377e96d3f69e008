"""One set of questions while it is worked on: what its parts share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tlkit.engine.values import Progress
from tlkit.models.bridge import Parts
from tlkit.studies.answers import Answers
from tlkit.studies.pathways.activations import read_states
from tlkit.studies.pathways.examples import Example
from tlkit.studies.pathways.part import Part
from tlkit.studies.pathways.settings import Settings

Told = Callable[[str], Progress]
"""Called with a stage's name; gives a function of (done, total)."""


@dataclass(eq=False)
class Task:
    """A set of questions, the model that answered them, and where results go.

    Attributes:
        model: The model.
        answers: What it said.
        examples: The judged answers whose exact tokens are known.
        part: Where what is found is kept.
        settings: The study's choices.
        packed: Whether to run packed, or one hooked forward pass per cell.
        budget: Bytes that may be taken besides the weights.
        told: Told of each stage's progress.
    """

    model: Any
    answers: Answers
    examples: Sequence[Example]
    part: Part
    settings: Settings
    packed: bool = True
    budget: int | None = None
    told: Told = field(default=lambda _: lambda done, total: None)

    @property
    def parts(self) -> Parts:
        """The model's modules."""
        return self._parts

    @cached_property
    def _parts(self) -> Parts:  # apart: to a protocol with `parts` a cached property is no Parts
        return Parts(self.model)

    @cached_property
    def wrong(self) -> np.ndarray:
        """Bool ``[example]``: which answers are wrong."""
        return np.array([one.wrong for one in self.examples], dtype=bool)

    @property
    def groups(self) -> list[str]:
        """What must not be in training and test at once."""
        return [one.group for one in self.examples]

    @property
    def layers(self) -> list[int]:
        """The layers of what is measured at some of them."""
        return self.settings.intervened(self.parts.n_layers)

    @cached_property
    def base(self) -> np.ndarray:
        """States at the exact answers' last tokens, ``[layer, example, d_model]``."""
        rows = [one.ids for one in self.examples]
        ends = [(one.last,) for one in self.examples]
        told = self.told(f"{self.answers.name}: states")
        return read_states(self, rows, ends, progress=told)[:, :, 0]

    def groups_found(self) -> np.ndarray | None:
        """Bool ``[layer, example]``: which examples are Q-anchored; None if that is not known."""
        row = self.part.variables.get("q_anchored")
        return None if row is None else row[1][:, [one.index for one in self.examples]].astype(bool)

    def probed(self, what: str) -> bool:
        """Whether there are enough right and wrong answers for probes; if not, why is noted."""
        bad, needed = int(self.wrong.sum()), self.settings.class_size
        good = len(self.wrong) - bad
        if min(bad, good) >= needed:
            return True
        self.part.reasons.append(
            f"{what} needs {needed} right and {needed} wrong answers; there are {good} right and "
            f"{bad} wrong."
        )
        return False

    def spread(self, values: np.ndarray, layers: Sequence[int]) -> np.ndarray:
        """Values of some layers ``[…, layer, example]`` among all, NaN at the others."""
        shape = (*values.shape[:-2], self.parts.n_layers, values.shape[-1])
        out = np.full(shape, np.nan, dtype=np.float32)
        out[..., list(layers), :] = values
        return out
