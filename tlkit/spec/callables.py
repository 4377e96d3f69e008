"""A user's own functions as metrics."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tlkit.errors import SpecError
from tlkit.spec.readout import Metric, Readout

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CallableMetric:
    """A user's function of logits ``[example, pos, vocab]``, called for one row at a time.

    The function may carry ``positions`` (an int such as -1, counted from the prompt's end) and
    ``vocabulary`` (token ids), so that only that is computed; it then gets just those, in
    the order in which it names them.
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

        logits, declared = readout.logits, getattr(self.function, "vocabulary", None)
        if declared is not None:  # in the order that the function named them in
            logits = logits[..., readout.columns(torch.tensor(tuple(declared))).to(logits.device)]
        rows = []
        for row in range(len(readout.examples)):
            value = self.function(logits[row : row + 1][:, readout.present[row]])
            rows.append(_number(value, self.name))
        return torch.stack(rows)


def _number(value: Any, name: str) -> "Tensor":
    """One number, as the metric was asked for."""
    import torch

    try:
        number = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        raise SpecError(f"The metric {name!r} gave {value!r}, which is no number.") from None
    if number.numel() != 1:
        raise SpecError(
            f"The metric {name!r} gave {number.numel()} numbers for one prompt's logits; it must "
            f"give one."
        )
    return number.float().reshape(())


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
        if isinstance(one, Metric) and not isinstance(one, type):
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
