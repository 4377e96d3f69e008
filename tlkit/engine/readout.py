"""From the last stream to metrics: only the positions and vocabulary that they read."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tlkit.engine.sequences import Sequences
from tlkit.errors import EngineError
from tlkit.models.bridge import Parts
from tlkit.spec.readout import Metric, Readout


def logits_of(parts: Parts, stream: Tensor, vocabulary: Tensor | None) -> Tensor:
    """Logits, float32, of streams ``[row, d_model]``; only some token ids' where asked."""
    normed = parts.final_norm(stream)
    if vocabulary is None or not isinstance(parts.head, torch.nn.Linear):
        logits = parts.head(normed)
        logits = logits if vocabulary is None else logits[..., vocabulary]
    else:
        weight, bias = parts.head.weight[vocabulary], parts.head.bias
        logits = torch.nn.functional.linear(
            normed, weight, None if bias is None else bias[vocabulary]
        )
    logits = logits.float()
    cap = parts.softcap
    return logits if cap is None else torch.tanh(logits / cap) * cap


class Reading:
    """What one metric reads of each example: positions, vocabulary, and the base run's logits.

    Args:
        metric: The metric.
        sequences: The run's token sequences.
        run: Which run's lengths count.
    """

    def __init__(self, metric: Metric, sequences: Sequences, run: str, device: Any) -> None:
        self.metric, self.prompts = metric, sequences.prompts
        ids = metric.vocabulary(sequences.prompts)
        self.vocabulary = None if ids is None else torch.tensor(ids, device=device)
        self.positions: list[tuple[int, ...]] = []
        for i in range(len(sequences.prompts)):
            length = sequences.length(run, i)
            read = metric.positions(
                sequences.prompt_length(run, i), sequences.answer_length(i), length
            )
            if any(not 0 <= p < length for p in read):
                raise EngineError(f"{metric.name} reads positions {read} of {length} tokens.")
            self.positions.append(read)
        self.width = max(len(read) for read in self.positions)

    def readout(self, examples: Sequence[int], logits: Tensor, base: Tensor) -> Readout:
        """Logits ``[row, pos, vocab]`` with what the metric needs to know of the rows."""
        counts = torch.tensor([len(self.positions[i]) for i in examples], device=logits.device)
        present = torch.arange(self.width, device=logits.device)[None] < counts[:, None]
        return Readout(logits, base, tuple(examples), self.prompts, self.vocabulary, present)

    def base_logits(self, parts: Parts, stream: Tensor, examples: range) -> Tensor:
        """An unchanged run's logits ``[example, pos, vocab]`` from the last stream of examples."""
        at, to = [], []
        for row, example in enumerate(examples):
            for column, position in enumerate(self.positions[example]):
                at.append((row, position))
                to.append((row, column))
        read, put = torch.tensor(at), torch.tensor(to)
        logits = logits_of(parts, stream[read[:, 0], read[:, 1]], self.vocabulary)
        out = logits.new_zeros(len(examples), self.width, logits.shape[-1])
        out[put[:, 0], put[:, 1]] = logits
        return out
