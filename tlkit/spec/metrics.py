"""What is measured on the logits of a run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tlkit.errors import SpecError

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

        return ids if self.vocabulary is None else torch.searchsorted(self.vocabulary, ids)


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
                        f"{which[:-1].replace('_', ' ')} has {len(row)}. Use AnswerProb."
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
        terms = base.exp() * (base - changed)
        return terms.masked_fill(base.isneginf(), 0.0).sum(-1).clamp_min(0.0)


@dataclass(frozen=True)
class CallableMetric:
    """A user's function of logits ``[example, pos, vocab]``, called for one row at a time.

    The function may carry ``positions`` (an int such as -1, counted from the prompt's end) and
    ``vocabulary`` (token ids), so that only that is computed; it then gets just those.
    """

    function: Callable[..., Any]
    name: str = "metric"
    unit: str = "metric's own"

    def positions(self, prompt_length: int, answer_length: int, length: int) -> tuple[int, ...]:
        """What the function declares, or all."""
        declared = getattr(self.function, "positions", None)
        if declared is None:
            return tuple(range(prompt_length))
        several = (declared,) if isinstance(declared, int) else tuple(declared)
        return tuple(p + prompt_length if p < 0 else p for p in several)

    def vocabulary(self, prompts: Any) -> tuple[int, ...] | None:
        """What the function declares, or all."""
        declared = getattr(self.function, "vocabulary", None)
        return None if declared is None else tuple(sorted(set(declared)))

    def __call__(self, readout: Readout) -> "Tensor":
        """The function's value for each row."""
        import torch

        rows = []
        for row in range(len(readout.examples)):
            value = self.function(readout.logits[row : row + 1][:, readout.present[row]])
            rows.append(torch.as_tensor(value).float().reshape(()))
        return torch.stack(rows)


def as_metrics(metrics: Any) -> tuple[Metric, ...]:
    """One metric, a list of them, functions or a mapping name to function, as metrics.

    Raises:
        SpecError: Something is no metric, or two have the same name.
    """
    if isinstance(metrics, dict):
        several = [CallableMetric(function, name=name) for name, function in metrics.items()]
    else:
        several = list(metrics) if isinstance(metrics, (list, tuple)) else [metrics]
    done: list[Metric] = []
    for one in several:
        if isinstance(one, Metric):
            done.append(one)
        elif callable(one) and not isinstance(one, type):
            done.append(CallableMetric(one, name=getattr(one, "__name__", "metric")))
        else:
            raise SpecError(
                f"{one!r} is not a metric: pass tk.LogitDiff() or a function of logits."
            )
    names = [metric.name for metric in done]
    if not done or len(set(names)) < len(names):
        raise SpecError(f"Metrics need names of their own; got {', '.join(names) or 'none'}.")
    return tuple(done)
