"""Carrying out TransformerLens's patching functions, packed where the model allows."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
import transformer_lens.patching as tl
from torch import Tensor

from tlkit.engine.budget import bytes_of
from tlkit.engine.route import route_of
from tlkit.engine.values import Progress
from tlkit.engine.whole_batch import BatchMetric, WholeBatch, by_reference
from tlkit.errors import SpecError
from tlkit.studies.act_patch_cells import Rows, jobs_of
from tlkit.studies.act_patch_inputs import Inputs
from tlkit.studies.act_patch_metrics import Metrics


@dataclass(frozen=True, eq=False)
class Options:
    """Keywords of every patching function.

    Attributes:
        reduce, baseline: As in TransformerLens.
        clean_tokens: The clean run's token ids ``[batch, pos]``.
        budget: Memory that the engine may take besides the weights: bytes, or ``"4GiB"``.
        progress: Called with (done, total).
    """

    reduce: str = "scalar"
    baseline: bool = False
    clean_tokens: Any = None
    budget: int | str | None = None
    progress: Progress | None = None


@dataclass(frozen=True, eq=False)
class Measured:
    """Values ``[metric, cell]`` or ``[metric, cell, batch]``, and ``[metric]`` of the base run."""

    values: Tensor
    base: Tensor
    metrics: Metrics

    @property
    def axis(self) -> Any:
        """What takes the metric axis off again where only one function was given."""
        return slice(None) if self.metrics.several else 0


def measured(
    model: Any, tokens: Any, cache: Any, metric: Any, several: Sequence[Rows], options: Options
) -> Measured:
    """Measure every cell of some sweeps, counted through in one axis.

    Raises:
        SpecError: Something does not fit.
    """
    inputs = Inputs(model, tokens, cache, options.clean_tokens)
    metrics = Metrics(metric, options.reduce, inputs.batch, inputs.length)
    budget = bytes_of(options.budget)
    for rows in several:
        reason = inputs.parts.unsupported(rows.component or "")
        if reason:
            raise SpecError(f"{inputs.parts.name} has no site {rows.component!r}: {reason}.")
        if rows.component:
            inputs.captured(rows.places)  # refuses what is amiss before the model runs
    reason = next((why for rows in several if (why := _obstacle(rows, inputs))), None)
    if reason is None:
        jobs, sequences = jobs_of(several, inputs)
        engine = WholeBatch(
            inputs.parts, sequences, metrics.metrics(), jobs, inputs.captured, budget=budget
        )
        count = sum(len(rows.frame) for rows in several)
        values, base = _laid_out(*engine.measure(count, options.progress))
    else:
        warnings.warn(f"Patching makes one full pass per cell: {reason}.", stacklevel=4)
        each = [_plainly(model, rows, inputs, metrics) for rows in several]
        values, base = torch.cat([values for values, _ in each], dim=1), each[0][1]
    if options.reduce == "mean":
        values, base = values.mean(-1), base.mean(-1)
    return Measured(values.to(model.cfg.device), base.to(model.cfg.device), metrics)


def _laid_out(cells: list[list[Tensor]], base: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Per cell, then per metric, as ``[metric, cell, ...]``."""
    return torch.stack([torch.stack(cell) for cell in cells], dim=1), torch.stack(base)


def _obstacle(rows: Rows, inputs: Inputs) -> str | None:
    """Why the packed engine cannot do it, or None."""
    if rows.component is None:
        return f"the packed engine does not edit {rows.activation!r}"
    route = route_of(inputs.parts)
    return None if route.packed else route.reason


def _plainly(model: Any, rows: Rows, inputs: Inputs, metrics: Metrics) -> tuple[Tensor, Tensor]:
    """TransformerLens's own loop; the reference engine for patterns that it cannot write.

    Without gradients, TransformerLens's in-place writes of ``resid_mid`` reach the stream.
    """
    functions = dict(zip(metrics.functions, metrics.metrics(), strict=True))
    if rows.component == "pattern" and not inputs.parts.writable_patterns:
        jobs, sequences = jobs_of([rows], inputs)
        return _laid_out(*by_reference(
            inputs.parts, sequences, list(functions.values()), jobs, inputs.captured,
            len(rows.frame),
        ))  # fmt: skip
    with torch.no_grad():
        found = tl.generic_activation_patch(
            model, inputs.tokens, inputs.cache,
            {name: partial(_cut, metric) for name, metric in functions.items()}, rows.setter,
            rows.activation, None, rows.frame, baseline=True,
            reduce="scalar" if metrics.reduce == "scalar" else "none",
        )  # fmt: skip
    return found.values, cast(Tensor, found.baseline)


def _cut(metric: BatchMetric, logits: Tensor) -> Tensor:
    return metric.function(metric.cut(logits))
