"""What is measured on the logits of a run."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tlkit.errors import SpecError
from tlkit.spec.readout import Readout

if TYPE_CHECKING:
    from torch import Tensor


def _first_tokens(prompts: Any, which: str, metric: str) -> list[int]:
    rows = getattr(prompts, which)
    if rows is None:
        raise SpecError(f"{metric} needs {which.replace('_', ' ')}, and these prompts have none.")
    return [row[0] for row in rows]


@dataclass(frozen=True)
class LogitDiff:
    """Logit of the answer minus logit of the wrong answer, at the prompt's last position.

    Raises:
        SpecError: An answer has several tokens, or there are no wrong answers.
    """

    name: str = "logit_diff"
    unit: str = "logits"

    def positions(self, prompt_length: int, answer_length: int, length: int) -> tuple[int, ...]:
        """The prompt's last position."""
        return (prompt_length - 1,)

    def vocabulary(self, prompts: Any) -> tuple[int, ...] | None:
        """The answers and wrong answers."""
        for which in ("answers", "wrong_answers"):
            for i, row in enumerate(getattr(prompts, which) or ()):
                if len(row) != 1:
                    raise SpecError(
                        f"LogitDiff needs answers of one token; in example {i} the "
                        f"{which[:-1].replace('_', ' ')} has {len(row)}. Use "
                        f"AnswerProb (--metric answer_prob), or leave it out (--single-token)."
                    )
        ids = _first_tokens(prompts, "answers", "LogitDiff")
        return tuple(sorted({*ids, *_first_tokens(prompts, "wrong_answers", "LogitDiff")}))

    def __call__(self, readout: Readout) -> "Tensor":
        """Right minus wrong."""
        right = _gather_first(readout, "answers")
        return right - _gather_first(readout, "wrong_answers")


def _gather_first(readout: Readout, which: str) -> "Tensor":
    import torch

    ids = torch.tensor([getattr(readout.prompts, which)[i][0] for i in readout.examples])
    columns = readout.columns(ids).to(readout.logits.device)
    return readout.logits[:, 0].gather(-1, columns[:, None])[:, 0]


@dataclass(frozen=True)
class AnswerProb:
    """Probability of the whole answer: exp of its tokens' summed log-probabilities.

    Args:
        log: Give the summed log-probability (nats) instead.
    """

    log: bool = False
    name: str = "answer_prob"

    teacher_forced = True
    """The prompt is run with all but the answer's last token behind it."""

    @property
    def unit(self) -> str:
        """Probability, 0 to 1, or nats."""
        return "nats" if self.log else "probability"

    def positions(self, prompt_length: int, answer_length: int, length: int) -> tuple[int, ...]:
        """Each position whose next token is one of the answer's."""
        return tuple(range(prompt_length - 1, prompt_length - 1 + answer_length))

    def vocabulary(self, prompts: Any) -> tuple[int, ...] | None:
        """All: a probability needs every logit."""
        _first_tokens(prompts, "answers", "AnswerProb")
        return None

    def __call__(self, readout: Readout) -> "Tensor":
        """Probability or log-probability."""
        import torch

        width = readout.logits.shape[1]
        ids = torch.zeros(len(readout.examples), width, dtype=torch.long)
        for row, example in enumerate(readout.examples):
            answer = readout.prompts.answers[example]
            ids[row, : len(answer)] = torch.tensor(answer)
        ids = ids.to(readout.logits.device)
        log_probs = readout.logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0]
        total = log_probs.masked_fill(~readout.present, 0.0).sum(-1)
        return total if self.log else total.exp()


@dataclass(frozen=True)
class AnswerRank:
    """How many tokens the model prefers to the answer's first token; 0 means it comes first."""

    name: str = "answer_rank"
    unit: str = "rank"

    def positions(self, prompt_length: int, answer_length: int, length: int) -> tuple[int, ...]:
        """The prompt's last position."""
        return (prompt_length - 1,)

    def vocabulary(self, prompts: Any) -> tuple[int, ...] | None:
        """All: a rank compares with every logit."""
        _first_tokens(prompts, "answers", "AnswerRank")
        return None

    def __call__(self, readout: Readout) -> "Tensor":
        """The rank."""
        own = _gather_first(readout, "answers")
        return (readout.logits[:, 0] > own[:, None]).sum(-1).float()


@dataclass(frozen=True)
class KL:
    """KL(base || changed) of the next-token distribution at the prompt's last position, in nats."""

    name: str = "kl"
    unit: str = "nats"

    def positions(self, prompt_length: int, answer_length: int, length: int) -> tuple[int, ...]:
        """The prompt's last position."""
        return (prompt_length - 1,)

    def vocabulary(self, prompts: Any) -> tuple[int, ...] | None:
        """All."""
        return None

    def __call__(self, readout: Readout) -> "Tensor":
        """The divergence; 0 where both logits are minus infinity."""
        base = readout.base[:, 0].log_softmax(-1)
        changed = readout.logits[:, 0].log_softmax(-1)
        weight = base.exp()
        # A token of probability 0 adds nothing, were the other run's minus infinity, too.
        terms = (weight * (base - changed)).masked_fill(weight == 0, 0.0)
        return terms.sum(-1).clamp_min(0.0)
