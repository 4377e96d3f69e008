"""What a metric is, and what it gets to read."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Readout:
    """Logits of several rows (one condition on one example each), as a metric gets them.

    Attributes:
        logits: float32 ``[row, pos, vocab]``, at the positions that the metric asked for and the
            vocabulary entries ``vocabulary`` (all, if None).
        base: The same of the unchanged base run.
        examples: Example index of each row.
        prompts: The prompts (anything with ``answers`` and ``wrong_answers``).
        vocabulary: Token id of each column, or None where the columns are the whole vocabulary.
        present: bool ``[row, pos]``; False where a row has fewer positions than others.
    """

    logits: "Tensor"
    base: "Tensor"
    examples: tuple[int, ...]
    prompts: Any
    vocabulary: "Tensor | None"
    present: "Tensor"

    def columns(self, ids: "Tensor") -> "Tensor":
        """The columns that hold these token ids."""
        import torch

        if self.vocabulary is None:
            return ids
        return torch.searchsorted(self.vocabulary, ids.to(self.vocabulary.device))


@runtime_checkable
class Metric(Protocol):
    """A number per row, from logits at some positions and some of the vocabulary."""

    @property
    def name(self) -> str:
        """Its label in results."""
        ...

    @property
    def unit(self) -> str:
        """Its unit, in words."""
        ...

    def positions(self, prompt_length: int, answer_length: int, length: int) -> tuple[int, ...]:
        """The positions it reads, of the prompt and all but the answer's last token."""
        ...

    def vocabulary(self, prompts: Any) -> tuple[int, ...] | None:
        """The token ids whose logits it reads, or None for all."""
        ...

    def __call__(self, readout: Readout) -> "Tensor":
        """Its value for each row, float32 ``[row]``."""
        ...
