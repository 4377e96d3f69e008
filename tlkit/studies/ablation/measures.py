"""What is read of the logits under an ablation."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tlkit.errors import SpecError
from tlkit.spec.metrics import KL, AnswerProb
from tlkit.spec.readout import Metric, Readout
from tlkit.studies.ablation.settings import Settings

UNITS = {"kl": "nats", "loss": "nats per token", "answer_prob": "probability"}


@dataclass(frozen=True)
class Loss:
    """Mean cross entropy of a prompt's own tokens, each predicted from those before it, in nats.

    The first token (BOS, where there is one) is predicted from nothing and not counted; a prompt of
    one token has no loss (NaN).
    """

    name: str = "loss"
    unit: str = UNITS["loss"]

    def positions(self, prompt_length: int, answer_length: int, length: int) -> tuple[int, ...]:
        """All of the prompt but its last, which predicts none of its tokens."""
        return tuple(range(max(1, prompt_length - 1)))

    def vocabulary(self, prompts: Any) -> tuple[int, ...] | None:
        """All: a probability needs every logit."""
        return None

    def __call__(self, readout: Readout) -> Tensor:
        """The mean over each prompt's tokens."""
        ids = torch.zeros(readout.present.shape, dtype=torch.long)
        there = torch.zeros(readout.present.shape, dtype=torch.bool)
        for row, example in enumerate(readout.examples):
            own = readout.prompts.clean[example][1:]
            ids[row, : len(own)] = torch.tensor(own, dtype=torch.long)
            there[row, : len(own)] = True
        ids, there = ids.to(readout.logits.device), there.to(readout.logits.device)
        chosen = readout.logits.gather(-1, ids[..., None])[..., 0]
        lost = (readout.logits.logsumexp(-1) - chosen).masked_fill(~there, 0.0)
        return lost.sum(-1) / there.sum(-1)


def metrics_of(settings: Settings, prompts: Any) -> list[Metric]:
    """The metrics of a study.

    Raises:
        SpecError: ``answer_prob`` is asked for and the prompts have no answers.
    """
    names = settings.metrics
    if names is None:
        names = ("kl", "loss", *(("answer_prob",) if prompts.answers is not None else ()))
    if "answer_prob" in names and prompts.answers is None:
        raise SpecError(
            "answer_prob needs answers, and these prompts have none; give rows with 'prompt' and "
            "'answer', or leave answer_prob out."
        )
    known: dict[str, Metric] = {"kl": KL(), "loss": Loss(), "answer_prob": AnswerProb()}
    return [known[name] for name in names]
